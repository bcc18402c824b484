// A click on a cell of the matrix opens its bars, measures and plots.
const data = JSON.parse($("data").textContent);
const dialog = $("details");
const REFERENCE = "var(--faint)", OWN = "var(--c0)";

const key = (colour, text) => {
  const mark = html("i");
  mark.style.background = colour;
  return html("span", { class: "key" }, mark, text);
};

const line = (xs, ys, x, y) => {
  let d = "", pen = false;
  ys.forEach((v, k) => {
    if (v == null) { pen = false; return; }
    d += `${pen ? "L" : "M"}${x(xs[k]).toFixed(1)},${y(v).toFixed(1)}`;
    pen = true;
  });
  return d;
};

const drawn = (figure, height, label) => {
  const width = figure.clientWidth;
  const svg = el("svg", { viewBox: `0 0 ${width} ${height}`, height, width, role: "img", "aria-label": label });
  figure.replaceChildren(svg);
  return [svg, { l: 46, r: width - 12, t: 24, b: height - 42 }];
};

// Delay or throughput over time; the reference is grey.
const timed = (figure, own, reference, what, unit) => {
  const [svg, box] = drawn(figure, 190, `${what} over time`);
  const series = [reference, own].filter(s => s && s[what]);
  const top = Math.max(1e-3, ...series.flatMap(s => s[what].filter(v => v != null)));
  const end = Math.max(...series.map(s => s.bin * s[what].length));
  const x = linear(0, end, box.l, box.r), y = linear(0, top, box.b, box.t);
  frame(svg, box, x, y, "time, s", unit, { ny: 3 });
  svg.append(el("rect", { x: x(0), y: box.t, width: Math.max(0, x(own.warm) - x(0)), height: box.b - box.t, fill: "var(--fill)", opacity: .45 }));
  for (const s of series) {
    const xs = s[what].map((_, k) => (k + .5) * s.bin);
    svg.append(el("path", { d: line(xs, s[what], x, y), class: "mark thin", stroke: s === own ? OWN : REFERENCE }));
  }
};

const distribution = (figure, own, reference) => {
  const [svg, box] = drawn(figure, 190, "distribution of the queueing delay");
  const sets = [reference, own].filter(s => s && s.cdf.length);
  if (!sets.length) return;
  const [lo, hi] = extent(sets.flatMap(s => s.cdf.map(p => p[0])));
  const x = log(Math.max(.1, lo), Math.max(1, hi), box.l, box.r), y = linear(0, 1, box.b, box.t);
  frame(svg, box, x, y, "queueing delay, ms (log)", "share of packets", { ny: 3 });
  for (const s of sets) svg.append(el("path", {
    d: line(s.cdf.map(p => p[0]), s.cdf.map(p => p[1]), x, y), class: "mark", stroke: s === own ? OWN : REFERENCE,
  }));
};

// One standard deviation around the mean of delay and goodput; better is up and to the left.
const ellipses = (figure, row, chosen) => {
  const [svg, box] = drawn(figure, 300, "delay and goodput ellipses");
  const list = row.cells.map((c, q) => [q, c.ellipse]).filter(([, e]) => e);
  const reach = e => Math.max(e.a, e.b);
  const xs = list.flatMap(([, e]) => [e.x - e.sx * reach(e), e.x + e.sx * reach(e)]), ys = list.flatMap(([, e]) => [e.y - e.sy * reach(e), e.y + e.sy * reach(e)]);
  const [y0, y1] = extent(ys), pad = (y1 - y0) * .06 || .1;
  const x = linear(0, Math.max(1, ...xs), box.l, box.r), y = linear(Math.max(0, y0 - pad), y1 + pad, box.b, box.t);
  frame(svg, box, x, y, "queueing delay, ms", "goodput, Mbit/s");
  const clip = el("clipPath", { id: "inside" }, el("rect", { x: box.l, y: box.t, width: box.r - box.l, height: box.b - box.t }));
  svg.append(clip);
  for (const [q, e] of [...list.filter(([q]) => q !== chosen), ...list.filter(([q]) => q === chosen)]) {
    const pts = [...Array(61).keys()].map(k => {
      const t = k / 60 * 2 * Math.PI, u = e.a * Math.cos(t), v = e.b * Math.sin(t);
      return [x(e.x + e.sx * (u * Math.cos(e.turn) - v * Math.sin(e.turn))), y(e.y + e.sy * (u * Math.sin(e.turn) + v * Math.cos(e.turn)))];
    });
    const own = q === chosen, colour = own ? OWN : "var(--soft)";
    svg.append(el("path", { d: "M" + pts.map(p => p.map(v => v.toFixed(1)).join()).join("L") + "z", fill: own ? OWN : "none", "fill-opacity": .13, stroke: colour, "stroke-width": own ? 2 : 1, "clip-path": "url(#inside)" }),
      el("circle", { cx: x(e.x), cy: y(e.y), r: own ? 4 : 2.5, fill: colour }));
  }
  // The chosen queue and the reference are always labelled, the others if there is room.
  const placed = [], first = ([q]) => q === chosen ? 0 : q === 0 ? 1 : 2;
  for (const [q, e] of [...list].sort((a, b) => first(a) - first(b))) {
    const name = data.queues[q], wide = name.length * 7.2;
    let cy = y(e.y);
    const right = x(e.x) > (box.l + box.r) / 2, left = x(e.x) + (right ? -7 - wide : 7);
    if (placed.some(p => left < p.left + p.wide && p.left < left + wide && Math.abs(p.cy - cy) < 14)) {
      if (first([q]) === 2) continue;
      cy = placed[0].cy + 15;
    }
    placed.push({ left, wide, cy });
    svg.append(el("text", { class: "over", x: x(e.x) + (right ? -7 : 7), y: cy + 4, "text-anchor": right ? "end" : "start", "font-weight": q === chosen ? 700 : 400 }, name));
  }
};

const flows = (figure, plot) => {
  const shown = plot.flows.slice(0, 14), height = 20 * shown.length + 18;
  const width = figure.clientWidth;
  const svg = el("svg", { viewBox: `0 0 ${width} ${height}`, height, width, role: "img", "aria-label": "goodput of each flow" });
  const left = 116, x = linear(0, Math.max(1e-6, ...shown.map(f => f[1])), left, width - 62);
  shown.forEach(([name, rate], k) => svg.append(
    el("text", { x: left - 8, y: 20 * k + 15, "text-anchor": "end" }, name),
    el("rect", { x: left, y: 20 * k + 4, width: Math.max(1, x(rate) - left), height: 13, rx: 2, fill: OWN, opacity: .8 }),
    el("text", { x: x(rate) + 6, y: 20 * k + 15 }, short(rate)),
  ));
  figure.replaceChildren(svg);
};

const open = (t, q) => {
  const row = data.rows[t], cell = row.cells[q], other = row.cells[0], body = $("details-body");
  $("details-title").textContent = `${row.section} ${row.name}: ${data.queues[q]}`;
  body.replaceChildren(html("p", {}, html("b", { class: `v ${cell.class}` }, cell.verdict), ` ${row.required} · ${row.about}`));
  if (cell.reason) body.append(html("p", {}, `Not run: ${cell.reason}.`));
  if (cell.bars.length) {
    body.append(html("h3", {}, "Bars"), html("ul", {}, ...cell.bars.map(([text, verdict, source]) =>
      html("li", {}, html("b", { class: `v ${verdict}` }, verdict), ` ${text}`, html("small", {}, source)))));
  }
  if (cell.measures.length) {
    const head = html("tr", {}, html("th", {}, "measure"), html("th", {}, data.queues[q]), ...(q ? [html("th", {}, data.queues[0])] : []));
    const rows = cell.measures.map(([title, own, reference]) => html("tr", {}, html("td", {}, title), html("td", {}, own), ...(q ? [html("td", {}, reference)] : [])));
    body.append(html("h3", {}, "Measures"), html("p", { class: "note" }, "Mean over seeds ± half the width of the 95 % confidence interval."), html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows)));
  }
  const jobs = [];
  const figure = (parent, draw) => { const f = html("figure"); parent.append(f); jobs.push(() => draw(f)); };
  if (cell.ellipse) {
    body.append(html("h3", {}, "Delay and goodput"), html("p", { class: "note" }, "Bins of all seeds: mean and one standard deviation (section 2.7). Better is up and to the left; a small ellipse is steady."));
    figure(body, f => ellipses(f, row, q));
  }
  for (const [name, plot] of Object.entries(cell.plots)) {
    const reference = q ? other.plots[name] : null;
    body.append(html("h3", {}, name ? `First seed, ${name}` : "First seed"), html("p", {}, key(OWN, data.queues[q]), ...(reference ? [key(REFERENCE, data.queues[0])] : [])));
    const pair = html("div", { class: "pair" });
    body.append(pair);
    figure(pair, f => timed(f, plot, reference, "delay", "queueing delay, ms"));
    figure(pair, f => timed(f, plot, reference, "throughput", "throughput, Mbit/s"));
    figure(pair, f => distribution(f, plot, reference));
    figure(pair, f => flows(f, plot));
  }
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  jobs.forEach(draw => draw());
  history.replaceState(null, "", `#${t}-${q}`);
};

// A matrix that is wider than the window scrolls by itself, below the names.
const matrix = document.querySelector(".wide-table");
const fit = () => matrix.classList.toggle("scrolls", matrix.firstElementChild.offsetWidth > matrix.clientWidth);
fit();
addEventListener("resize", fit);
for (const button of document.querySelectorAll("table.rfc button")) button.addEventListener("click", () => open(+button.dataset.t, +button.dataset.c));
$("close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
const linked = /^#(\d+)-(\d+)$/.exec(location.hash);
if (linked && data.rows[+linked[1]] && data.queues[+linked[2]] !== undefined) open(+linked[1], +linked[2]);
document.documentElement.dataset.ready = "1";
