/* Small drawings. Each has a word or a shape of its own beside its colour. */

function sign(verdict, size = 13) {
  const drawn =
    {
      passed: () => [
        s('circle', {cx: 7, cy: 7, r: 6.2, class: 'f-ok'}),
        s('path', {d: 'M4.2 7.2l2 2 3.6-4', class: 's-card'}),
      ],
      failed: () => [
        s('rect', {x: 0.8, y: 0.8, width: 12.4, height: 12.4, rx: 2.5, class: 'f-bad'}),
        s('path', {d: 'M4.6 4.6l4.8 4.8M9.4 4.6l-4.8 4.8', class: 's-card'}),
      ],
      error: () => [
        s('path', {d: 'M4.4 .8h5.2l3.6 3.6v5.2l-3.6 3.6H4.4L.8 9.6V4.4z', class: 'f-bad'}),
        s('path', {d: 'M4.4 7h5.2', class: 's-card'}),
      ],
      anomaly: () => [
        s('rect', {x: 0.8, y: 0.8, width: 12.4, height: 12.4, rx: 2.5, class: 'f-bad'}),
        s('path', {d: 'M7 3.2v4.6M7 10.2v.7', class: 's-card'}),
      ],
      look: () => [
        s('path', {d: 'M7 1l6 11.5H1z', class: 'f-warn'}),
        s('path', {d: 'M7 5v3.4M7 10.3v.5', class: 's-card'}),
      ],
    }[verdict] ||
    (() => [
      s('circle', {cx: 7, cy: 7, r: 5.6, class: 'f-und'}),
      s('path', {d: 'M4.4 7h5.2', class: 's-soft'}),
    ]);
  return svg(14, 14, {width: size, height: size}, drawn());
}
const word = (verdict) => h('span', {class: 'word v-' + verdict}, sign(verdict), verdict);

/* One call: a diamond cannot be undone, a square writes, a circle reads. */
function glyph(effect, code, bad, x = 0) {
  const shape =
    effect === 'destructive'
      ? s('path', {d: `M${x + 6} 1.5l4.5 4.5-4.5 4.5L${x + 1.5} 6z`, class: 'f-dest'})
      : effect === 'write'
        ? s('rect', {x: x + 2.4, y: 2.4, width: 7.2, height: 7.2, class: 'f-write'})
        : s('circle', {cx: x + 6, cy: 6, r: 3, class: code === 'x' ? 's-und' : 's-read'});
  return [
    shape,
    code === 'f' ? s('rect', {x: x + 1, y: 13, width: 10, height: 2, class: 'f-warn'}) : null,
    bad ? s('rect', {x: x + 0.4, y: 0.4, width: 11.2, height: 11.2, rx: 2, class: 's-bad'}) : null,
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
function path(episode) {
  const all = calls(episode),
    count = Math.min(all.length, MOST_GLYPHS);
  const label =
    all
      .map(
        (call) =>
          call.tool.name +
          (call.bad ? ' (critical)' : '') +
          (call.code === 'f' ? ' (fault)' : call.code === 'x' ? ' (abstained)' : ''),
      )
      .join(', ') || 'no call';
  return picture(
    count * 14 + (all.length > count ? 12 : 0),
    16,
    label,
    {class: 'path'},
    all.slice(0, count).map((call, place) => glyph(call.tool.effect, call.code, call.bad, place * 14)),
    all.length > count ? s('text', {x: count * 14, y: 9, class: 'f-faint'}, '\u2026') : null,
  );
}

/* Where answers came from, as one bar; the stronger against the page, the better grounded. */
function stack(counts, width = 220, height = 10) {
  const parts = Object.keys(SOURCES)
    .filter((code) => counts[code])
    .map((code) => [code, counts[code]]);
  const sum = parts.reduce((total, [, count]) => total + count, 0) || 1;
  const label = parts.map(([code, count]) => `${CODES[code]} ${whole.format(count)}`).join(', ') || 'none';
  let x = 0;
  return picture(
    width,
    height,
    label,
    {preserveAspectRatio: 'none'},
    parts.map(([code, count]) => {
      const left = x,
        inset = code === 'x' ? 0.5 : 0;
      x += (count / sum) * width;
      return s('rect', {
        x: left + inset,
        y: inset,
        width: Math.max(1.5, x - left - 1),
        height: height - 2 * inset,
        class: 'f-' + code,
      });
    }),
  );
}
function bars(values, width, height, gap = 1) {
  const most = Math.max(1, ...values),
    each = width / values.length;
  return values.map((value, place) =>
    s('rect', {
      x: place * each,
      y: height - (value / most) * height,
      width: Math.max(0.5, each - gap),
      height: value ? Math.max(1, (value / most) * height) : 0,
      class: 'f-soft',
    }),
  );
}
const swatch = (code) =>
  svg(11, 11, {}, s('rect', {x: 0.5, y: 0.5, width: 10, height: 10, class: 'f-' + code}));

/* How many of a kind, behind its sign. */
const counted = (name, count, text) =>
  h('span', name ? sign(name) : null, h('span', h('b', whole.format(count)), ' ' + text));
/* The least confidence of some answers, marked where it is little. */
const least = (confidence) =>
  h(
    'td',
    {class: 'num' + (confidence < 0.5 ? ' w-watch' : '')},
    confidence === undefined ? '' : confidence.toFixed(2),
  );
/* What a finding is of, and how grave. */
const findingSign = (one) => sign(one.critical ? 'anomaly' : 'look');
const findingKinds = (tag, list) =>
  (list || []).map((one) => h(tag + (one.critical ? '.flag' : '.err'), words(one.kind)));

/* A command to paste. */
function command(text) {
  const shown = h('code', text);
  const copied = async (event) => {
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
  return h('span.cmd', shown, h('button.btn.small', {type: 'button', onclick: copied}, 'copy'));
}
