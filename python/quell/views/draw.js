"use strict";
// Shared by all pages: charts in plain SVG, without a library.
const $ = id => document.getElementById(id);
const NS = "http://www.w3.org/2000/svg";
const el = (tag, attrs = {}, ...kids) => {
  const e = document.createElementNS(NS, tag);
  for (const k in attrs) if (attrs[k] != null) e.setAttribute(k, attrs[k]);
  e.append(...kids);
  return e;
};
const html = (tag, attrs = {}, ...kids) => {
  const e = document.createElement(tag);
  for (const k in attrs) if (attrs[k] != null) e.setAttribute(k, attrs[k]);
  e.append(...kids);
  return e;
};
const num = (v, d) => v == null ? "–" : v.toFixed(d);
const short = v => {
  const a = Math.abs(v);
  if (a >= 1e6) return +(v / 1e6).toPrecision(3) + " M";
  if (a >= 1e4) return +(v / 1e3).toPrecision(3) + " k";
  return String(+v.toPrecision(3));
};
const extent = values => {
  let lo = Infinity, hi = -Infinity;
  for (const v of values) if (v != null) { if (v < lo) lo = v; if (v > hi) hi = v; }
  return [lo, hi];
};

// Markers of several shapes, so that colour is never the only sign.
const SHAPES = [
  r => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`,
  r => `M${-r * .88},${-r * .88}h${1.76 * r}v${1.76 * r}h${-1.76 * r}z`,
  r => `M0,${-1.15 * r}L${1.1 * r},${.8 * r}H${-1.1 * r}z`,
  r => `M0,${-1.25 * r}L${1.25 * r},0L0,${1.25 * r}L${-1.25 * r},0z`,
  r => `M0,${1.15 * r}L${1.1 * r},${-.8 * r}H${-1.1 * r}z`,
  r => `M${-.4 * r},${-1.2 * r}h${.8 * r}v${.8 * r}h${.8 * r}v${.8 * r}h${-.8 * r}v${.8 * r}h${-.8 * r}v${-.8 * r}h${-.8 * r}v${-.8 * r}h${.8 * r}z`,
  r => `M0,0L${-r},${-r}H${r}L${-r},${r}H${r}z`,
  r => `M${-1.25 * r},${-.5 * r}h${2.5 * r}v${r}h${-2.5 * r}z`,
];

// ---- scales
const linear = (lo, hi, a, b) => {
  const f = v => a + (v - lo) / ((hi - lo) || 1) * (b - a);
  f.back = p => lo + (p - a) / (b - a) * (hi - lo);
  f.ticks = n => {
    const raw = (hi - lo) / Math.max(n, 1) || 1, p = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find(m => m * p >= raw * .999) * p, out = [];
    for (let t = Math.ceil(lo / step - 1e-9) * step; t <= hi + step * 1e-9; t += step) out.push(+t.toPrecision(12));
    f.text = t => t.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
    return out;
  };
  return f;
};
const log = (lo, hi, a, b) => {
  const l = Math.log10(lo), h = Math.log10(hi), f = v => a + (Math.log10(Math.max(v, lo)) - l) / ((h - l) || 1) * (b - a);
  f.back = p => 10 ** (l + (p - a) / (b - a) * (h - l));
  // At least two ticks at any width. If there are fewer powers of ten and their parts, round numbers as on a linear axis.
  f.ticks = n => {
    for (const [parts, every] of [[[1, 2, 5], 1], [[1, 3], 1], [[1], 1], [[1], 2], [[1], 3], [[1], 5]]) {
      const out = [];
      for (let e = Math.floor(l / every) * every; e <= h; e += every) for (const m of parts) { const t = m * 10 ** e; if (t >= lo * .999 && t <= hi * 1.001) out.push(t); }
      if (out.length >= 2 && out.length <= n) return out;
    }
    const even = linear(lo, hi, a, b);
    for (let k = 2; k < 9; k++) if (even.ticks(k).length >= 2) return even.ticks(k);
    return lo < hi ? [lo, hi] : [];
  };
  return f;
};

// ---- a plot's frame: grid, numbers, titles
const frame = (svg, box, x, y, xTitle, yTitle, o = {}) => {
  const g = el("g");
  for (const t of y.ticks(o.ny || Math.max(2, Math.floor((box.b - box.t) / 46)))) {
    g.append(el("line", { class: "grid", x1: box.l, x2: box.r, y1: y(t), y2: y(t) }),
      el("text", { x: box.l - 7, y: y(t) + 4, "text-anchor": "end" }, (y.text || short)(t)));
  }
  for (const t of x.ticks(o.nx || Math.max(2, Math.floor((box.r - box.l) / 72)))) {
    g.append(el("line", { class: "grid", x1: x(t), x2: x(t), y1: box.t, y2: box.b }));
    if (xTitle != null) g.append(el("text", { x: x(t), y: box.b + 17, "text-anchor": "middle" }, (x.text || short)(t)));
  }
  g.append(el("line", { class: "axis", x1: box.l, x2: box.r, y1: box.b, y2: box.b }));
  if (xTitle) g.append(el("text", { class: "title", x: box.r, y: box.b + 35, "text-anchor": "end" }, xTitle));
  if (yTitle) g.append(el("text", { class: "title", x: o.titleX ?? 0, y: box.t - 10 }, yTitle));
  svg.append(g);
};
const canvas = (id, height, label) => {
  const figure = $(id), width = figure.clientWidth;
  const svg = el("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
  figure.replaceChildren(svg);
  return [svg, width];
};

// ---- tooltip and emphasis
const tip = $("tip");
const say = (event, ...kids) => {
  tip.replaceChildren(...kids);
  tip.hidden = false;
  const w = tip.offsetWidth, h = tip.offsetHeight;
  const x = event.clientX + 16 + w > innerWidth ? Math.max(4, event.clientX - w - 14) : event.clientX + 16;
  tip.style.left = x + "px";
  tip.style.top = Math.max(4, Math.min(innerHeight - h - 4, event.clientY - h / 2)) + "px";
};
const hush = () => { tip.hidden = true; warm(null); };
const warm = hot => {
  for (const e of document.querySelectorAll("svg [data-q]")) e.classList.toggle("dim", hot != null && +e.dataset.q !== hot);
};
// Pointer events that a mouse and a finger both send.
const track = (svg, move) => {
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerdown", move);
  svg.addEventListener("pointerleave", hush);
};
const at = (svg, event) => {
  const r = svg.getBoundingClientRect();
  return [event.clientX - r.left, event.clientY - r.top];
};

// ---- buttons that every page has
$("theme").addEventListener("click", () => {
  const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
for (const button of document.querySelectorAll(".command button")) {
  button.addEventListener("click", () => {
    const text = button.previousElementSibling;
    const done = () => { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 1500); };
    // A page opened from a file may have no clipboard: select the text instead.
    const select = () => getSelection().selectAllChildren(text);
    navigator.clipboard ? navigator.clipboard.writeText(text.textContent).then(done, select) : select();
  });
}
for (const th of document.querySelectorAll("table:not(.felt) th")) {
  const column = th.cellIndex, table = th.closest("table");
  th.tabIndex = 0;
  const sort = () => {
    const up = th.getAttribute("aria-sort") === (th.dataset.down ? "descending" : "ascending") ? -1 : 1, body = table.tBodies[0];
    const value = tr => { const c = tr.cells[column]; return c.dataset.v === undefined ? c.textContent : c.dataset.v === "" ? Infinity : +c.dataset.v; };
    const sign = th.dataset.down ? -up : up;
    [...body.rows].sort((a, b) => { const p = value(a), q = value(b); return sign * (p < q ? -1 : p > q ? 1 : 0); }).forEach(r => body.append(r));
    table.querySelectorAll("th[aria-sort]").forEach(t => t.removeAttribute("aria-sort"));
    th.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  };
  th.addEventListener("click", sort);
  th.addEventListener("keydown", e => { if (e.key === "Enter") sort(); });
}
