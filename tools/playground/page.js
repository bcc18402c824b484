// The playground: controls, a worker that simulates, and the report's charts of the results.
(async () => {
const { measures, worker, module, bins, tie } = JSON.parse($("data").textContent);
const two = v => String(+v.toPrecision(2));
const on = (id, what) => $(id).addEventListener("input", what);

// ---- the scenario and queues that the controls describe
const line = () => {
  const mbps = 10 ** ($("rate").value / 20), ms = 10 ** ($("rtt").value / 20);
  const count = Math.round(2 ** ($("count").value / 6));
  return {
    rate: mbps < 1 ? two(mbps * 1000) + "kbit" : two(mbps) + "mbit", rtt: two(ms) + "ms", flow: [`${$("cc").value}:${count}`],
    ecn: $("ecn").checked, duration: $("duration").value + "s", seed: $("seed").value || "0", bins,
  };
};
const chosen = () => [...document.querySelectorAll("[name=aqm]:checked")].map(box => box.value);
const quoted = word => /[^\w.:=-]/.test(word) ? `'${word.replaceAll("'", "'\\''")}'` : word;
// In the address, so that a link leads to the same line and queues.
const KEPT = ["rate", "rtt", "count", "duration", "cc", "seed"];
const keep = () => {
  const state = new URLSearchParams(KEPT.map(id => [id, $(id).value]));
  if ($("ecn").checked) state.set("ecn", "");
  for (const words of chosen()) state.append("aqm", words);
  try { history.replaceState(null, "", "#" + state); } catch { /* a page that may not change its address */ }
};
const own = words => {
  const box = html("input", { type: "checkbox", name: "aqm", value: words });
  box.checked = true;
  $("words").closest("label").before(html("label", { "data-own": "" }, box, words));
};
const restore = () => {
  const state = new URLSearchParams(location.hash.slice(1));
  if (!state.size) return;
  for (const id of KEPT) if (state.has(id) && (id !== "cc" || [...$("cc").options].some(o => o.value === state.get(id)))) $(id).value = state.get(id);
  $("ecn").checked = state.has("ecn");
  document.querySelectorAll("[data-own]").forEach(label => label.remove());
  const boxes = [...document.querySelectorAll("[name=aqm]")], wanted = new Set(state.getAll("aqm"));
  for (const box of boxes) box.checked = wanted.delete(box.value);
  wanted.forEach(own);
};
const command = (l, queues) => `quell compare --rate ${l.rate} --rtt ${l.rtt} --flow ${l.flow[0]}${l.ecn ? " --ecn" : ""} --duration ${l.duration}`
  + ` --seed ${l.seed} --seeds 1 ${queues.map(q => "--aqm " + quoted(q)).join(" ")}`;

// ---- from a record to the report's charts, as in quell.report
const read = (record, m) => {
  const value = m.key.split(".").reduce((v, part) => v?.[part], record);
  return value == null ? null : [value * m.scale, null];
};
const moving = values => values.some(v => v !== values[0]) ? values : null;
const queue = r => ({
  name: r.queue, front: false,
  m: Object.fromEntries(measures.map(m => [m.key, read(r, m)])),
  cdf: r.sojourn_cdf.length ? [r.sojourn_cdf.map(p => p[0]), r.sojourn_cdf.map(p => p[1])] : null,
  flows: r.flows.map(f => [`${f.cc} ${+f.base_rtt_ms.toPrecision(6)} ms`, f.goodput_mbps, 1, f.rtt_ms ? f.rtt_ms.mean - f.base_rtt_ms : null]),
  series: {
    bin: r.series.bin_s, capacity: r.series.capacity_mbps, throughput: r.series.throughput_mbps, backlog: r.series.backlog_ms,
    limit: moving(r.series.limit_packets), probability: r.series.probability.some(v => v) ? r.series.probability.map(v => v * 100) : null,
  },
});
const fronted = queues => {
  const differ = (a, b) => Math.abs(a - b) >= tie * Math.max(Math.abs(a), Math.abs(b)) && a !== b;
  const beats = (q, p) => {
    let better = false, worse = false;
    for (const [sign, key] of [[1, "goodput_mbps"], [-1, "sojourn_ms.p95"]]) {
      const [a, b] = [q.m[key][0], p.m[key][0]];
      if (differ(a, b)) sign * (a - b) > 0 ? better = true : worse = true;
    }
    return better && !worse;
  };
  for (const p of queues) p.front = !queues.some(q => beats(q, p));
  return queues;
};

// ---- the page around the charts
const table = queues => {
  const digits = m => m.digits + (m.unit === "ms" && queues.some(q => q.m[m.key]?.[0] < 1) ? 1 : 0);
  const text = (q, m) => q.m[m.key] ? q.m[m.key][0].toFixed(digits(m)) : "–";
  const best = m => {
    const seen = new Set(queues.filter(q => q.m[m.key]).map(q => +text(q, m)));
    return m.better && seen.size > 1 ? (m.better > 0 ? Math.max : Math.min)(...seen) : null;
  };
  const tops = measures.map(best);
  const rows = queues.map(q => {
    const name = html("td", {}, q.name), row = html("tr", {}, name);
    if (q.front) name.append(html("span", { class: "d", title: "on the front" }, "◆"));
    measures.forEach((m, k) => {
      const said = text(q, m), top = q.m[m.key] && +said === tops[k];
      row.append(html("td", { "data-v": q.m[m.key]?.[0] ?? "", class: m.wide ? "wide" : null }, top ? html("span", { class: "best" }, said) : said));
    });
    return row;
  });
  $("figures").tBodies[0].replaceChildren(...rows);
};
const finding = queues => {
  const wait = q => `${short(q.m["sojourn_ms.p95"][0])} ms`, carries = q => `${short(q.m.goodput_mbps[0])} Mbit/s`;
  const least = (list, key) => list.reduce((a, b) => b.m[key][0] < a.m[key][0] ? b : a);
  const quick = least(queues, "sojourn_ms.p95"), most = Math.max(...queues.map(q => q.m.goodput_mbps[0]));
  const full = least(queues.filter(q => q.m.goodput_mbps[0] >= (1 - tie) * most), "sojourn_ms.p95");
  const said = [html("b", {}, quick.name), ` keeps the queue shortest: 95 % of packets are through within ${wait(quick)}, at ${carries(quick)} of goodput.`];
  const much = short(full.m.goodput_mbps[0]) === short(most) ? "carries the most" : "carries within 1 % of the most";
  if (full === quick) said.push(` It ${much} as well.`);
  else said.push(" ", html("b", {}, full.name), ` ${much}, ${carries(full)}, at ${wait(full)}.`);
  $("finding").replaceChildren(...said);
};
const wrong = what => { $("wrong").hidden = !what; $("wrong").textContent = what; };

// ---- the worker; if its result is no longer wanted, a new one replaces it
const packed = Uint8Array.from(atob(module), c => c.charCodeAt(0));
const bytes = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
const compiled = await WebAssembly.compile(bytes), source = URL.createObjectURL(new Blob([worker], { type: "text/javascript" }));
let simulator = null, turn = 0, hidden = new Set(), seen = { queues: [], shown: new Set() };
const started = take => {
  const one = new Worker(source);
  one.postMessage({ module: compiled });
  one.onmessage = take;
  one.onerror = e => { wrong(`the simulator stopped: ${e.message}`); simulator = null; };
  return one;
};
const go = (error = "") => {
  const asked = line(), queues = chosen(), records = [], mine = ++turn;
  let packets = 0, ms = 0;
  $("rate-text").textContent = asked.rate; $("rtt-text").textContent = asked.rtt;
  $("flows-text").textContent = asked.flow[0].split(":")[1]; $("duration-text").textContent = asked.duration;
  $("command").textContent = command(asked, queues);
  delete document.documentElement.dataset.done;
  wrong(error || (queues.length ? "" : "Choose a queue."));
  keep();
  $("speed").textContent = queues.length ? "simulating…" : "";
  seen.queues.forEach((q, i) => seen.shown.has(i) ? hidden.delete(q.name) : hidden.add(q.name));
  if (simulator?.busy) { simulator.terminate(); simulator = null; }
  const take = ({ data }) => {
    if (data.turn !== mine) return;
    if (data.answer.error) {
      const box = document.querySelector(`[data-own] [value="${CSS.escape(queues[records.length])}"]`);
      if (box) {
        // Words that are not a queue are put back into their field, and the other queues run.
        box.closest("label").remove();
        $("words").value = box.value;
        go(data.answer.error);
        return;
      }
      simulator.busy = false;
      wrong(data.answer.error);
      $("speed").textContent = "";
      document.documentElement.dataset.done = mine;
      return;
    }
    const { run, scenario } = data.answer.record;
    records.push(run);
    packets += run.packets;
    ms += data.ms;
    const drawn = fronted(records.map(queue)), shown = drawn.map((q, i) => i).filter(i => !hidden.has(drawn[i].name));
    $("toml").textContent = scenario;
    seen = { queues: drawn, shown: report({ queues: drawn, shown, warmup: records[0].series.bin_s * bins - records[0].measured_s }) };
    table(drawn);
    finding(drawn);
    const speed = packets / ms / 1000;
    $("made").textContent = `${packets.toLocaleString("en")} simulated packets`;
    if (records.length < queues.length) return;
    simulator.busy = false;
    $("speed").textContent = `${packets.toLocaleString("en")} packets in ${(ms / 1000).toFixed(2)} s: ${speed.toFixed(2)} million packets a second, in this browser.`;
    Object.assign(document.documentElement.dataset, { speed, done: mine });
    window.quell = { records };
  };
  if (!queues.length) return;
  simulator ??= started(take);
  simulator.onmessage = take;
  simulator.busy = true;
  for (const aqm of queues) simulator.postMessage({ turn: mine, request: { ...asked, aqm } });
};

let soon;
const later = () => { clearTimeout(soon); soon = setTimeout(go, 60); };
for (const id of ["line", "queues"]) on(id, e => { if (e.target.id !== "words") later(); });
$("line").addEventListener("submit", e => e.preventDefault());
$("queues").addEventListener("submit", e => {
  e.preventDefault();
  const words = $("words").value.trim();
  if (!words) return;
  own(words);
  $("words").value = "";
  go();
});
on("words", () => { if (chosen().length) wrong(""); });
$("link").addEventListener("click", async () => {
  if (!navigator.clipboard) return prompt("The address:", location.href);
  await navigator.clipboard.writeText(location.href);
  $("link").textContent = "copied";
  setTimeout(() => { $("link").textContent = "copy link"; }, 1500);
});
addEventListener("hashchange", () => { restore(); go(); });
restore();
go();
})();
