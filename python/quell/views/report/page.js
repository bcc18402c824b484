// The report's charts, drawn again when the width changes. The page calls this with its data, and again when they change; it
// returns the queues that are shown, as a set of indices.
const report = D => {
const Q = D.queues;
const shown = new Set(D.shown);
let scale = "log", zoom = null;

// ---- queues' looks
// Eight colours, then the same ones with other dashes. The queues that are shown at first have the first colours.
const slots = [...D.shown, ...Q.keys()].filter((q, k, all) => all.indexOf(q) === k);
const slot = Q.map((q, i) => slots.indexOf(i));
const colour = i => `var(--c${slot[i] % 8})`;
const dash = i => [null, "7 3", "2 3", "9 3 2 3"][Math.floor(slot[i] / 8) % 4];
const marker = (i, x, y, r = 6) => el("path", {
  d: SHAPES[slot[i] % 5](r), transform: `translate(${x},${y})`, class: "dot", fill: colour(i), stroke: "var(--paper)", "data-q": i,
});


// ---- contents of tooltips
const rows = pairs => {
  const t = html("table");
  for (const [a, b, i] of pairs) {
    const name = html("td", {}, a);
    if (i != null) name.style.color = colour(i);
    t.append(html("tr", {}, name, html("td", {}, b)));
  }
  return t;
};
const pm = (q, key, d) => {
  const v = q.m[key];
  return v ? num(v[0], d) + (v[1] != null ? " ± " + num(v[1], d) : "") : "–";
};
const card = (event, i) => {
  const q = Q[i], b = html("b", {}, q.name);
  b.style.color = colour(i);
  say(event, b, rows([
    ["goodput", pm(q, "goodput_mbps", 2) + " Mbit/s"], ["link used", pm(q, "utilisation", 1) + " %"],
    ["sojourn mean", pm(q, "sojourn_ms.mean", 2) + " ms"], ["sojourn p95", pm(q, "sojourn_ms.p95", 2) + " ms"],
    ["sojourn p99", pm(q, "sojourn_ms.p99", 2) + " ms"], ["loss", pm(q, "loss_rate", 2) + " %"], ["marks", pm(q, "mark_rate", 2) + " %"],
    ...(q.front ? [[q.unsure ? "◇ on the front, perhaps by chance" : "◆ on the front", ""]] : []),
  ]));
  warm(i);
};

// ---- delay against throughput
const scatter = () => {
  const [svg, W] = canvas("scatter", Math.min(520, Math.max(360, innerWidth * .46)), "Goodput against 95th percentile of the sojourn time");
  const H = +svg.getAttribute("height"), box = { l: 46, r: W - 14, t: 30, b: H - 44 };
  const P = Q.map(q => ({ x: q.m["sojourn_ms.p95"], y: q.m.goodput_mbps }));
  const floor = .01, [x0, x1] = extent(P.flatMap(p => [Math.max(p.x[0], floor)]));
  // The axis follows the means: a wide interval must not compress the rest, and tiny differences must not look large.
  const [m0, m1] = extent(P.map(p => p.y[0])), reach = Math.max(m1 - m0, m1 * .05);
  const [y0, y1] = extent(P.flatMap(p => [p.y[0] - Math.min(p.y[1] || 0, reach), p.y[0] + Math.min(p.y[1] || 0, reach)]));
  const pad = Math.max((y1 - y0) * .12, (m1 * .1 - (y1 - y0)) / 2, 1e-6);
  const x = log(x0 / 1.35, x1 * 1.5, box.l, box.r), y = linear(Math.max(0, y0 - pad), y1 + pad, box.b, box.t);
  frame(svg, box, x, y, "sojourn time, 95th percentile, ms (log)", "goodput, Mbit/s");

  const front = Q.map((q, i) => i).filter(i => Q[i].front).sort((a, b) => P[a].x[0] - P[b].x[0]);
  let d = "";
  for (const i of front) {
    const px = x(Math.max(P[i].x[0], floor)), py = y(P[i].y[0]);
    d += d ? `H${px}V${py}` : `M${px},${box.b}V${py}`;
  }
  if (d) svg.append(el("path", { class: "front", d: d + `H${box.r}` }));

  const spots = [], dots = el("g");
  Q.forEach((q, i) => {
    const p = P[i], px = x(Math.max(p.x[0], floor)), py = y(p.y[0]), off = shown.has(i) ? "" : " off";
    const bars = el("g", { stroke: colour(i), "data-q": i, class: off.trim() || null });
    if (p.x[1] != null) bars.append(el("line", { x1: x(Math.max(p.x[0] - p.x[1], x.back(box.l))), x2: Math.min(box.r, x(p.x[0] + p.x[1])), y1: py, y2: py }));
    if (p.y[1] != null) bars.append(el("line", { x1: px, x2: px, y1: Math.min(box.b, y(p.y[0] - p.y[1])), y2: Math.max(box.t, y(p.y[0] + p.y[1])) }));
    const m = marker(i, px, py, 7);
    if (off) m.classList.add("off");
    dots.append(bars, m);
    spots.push({ i, px, py });
  });
  svg.append(dots);

  // A name takes the first free place around its dot; without one it is omitted, and only the tooltip shows it.
  const taken = spots.map(s => [s.px - 8, s.py - 8, s.px + 8, s.py + 8]);
  const clear = b => taken.every(t => b[2] < t[0] || b[0] > t[2] || b[3] < t[1] || b[1] > t[3]);
  const free = b => b[0] >= box.l - 2 && b[2] <= W && b[1] >= box.t - 14 && b[3] <= box.b && clear(b);
  const order = [...spots].sort((a, b) => (shown.has(b.i) - shown.has(a.i)) || (Q[b.i].front - Q[a.i].front));
  for (const s of order) {
    const name = Q[s.i].name, w = Math.min(name.length, 24) * 7 + 4;
    for (const [dx, dy, anchor] of [[9, -8, "start"], [9, 17, "start"], [-9, -8, "end"], [-9, 17, "end"], [0, -13, "middle"], [0, 22, "middle"], [12, 4, "start"], [-12, 4, "end"]]) {
      const left = s.px + dx - (anchor === "end" ? w : anchor === "middle" ? w / 2 : 0);
      const b = [left, s.py + dy - 11, left + w, s.py + dy + 4];
      if (!free(b)) continue;
      taken.push(b);
      const t = el("text", { x: s.px + dx, y: s.py + dy, "text-anchor": anchor, class: "label" + (shown.has(s.i) ? "" : " off"), "data-q": s.i }, name.length > 24 ? name.slice(0, 23) + "…" : name);
      t.style.fill = colour(s.i);
      svg.append(t);
      break;
    }
  }
  // Names have precedence: on a narrow screen they may need the corner, and the caption says the same.
  if (clear([box.l + 10, box.t + 3, box.l + 74, box.t + 20])) svg.append(el("text", { x: box.l + 10, y: box.t + 16, class: "title" }, "↖ better"));
  track(svg, e => {
    const [mx, my] = at(svg, e);
    const near = spots.map(s => [Math.hypot(s.px - mx, s.py - my), s.i]).sort((a, b) => a[0] - b[0])[0];
    near && near[0] < 48 ? card(e, near[1]) : hush();
  });
  svg.addEventListener("click", e => {
    const [mx, my] = at(svg, e);
    const near = spots.map(s => [Math.hypot(s.px - mx, s.py - my), s.i]).sort((a, b) => a[0] - b[0])[0];
    if (near && near[0] < 20) toggle(near[1]);
  });
};

// ---- distribution of the sojourn time
const cdf = () => {
  const [svg, W] = canvas("cdf", 350, "Cumulative distribution of the sojourn time"), H = 350;
  const box = { l: 40, r: W - 8, t: 30, b: H - 44 }, list = [...shown].filter(i => Q[i].cdf).sort((a, b) => a - b);
  const [, hi] = extent(list.flatMap(i => Q[i].cdf[0])), low = list.flatMap(i => Q[i].cdf[0].filter((v, k) => v > 0 && Q[i].cdf[1][k] >= .02));
  const x = log(Math.max(.01, Math.min(extent(low)[0], hi / 10) || .01), Math.max(hi, .1) * 1.15, box.l, box.r), y = linear(0, 100, box.b, box.t);
  frame(svg, box, x, y, "time in the queue, ms (log)", "share of packets, %");
  const hair = el("line", { class: "hair", x1: box.l, x2: box.r, visibility: "hidden" });
  svg.append(hair);
  for (const i of list) {
    const [ms, share] = Q[i].cdf, left = x.back(box.l);
    let d = `M${box.l},${y(100 * (share[ms.findLastIndex(v => v <= left)] ?? 0)).toFixed(1)}`;
    ms.forEach((v, k) => { if (v > left) d += `H${x(v).toFixed(1)}V${y(share[k] * 100).toFixed(1)}`; });
    svg.append(el("path", { class: "mark", d: d + `H${box.r}`, stroke: colour(i), "stroke-dasharray": dash(i), "data-q": i }));
  }
  track(svg, e => {
    const share = Math.min(99.9, Math.max(1, y.back(at(svg, e)[1]))) / 100;
    hair.setAttribute("y1", y(share * 100)); hair.setAttribute("y2", y(share * 100)); hair.setAttribute("visibility", "visible");
    const found = list.map(i => [i, quantile(Q[i].cdf, share)]).sort((a, b) => a[1] - b[1]);
    say(e, html("b", {}, `${(share * 100).toFixed(1)} % waited at most`), rows(found.map(([i, v]) => [Q[i].name, num(v, v < 10 ? 2 : 1) + " ms", i])));
  });
  svg.addEventListener("pointerleave", () => hair.setAttribute("visibility", "hidden"));
};
const quantile = ([ms, share], s) => ms[Math.max(0, share.findIndex(v => v >= s))];

// Places of a key's entries, in as many lines as they need.
const wrapped = (kinds, width) => {
  let left = 0, line = 0;
  return kinds.map((kind, k) => {
    const wide = 26 + kind.length * 6.9;
    if (left && left + wide > width) { left = 0; line++; }
    const at = left;
    left += wide;
    return { kind, k, left: at, line };
  });
};

// ---- goodput of each flow
const flows = () => {
  const list = Q.map((q, i) => i).filter(i => Q[i].flows.length), off = i => shown.has(i) ? "" : " off";
  const kinds = [...new Set(list.flatMap(i => Q[i].flows.map(f => f[0])))], spots = [], fair = list.some(i => Q[i].m.jain?.[0] != null);
  const key = kinds.length > 1 ? wrapped(kinds, $("flows").clientWidth) : [], top = 30 + 18 * Math.max(0, (key.at(-1)?.line ?? 0) + (fair && key.length ? 1 : 0));
  const step = Math.max(20, Math.min(34, 276 / list.length)), H = top + list.length * step + 44;
  const [svg, W] = canvas("flows", Math.max(H, 160), "Goodput of each flow");
  const gutter = Math.min(128, W * .32), box = { l: gutter, r: W - (fair ? 46 : 8), t: top, b: +svg.getAttribute("height") - 44 };
  const [, hi] = extent(list.flatMap(i => Q[i].flows.map(f => f[1])));
  const x = linear(0, Math.max(hi, 1e-6) * 1.06, box.l, box.r), y = v => box.t + (v + .5) * step;
  y.ticks = () => [];
  frame(svg, box, x, y, "goodput, Mbit/s", null);
  if (fair) svg.append(el("text", { x: W, y: top - 10, "text-anchor": "end" }, "Jain"));
  list.forEach((i, k) => {
    const q = Q[i], cy = y(k), jain = q.m.jain, fit = Math.floor(gutter / 7.2);
    svg.append(el("text", { x: 0, y: cy + 4, class: off(i), "data-q": i }, q.name.length > fit ? q.name.slice(0, fit - 1) + "…" : q.name),
      el("line", { class: "grid", x1: box.l, x2: box.r, y1: cy, y2: cy }));
    if (fair) svg.append(el("text", { x: W, y: cy + 4, "text-anchor": "end" }, num(jain && jain[0], 3)));
    const bulk = q.flows.filter(f => f[2]), equal = bulk.reduce((s, f) => s + f[1], 0) / bulk.length;
    if (bulk.length) svg.append(el("line", { class: "axis", x1: x(equal), x2: x(equal), y1: cy - 8, y2: cy + 8 }));
    q.flows.forEach((f, n) => {
      const kind = kinds.indexOf(f[0]), cx = x(f[1]);
      svg.append(el("path", { d: SHAPES[kind % SHAPES.length](5), transform: `translate(${cx},${cy})`, fill: colour(i), "fill-opacity": q.flows.length > 30 ? .35 : .75, class: off(i), "data-q": i }));
      spots.push({ i, cx, cy, text: `${f[0]}, flow ${n + 1}${f[3] == null ? "" : `, ${num(f[3], 1)} ms queued`}`, value: f[1] });
    });
  });
  for (const { kind, k, left, line } of key) {
    svg.append(el("path", { d: SHAPES[k % SHAPES.length](4.5), transform: `translate(${left + 5},${15 + 18 * line})`, fill: "var(--soft)" }),
      el("text", { class: "kind", x: left + 14, y: 19 + 18 * line }, kind));
  }
  track(svg, e => {
    const [mx, my] = at(svg, e), near = spots.map(s => [Math.hypot(s.cx - mx, (s.cy - my) * 1.5), s]).sort((a, b) => a[0] - b[0])[0];
    if (!near || near[0] > 40) return hush();
    const b = html("b", {}, Q[near[1].i].name);
    b.style.color = colour(near[1].i);
    say(e, b, rows([[near[1].text, num(near[1].value, 3) + " Mbit/s"]]));
    warm(near[1].i);
  });
};

// ---- time series
// What Flent measured: times and rates, null where a sample is missing.
const points = ([times, rates], x, y) => {
  let d = "", pen = false;
  times.forEach((t, k) => { d += rates[k] == null ? "" : `${pen ? "L" : "M"}${x(t).toFixed(1)},${y(rates[k]).toFixed(1)}`; pen = rates[k] != null; });
  return d;
};
const withSeries = Q.map((q, i) => i).filter(i => Q[i].series);
const moves = (i, key) => { const s = Q[i].series; return s && s[key] != null; };
const ride = () => {
  const list = [...shown].filter(i => Q[i].series).sort((a, b) => a - b), first = Q[withSeries[0]].series, bin = first.bin;
  const end = first.capacity.length * bin, from = zoom ? zoom[0] : 0, to = zoom ? zoom[1] : end;
  const knobs = [["limit", "limit, packets"], ["probability", "drop or mark probability, %"]].filter(([key]) => list.some(i => moves(i, key)));
  const learned = [["times", "policy outputs and round trip R, ms (log)", 170], ["idle", "idle share, %", 90], ["active", "active flows", 90]].filter(([key]) => list.some(i => moves(i, key)));
  const panels = [["throughput", "rate, Mbit/s", 170], ["backlog", `backlog, ms (${scale})`, 170], ...knobs.map(([k, t]) => [k, t, 120]), ...learned];
  const H = panels.reduce((s, p) => s + p[2] + 34, 0) + 44, [svg, W] = canvas("ride", H, "Time series of rate, backlog and knobs");
  const L = 50, R = W - (learned.length ? 40 : 8), x = linear(from, to, L, R);
  svg.append(el("defs", {}, el("clipPath", { id: "plot" }, el("rect", { x: L, y: -20, width: Math.max(R - L, 1), height: H }))));
  const k0 = Math.max(0, Math.floor(from / bin)), k1 = Math.min(first.capacity.length, Math.ceil(to / bin));
  let top = 30;
  panels.forEach(([key, title, h], n) => {
    const box = { l: L, r: R, t: top, b: top + h }, drawn = list.filter(i => moves(i, key));
    if (key === "times") {
      times(svg, box, x, drawn, bin, k0, k1, n === panels.length - 1 ? "time, s" : null, title);
      top += h + 34;
      return;
    }
    let [lo, hi] = extent(drawn.flatMap(i => Q[i].series[key].slice(k0, k1)));
    if (key === "throughput") hi = Math.max(hi, extent(first.capacity.slice(k0, k1))[1], D.measured ? extent(D.measured[1])[1] : 0);
    const y = key === "backlog" && scale === "log" ? log(Math.max(hi / 1e4, extent(drawn.flatMap(i => Q[i].series[key].filter(v => v > 0)))[0], 1e-3), Math.max(hi, .01) * 1.2, box.b, box.t) : linear(0, (hi > 0 ? hi : 1) * 1.06, box.b, box.t);
    frame(svg, box, x, y, n === panels.length - 1 ? "time, s" : null, title, { ny: Math.floor(h / 36) });
    const g = el("g", { "clip-path": "url(#plot)" });
    if (key === "throughput") {
      g.append(el("path", { class: "capacity", d: steps(first.capacity, bin, k0, k1, x, y) + `V${box.b}H${x(k0 * bin)}z` }));
      svg.append(el("text", { x: R, y: box.t - 10, "text-anchor": "end" }, D.measured ? "thick: measured; shaded: the link’s offer" : "shaded: what the link offered"));
    }
    for (const i of drawn) g.append(el("path", { class: "mark thin", d: line(Q[i].series[key], bin, k0, k1, x, y), stroke: colour(i), "stroke-dasharray": dash(i), "data-q": i }));
    if (key === "throughput" && D.measured) g.append(el("path", { class: "mark thin measured", d: points(D.measured, x, y) }));
    svg.append(g);
    top += h + 34;
  });
  if (D.warmup > from) svg.append(el("line", { class: "hair", x1: x(D.warmup), x2: x(D.warmup), y1: 30, y2: top - 34 }), el("text", { class: "over", x: x(D.warmup) + 4, y: 194 }, W > 600 ? "statistics from here" : ""));
  const hair = el("line", { class: "axis", y1: 30, y2: top - 34, visibility: "hidden" }), brush = el("rect", { class: "brush", y: 30, height: Math.max(top - 64, 0), visibility: "hidden" });
  svg.append(brush, hair);
  let start = null;
  track(svg, e => {
    const mx = Math.min(R, Math.max(L, at(svg, e)[0])), k = Math.min(first.capacity.length - 1, Math.floor(x.back(mx) / bin));
    hair.setAttribute("x1", mx); hair.setAttribute("x2", mx); hair.setAttribute("visibility", "visible");
    if (start != null) { brush.setAttribute("x", Math.min(start, mx)); brush.setAttribute("width", Math.abs(mx - start)); brush.setAttribute("visibility", "visible"); }
    const found = list.map(i => [i, Q[i].series.backlog[k], Q[i].series.throughput[k]]).sort((a, b) => a[1] - b[1]);
    say(e, html("b", {}, `${(k * bin).toFixed(bin < .1 ? 2 : 1)} s`), ` · link ${num(first.capacity[k], 2)} Mbit/s`, html("hr"),
      rows(found.map(([i, b, t]) => [Q[i].name, `${num(b, 1)} ms · ${num(t, 2)} Mbit/s` + (moves(i, "limit") ? ` · limit ${num(Q[i].series.limit[k], 0)}` : "") + (moves(i, "probability") ? ` · ${num(Q[i].series.probability[k], 2)} %` : "") + policy(Q[i].series, k), i])));
  });
  svg.addEventListener("pointerleave", () => { hair.setAttribute("visibility", "hidden"); start = null; brush.setAttribute("visibility", "hidden"); });
  svg.addEventListener("pointerdown", e => { if (e.pointerType === "mouse") start = Math.min(R, Math.max(L, at(svg, e)[0])); });
  svg.addEventListener("pointerup", e => {
    if (start == null) return;
    const a = x.back(start), b = x.back(Math.min(R, Math.max(L, at(svg, e)[0])));
    start = null;
    if (Math.abs(b - a) > 4 * bin) { zoom = [Math.min(a, b), Math.max(a, b)]; hush(); ride(); } else brush.setAttribute("visibility", "hidden");
  });
  svg.addEventListener("dblclick", () => { zoom = null; ride(); });
};
// The times of a policy on one scale; each curve's name is beside its end, and names that would touch are moved down.
const times = (svg, box, x, drawn, bin, k0, k1, xTitle, title) => {
  const curves = drawn.flatMap(i => Object.entries(Q[i].series.times).map(([name, values], n) => ({ i, name, values, ink: `color-mix(in oklab, ${colour(i)}, var(--ink) ${18 * n}%)` })));
  const seen = curves.flatMap(c => c.values.slice(k0, k1)).filter(v => v > 0), [lo, hi] = seen.length ? extent(seen) : [1, 10];
  const y = log(lo / 1.3, hi * 1.3, box.b, box.t);
  frame(svg, box, x, y, xTitle, title);
  const g = el("g", { "clip-path": "url(#plot)" }), names = [];
  for (const c of curves) {
    g.append(el("path", { class: "mark thin", d: line(c.values, bin, k0, k1, x, y), style: `stroke: ${c.ink}`, "stroke-dasharray": dash(c.i), "data-q": c.i }));
    const last = c.values.slice(k0, k1).findLast(v => v != null);
    if (last != null) names.push({ ...c, at: y(last) + 4 });
  }
  svg.append(g);
  let free = box.t;
  for (const c of names.sort((a, b) => a.at - b.at)) {
    free = Math.max(free + 12, c.at);
    const t = el("text", { class: "over", x: box.r + 6, y: free, "data-q": c.i }, c.name);
    t.style.fill = c.ink;
    svg.append(t);
  }
};
const policy = (s, k) => s.times && s.times.T[k] != null
  ? ` · ${Object.entries(s.times).map(([name, v]) => `${name} ${v[k] == null ? "none" : short(v[k])}`).join(", ")} ms · idle ${num(s.idle[k], 1)} % · ${s.active[k]} flows` + (s.trusted[k] ? "" : " · stand-in") : "";
const line = (values, bin, k0, k1, x, y) => {
  let d = "", pen = "M";
  for (let k = k0; k < k1; k++) {
    if (values[k] == null) { pen = "M"; continue; }
    d += pen + x((k + .5) * bin).toFixed(1) + "," + y(values[k]).toFixed(1);
    pen = "L";
  }
  return d;
};
const steps = (values, bin, k0, k1, x, y) => {
  let d = "";
  for (let k = k0; k < k1; k++) d += (d ? "V" : `M${x(k * bin).toFixed(1)},`) + y(values[k]).toFixed(1) + "H" + x((k + 1) * bin).toFixed(1);
  return d;
};

// Every queue by itself, on common scales.
const small = () => {
  const rate = extent(withSeries.flatMap(i => Q[i].series.throughput.concat(Q[i].series.capacity)))[1] * 1.03;
  const most = Math.max(.01, extent(withSeries.flatMap(i => Q[i].series.backlog))[1]);
  $("small").replaceChildren(...withSeries.map(i => {
    const q = Q[i], s = q.series, n = s.capacity.length, W = 200, H = 104;
    const b = html("button", { type: "button", "aria-pressed": shown.has(i), title: "show or hide in the charts above" });
    b.style.color = colour(i);
    b.append(html("b", {}, q.name), html("i", {}, `${short(q.m.goodput_mbps[0])} Mbit/s · ${short(q.m["sojourn_ms.p95"][0])} ms`));
    const svg = el("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", height: H, role: "img", "aria-label": `${q.name}: rate above, backlog below` });
    const x = linear(0, n * s.bin, 0, W), y = linear(0, rate, 58, 2), z = log(most / 3e3, most, H, 64);
    svg.append(el("path", { class: "capacity", d: steps(s.capacity, s.bin, 0, n, x, y) + "V58H0z" }),
      el("path", { fill: colour(i), "fill-opacity": .55, d: steps(s.throughput, s.bin, 0, n, x, y) + "V58H0z" }),
      el("line", { class: "axis", x1: 0, x2: W, y1: 58, y2: 58, "vector-effect": "non-scaling-stroke" }),
      el("path", { fill: colour(i), "fill-opacity": .8, d: steps(s.backlog, s.bin, 0, n, x, z) + `V${H}H0z` }));
    b.append(svg);
    b.addEventListener("click", () => toggle(i));
    return b;
  }));
};

// ---- legend, and drawing again after a change
const legend = () => {
  const set = (text, chosen) => {
    const b = html("button", { type: "button", class: "all" }, text);
    b.addEventListener("click", () => { shown.clear(); chosen.forEach(i => shown.add(i)); draw(); });
    return b;
  };
  $("legend").replaceChildren(...Q.map((q, i) => {
    const b = html("button", { type: "button", "aria-pressed": shown.has(i), title: q.name });
    b.append(el("svg", { viewBox: "0 0 22 12" }, el("line", { x1: 0, x2: 22, y1: 6, y2: 6, stroke: colour(i), "stroke-width": 2, "stroke-dasharray": dash(i) }), marker(i, 11, 6, 4.5)), html("span", {}, q.name));
    b.addEventListener("click", () => toggle(i));
    b.addEventListener("pointerenter", () => warm(i));
    b.addEventListener("pointerleave", () => warm(null));
    return b;
  }), set("all", Q.map((q, i) => i)), set("front", Q.map((q, i) => i).filter(i => Q[i].front)), set("none", []));
};
const toggle = i => { shown.has(i) ? shown.delete(i) : shown.add(i); draw(); };
const draw = () => {
  const at = $("legend").scrollLeft;
  legend();
  $("legend").scrollLeft = at;
  if (Q.length > 1) scatter();
  cdf();
  if (withFlows) flows();
  if (withSeries.length) { ride(); small(); }
  for (const b of document.querySelectorAll("[data-scale]")) b.setAttribute("aria-pressed", b.dataset.scale === scale);
};

// ---- the page around the charts
const withFlows = Q.some(q => q.flows.length);
$("scatter").closest("section").hidden = Q.length < 2;
$("ride-section").hidden = !withSeries.length;
$("flows-section").hidden = !withFlows;
$("cdf").closest("section").classList.toggle("half", withFlows);
for (const b of document.querySelectorAll("[data-scale]")) b.onclick = () => { scale = b.dataset.scale; draw(); };
const toml = $("toml"), parts = toml.textContent.split("\n").map(row => {
  const span = (c, t) => html("span", { class: c }, t);
  if (/^\s*\[/.test(row)) return [span("h", row)];
  if (/^\s*#/.test(row)) return [span("r", row)];
  const m = /^(\s*[\w.]+)(\s*=\s*)(.*)$/.exec(row);
  return m ? [span("k", m[1]), m[2], span("s", m[3])] : [row];
});
toml.replaceChildren(...parts.flatMap((p, i) => i ? ["\n", ...p] : p));

let width = 0;
report.resizing?.disconnect();
report.resizing = new ResizeObserver(() => { if (innerWidth !== width) { width = innerWidth; draw(); } });
report.resizing.observe(document.body);
draw();
document.documentElement.dataset.ready = "1";
return shown;
};
