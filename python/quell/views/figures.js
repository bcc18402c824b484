// Figures of a page: measured curves are solid and filled, values printed in a paper dashed and hollow; a group has one colour.
(() => {
const D = JSON.parse(document.getElementById("data").textContent);
const colour = line => `var(--c${line.group % 8})`;
const dash = line => line.printed ? "5 4" : null;
const dots = line => line.kind === "dots" || line.kind === "both";
const dot = (line, x, y, r) => el("path", {
  d: SHAPES[line.group % 5](r), transform: `translate(${x.toFixed(1)},${y.toFixed(1)})`, "data-q": line.group,
  fill: line.printed ? "var(--paper)" : colour(line), stroke: line.printed ? colour(line) : "var(--paper)", "stroke-width": line.printed ? 1.8 : 1,
});
const path = (line, x, y) => {
  let d = "", pen = "M";
  for (const [px, py] of line.points) {
    if (py == null) { pen = "M"; continue; }
    const [a, b] = [x(px).toFixed(1), y(py).toFixed(1)];
    d += line.kind === "steps" && pen === "L" ? `H${a}V${b}` : `${pen}${a},${b}`;
    pen = "L";
  }
  return el("path", { class: "mark", d, stroke: colour(line), "stroke-dasharray": dash(line), "data-q": line.group });
};
// The axis for some values, with a margin; it begins at zero if that is near.
const axis = (title, log10, values, a, b) => {
  let [lo, hi] = extent(values);
  if (lo > hi) [lo, hi] = [0, 1];
  if (log10) {
    const least = extent(values.filter(v => v > 0))[0];
    return log(Math.min(least, hi / 2) / 1.25, hi * 1.3, a, b);
  }
  if (lo >= 0 && lo < .6 * hi) lo = 0;
  const pad = ((hi - lo) || Math.abs(hi) || 1) * .06;
  return linear(lo === 0 ? 0 : lo - pad, hi + pad, a, b);
};
const panel = (id, p) => {
  const height = 300, [svg, W] = canvas(id, height, p.title || p.y.title), box = { l: 50, r: W - 10, t: 30, b: height - 44 };
  const drawn = p.lines.filter(l => l.points.some(q => q[1] != null)), seen = drawn.flatMap(l => l.points.filter(q => q[1] != null));
  const x = axis(p.x.title, p.x.log, seen.map(q => q[0]), box.l, box.r), y = axis(p.y.title, p.y.log, seen.map(q => q[1]), box.b, box.t);
  frame(svg, box, x, y, p.x.title + (p.x.log ? " (log)" : ""), p.y.title + (p.y.log ? " (log)" : ""));
  const spots = [];
  for (const line of drawn) {
    if (line.kind !== "dots") svg.append(path(line, x, y));
  }
  for (const line of drawn) {
    for (const [px, py] of line.points) {
      if (py == null) continue;
      if (dots(line)) svg.append(dot(line, x(px), y(py), line.points.length > 60 ? 2.6 : 5));
      spots.push({ line, px, py, cx: x(px), cy: y(py) });
    }
  }
  track(svg, e => {
    const [mx, my] = at(svg, e);
    let near = null, least = 40;
    for (const s of spots) { const far = Math.hypot(s.cx - mx, s.cy - my); if (far < least) { least = far; near = s; } }
    if (!near) return hush();
    const b = html("b", {}, near.line.name), t = html("table");
    b.style.color = colour(near.line);
    for (const [name, value] of [[p.x.title, near.px], [p.y.title, near.py]]) t.append(html("tr", {}, html("td", {}, name), html("td", {}, String(+value.toPrecision(4)))));
    say(e, b, t);
    warm(near.line.group);
  });
};
const keys = (id, figure) => {
  const named = new Map();
  for (const p of figure.panels) for (const line of p.lines) if (!named.has(line.name)) named.set(line.name, line);
  $(id).replaceChildren(...[...named.values()].map(line => {
    const svg = el("svg", { viewBox: "0 0 26 12" });
    if (line.kind !== "dots") svg.append(el("line", { x1: 0, x2: 26, y1: 6, y2: 6, stroke: colour(line), "stroke-width": 2, "stroke-dasharray": dash(line) }));
    if (dots(line)) svg.append(dot(line, 13, 6, 4.5));
    return html("span", {}, svg, line.name);
  }));
};
const draw = () => D.figures.forEach((figure, f) => {
  keys(`keys-${f}`, figure);
  figure.panels.forEach((p, k) => panel(`panel-${f}-${k}`, p));
});
let width = 0;
new ResizeObserver(() => { if (innerWidth !== width) { width = innerWidth; draw(); } }).observe(document.body);
draw();
document.documentElement.dataset.ready = "1";
})();
