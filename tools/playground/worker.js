// Runs the page's requests one after another.
let quell;
const text = { to: new TextEncoder(), from: new TextDecoder() };
onmessage = ({ data }) => {
  if (data.module) {
    quell = new WebAssembly.Instance(data.module).exports;
    return;
  }
  const bytes = text.to.encode(JSON.stringify(data.request)), at = quell.request(bytes.length);
  new Uint8Array(quell.memory.buffer, at, bytes.length).set(bytes);
  const start = performance.now(), length = quell.run(), ms = performance.now() - start;
  const answer = JSON.parse(text.from.decode(new Uint8Array(quell.memory.buffer, quell.answer(), length)));
  postMessage({ turn: data.turn, ms, answer });
};
