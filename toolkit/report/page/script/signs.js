/* Small drawings. Each has a word or a shape of its own beside its colour. */

const OCTAGON = 'M4.4 .8h5.2l3.6 3.6v5.2l-3.6 3.6H4.4L.8 9.6V4.4z';
const boxSign = () => rect(0.8, 0.8, 12.4, 12.4, 'f-bad', {rx: 2.5});
const SIGNS = {
  passed: () => [circle(7, 7, 6.2, 'f-ok'), stroke('M4.2 7.2l2 2 3.6-4', 's-card')],
  failed: () => [boxSign(), stroke('M4.6 4.6l4.8 4.8M9.4 4.6l-4.8 4.8', 's-card')],
  error: () => [stroke(OCTAGON, 'f-bad'), stroke('M4.4 7h5.2', 's-card')],
  anomaly: () => [boxSign(), stroke('M7 3.2v4.6M7 10.2v.7', 's-card')],
  look: () => [stroke('M7 1l6 11.5H1z', 'f-warn'), stroke('M7 5v3.4M7 10.3v.5', 's-card')],
  inconclusive: () => [circle(7, 7, 5.6, 'f-und'), stroke('M4.4 7h5.2', 's-soft')],
};
const sign = (verdict, size = 13) =>
  svg(14, 14, {width: size, height: size}, (SIGNS[verdict] || SIGNS.inconclusive)());
const word = (verdict, text = verdict) => h('span', {class: 'word v-' + verdict}, sign(verdict), text);

/* One call: a diamond cannot be undone, a square writes, a circle reads. */
function glyph(effect, code, bad, x = 0) {
  const shapes = {
    destructive: () => stroke(`M${x + 6} 1.5l4.5 4.5-4.5 4.5L${x + 1.5} 6z`, 'f-dest'),
    write: () => rect(x + 2.4, 2.4, 7.2, 7.2, 'f-write'),
  };
  const read = () => circle(x + 6, 6, 3, code === 'x' ? 's-und' : 's-read');
  return [
    (shapes[effect] || read)(),
    code === 'f' ? rect(x + 1, 13, 10, 2, 'f-warn') : null,
    bad ? rect(x + 0.4, 0.4, 11.2, 11.2, 's-bad', {rx: 2}) : null,
  ];
}
const icon = (effect) => svg(12, 12, {}, glyph(effect));
const glyphKey = () => [
  ['read', 'write', 'destructive'].map((effect) => h('span', icon(effect), effect)),
  D.faults ? h('span', svg(12, 16, {}, glyph('read', 'f')), 'planned fault') : null,
  h('span', svg(12, 12, {}, glyph('', '', true).slice(2)), 'critical finding'),
];

/* All calls of an episode in a row. */
const MOST_GLYPHS = 24;
const CODE_NOTES = {f: ' (fault)', x: ' (abstained)'};
function path(episode) {
  const all = calls(episode),
    count = Math.min(all.length, MOST_GLYPHS);
  const notes = (call) => (call.bad ? ' (critical)' : '') + (CODE_NOTES[call.code] || '');
  const spoken = all.map((call) => call.tool.name + notes(call));
  return picture(
    count * 14 + (all.length > count ? 12 : 0),
    16,
    spoken.join(', ') || 'no call',
    {class: 'path'},
    all.slice(0, count).map((call, place) => glyph(call.tool.effect, call.code, call.bad, place * 14)),
    all.length > count ? caption(count * 14, 9, null, '\u2026') : null,
  );
}

/* Where answers came from, as one bar; the stronger against the page, the better grounded. */
function stack(counts, width = 220, height = 10) {
  const codes = Object.keys(SOURCES).filter((code) => counts[code]);
  const sum = codes.reduce((total, code) => total + counts[code], 0) || 1;
  const label = codes.map((code) => `${CODES[code]} ${whole.format(counts[code])}`).join(', ') || 'none';
  let x = 0;
  const parts = codes.map((code) => {
    const left = x,
      inset = code === 'x' ? 0.5 : 0;
    x += (counts[code] / sum) * width;
    return rect(left + inset, inset, Math.max(1.5, x - left - 1), height - 2 * inset, 'f-' + code);
  });
  return picture(width, height, label, {preserveAspectRatio: 'none'}, parts);
}
function bars(values, width, height, gap = 1) {
  const most = Math.max(1, ...values),
    each = width / values.length;
  return values.map((value, place) => {
    const tall = (value / most) * height,
      drawn = value ? Math.max(1, tall) : 0;
    return rect(place * each, height - tall, Math.max(0.5, each - gap), drawn, 'f-soft');
  });
}
const swatch = (code) => svg(11, 11, {}, rect(0.5, 0.5, 10, 10, 'f-' + code));

/* How many of a kind, behind its sign. */
const counted = (name, count, text) =>
  h('span', name ? sign(name) : null, h('span', h('b', whole.format(count)), ' ' + text));
/* The least confidence of some answers, marked where it is little. */
const least = (confidence) =>
  h('td', {class: 'num' + (confidence < 0.5 ? ' w-watch' : '')}, confidence?.toFixed(2));
/* What a finding is of, and how grave. */
const findingSign = (finding) => sign(finding.critical ? 'anomaly' : 'look');
const findingKinds = (tag, findings = []) =>
  findings.map((finding) => h(tag + (finding.critical ? '.flag' : '.err'), words(finding.kind)));

/* A command to paste. */
function command(text) {
  const shown = h('code', text);
  const copy = async (event) => {
    try {
      await navigator.clipboard.writeText(text);
      event.target.textContent = 'copied';
    } catch {
      const range = document.createRange();
      range.selectNodeContents(shown);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      event.target.textContent = 'selected';
    }
  };
  return h('span.cmd', shown, button('btn.small', copy, 'copy'));
}
