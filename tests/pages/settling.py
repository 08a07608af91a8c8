"""Tells when a page has nothing left to do, so that a look at it waits for that and not for milliseconds.

Counted is what the report's script does later: frames it asked for, pauses without length, packed text that
it unpacks, an address that it has not heard of yet. Quiet is a page that has none of them for two frames.
"""

COUNT = """(() => {
  let pending = 0;
  const frame = window.requestAnimationFrame.bind(window);
  const cancel = window.cancelAnimationFrame.bind(window);
  const later = window.setTimeout.bind(window);
  const asked = new Set();
  window.requestAnimationFrame = (then) => {
    const id = frame((time) => { asked.delete(id); then(time); });
    asked.add(id);
    return id;
  };
  window.cancelAnimationFrame = (id) => { asked.delete(id); cancel(id); };
  window.setTimeout = (then, after, ...given) => {
    if (after) return later(then, after, ...given);
    pending += 1;
    return later((...told) => { try { then(...told); } finally { pending -= 1; } }, 0, ...given);
  };
  const text = Response.prototype.text;
  Response.prototype.text = async function () {
    pending += 1;
    try { return await text.call(this); } finally { pending -= 1; }
  };
  let heard = location.href;
  addEventListener('hashchange', () => { heard = location.href; });
  const replace = history.replaceState.bind(history);
  history.replaceState = (...given) => { replace(...given); heard = location.href; };
  const turn = () => new Promise((done) => frame(() => later(done)));
  window.settled = async () => {
    for (let quiet = 0; quiet < 2; ) {
      await turn();
      quiet = pending || asked.size || location.href !== heard ? 0 : quiet + 1;
    }
  };
  window.visit = async (hash) => {
    location.hash = hash;
    await settled();
  };
})()"""
