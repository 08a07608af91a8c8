/* Elements, drawings and the data: what all other files of this script are made with.

   Everything that came from a run enters the page here: as text nodes, or through the attributes that are named
   below. Never as markup; no style attribute (the policy forbids it); links lead into this page only. */

const id = (name) => document.getElementById(name);
const namesOf = (text) => new Set(text.trim().split(/\s+/));
const ALLOWED = namesOf(`
  class id href title role type scope colspan value placeholder tabindex open for hidden
  aria-label aria-labelledby aria-current aria-pressed aria-hidden data-v`);
const ALLOWED_SVG = namesOf(`
  viewBox width height x y rx r cx cy d class role tabindex href focusable
  aria-hidden aria-label preserveAspectRatio text-anchor pointer-events`);
const LISTENS = new Set(['onclick', 'oninput', 'onchange', 'onfocus']);

/* Control, bidi and zero-width characters are made visible: a text must not hide a part of itself. The two
   joiners stay, since Persian and Hindi need them. */
const HIDDEN = new RegExp(
  '[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f' +
    '\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]|[\\u{e0000}-\\u{e0fff}]',
  'gu',
);
const UNUSUAL = /[^\n -~]/; // cheap to look for, and most texts of a page have none
function plain(value) {
  const text = String(value);
  if (!UNUSUAL.test(text)) return text;
  return text
    .replace(/\r\n/g, '\n')
    .replace(HIDDEN, (char) => '\u27e8' + char.codePointAt(0).toString(16).padStart(4, '0') + '\u27e9');
}

function fill(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) fill(node, child);
    else if (child !== null && child !== undefined && child !== false)
      node.append(child.nodeType ? child : plain(child));
  }
  return node;
}

function put(node, name, value, allowed) {
  if (!allowed.has(name)) throw Error('attribute ' + name);
  if (name === 'href' && !String(value).startsWith('#')) throw Error('a link that leaves the page');
  node.setAttribute(name, value === true ? '' : name === 'href' ? value : plain(value));
}

/* For people who listen to the page, and for the window's name. */
const tell = (text) => {
  id('live').textContent = plain(text);
};
const rename = (text) => {
  document.title = plain(text);
};

/* An element of the page: `h('p.soft', {title: 'x'}, child, ...)`. Classes stand behind the tag; attributes,
   where there are any, come next. Functions among them are listeners, all others must be allowed. */
function h(selector, ...rest) {
  const [tag, ...classes] = selector.split('.'),
    node = document.createElement(tag);
  const [attributes, children] = hasAttributes(rest[0]) ? [rest[0], rest.slice(1)] : [{}, rest];
  if (classes.length) node.className = classes.join(' ');
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (LISTENS.has(name) && typeof value === 'function') node.addEventListener(name.slice(2), value);
    else put(node, name, value, ALLOWED);
  }
  return fill(node, children);
}
const hasAttributes = (first) =>
  first !== null && typeof first === 'object' && !first.nodeType && !Array.isArray(first);

/* An element of a drawing. */
function s(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) put(node, name, value, ALLOWED_SVG);
  }
  return fill(node, children);
}

const svg = (width, height, attributes, ...children) => {
  const hidden = {'aria-hidden': 'true', focusable: 'false'};
  return s('svg', {viewBox: `0 0 ${width} ${height}`, width, height, ...hidden, ...attributes}, ...children);
};
/* A drawing that says something of its own. */
const picture = (width, height, label, attributes, ...children) => {
  const named = {role: 'img', 'aria-hidden': null, 'aria-label': label};
  return svg(width, height, {...named, ...attributes}, s('title', {}, label), ...children);
};
/* Its shapes: where they are, and the class that gives their colour. */
const rect = (x, y, width, height, kind, more) => s('rect', {x, y, width, height, class: kind, ...more});
const circle = (cx, cy, r, kind) => s('circle', {cx, cy, r, class: kind});
const stroke = (d, kind) => s('path', {d, class: kind});
const caption = (x, y, anchor, text) => s('text', {x, y, 'text-anchor': anchor, class: 'f-faint'}, text);

const section = (name, title, lead, ...children) => {
  const heading = h('header', h('h2', {id: name + '-h'}, title), lead ? h('p', lead) : null);
  return h('section', {id: name, 'aria-labelledby': name + '-h', tabindex: -1}, heading, children);
};
/* The first section of a page, which says what it all comes to. */
const opening = (label, ...children) => {
  const notes = D.run.notes.map((note) => h('p.note', note));
  return h('section', {id: 'verdict', 'aria-label': label, tabindex: -1}, notes, children);
};
const stamp = (name, text) => h('span', {class: 'stamp ' + name}, sign(name, 14), text);
const terms = (name, pairs, tag = 'dd') => {
  const rows = pairs.map(([term, text]) => [h('dt', term), h(tag, text)]);
  return h('dl.' + name, rows);
};
const chart = (title, note, ...children) => {
  const aside = note === null ? null : h('span.soft', note);
  return h('figure.chart', h('figcaption', h('b', title), aside), children);
};
/* What adds content to the page when it is asked for. */
const button = (kind, onclick, ...children) => h('button.' + kind, {type: 'button', onclick}, children);

/* A box that scrolls sideways on its own, so that the page does not. */
const wide = (name, ...children) =>
  h('div.scroll', {tabindex: 0, role: 'region', 'aria-label': name}, children);
/* Names of columns, or elements for them; those of numbers begin with #. */
const headings = (...names) => {
  const heading = (name) => {
    const numbers = typeof name === 'string' && name.startsWith('#');
    return h(numbers ? 'th.num' : 'th', {scope: 'col'}, numbers ? name.slice(1) : name);
  };
  return h('thead', h('tr', names.map(heading)));
};
const table = (name, tag, columns, rows) => wide(name, h(tag, headings(...columns), h('tbody', rows)));
const tableRow = (name, ...cells) => h('tr', h('th', {scope: 'row'}, name), cells);
const amount = (count, kind = '') => h('td', {class: 'num' + kind}, whole(count));

/* The two blocks of data: the second, which is most of the page, is read when steps are first asked for. */

const D = JSON.parse(id('data-report').textContent);
const KNOWN_SCHEMA = 3;
/* The report as `report.json` has it, each tool and each episode with what the page shows beside it. */
const R = D.report || {};
const TOOLS = (D.tools || []).map((more, place) => ({...R.tools[place], ...more})),
  TASKS = D.tasks || [],
  E = (D.episodes || []).map((more, place) => ({...R.list[place], ...more, i: place}));
const COUNTS = {...R.counts, error: R.counts?.errors};
const VERDICTS = ['passed', 'failed', 'inconclusive', 'error'];
/* Where an answer may come from, by the code in an episode's path: its name, and what that means. */
const SOURCES = {
  R: ['real', 'the tool itself ran; in a dream only tools that touch nothing may'],
  r: ['recorded', 'recorded in this environment'],
  c: ['derived', 'put together from what was recorded'],
  a: ['analogous', 'recorded in another environment'],
  m: ['model', 'a model\u2019s answer'],
  i: ['imagined', 'a model invented it: it proves nothing'],
  s: ['scripted', 'a scripted answer'],
  f: ['fault', 'planned failure'],
  x: ['unanswered', 'no answer given'],
};
const CODES = Object.fromEntries(Object.entries(SOURCES).map(([code, [name]]) => [code, name]));
const CODE_OF = Object.fromEntries(Object.entries(CODES).map(([code, name]) => [name, code]));
const WORST = {'!': 0, failed: 1, error: 2, inconclusive: 3, passed: 4};
const byId = new Map(E.map((episode) => [episode.id, episode.i]));

/* The calls of an episode in order: tool, code of the source, and whether a critical finding points at it. */
function calls(episode) {
  episode.made ??= (episode.path.match(/\S+/g) || []).map((word) => ({
    tool: TOOLS[parseInt(word, 10)],
    code: word.replace(/[\d!]/g, ''),
    bad: word.endsWith('!'),
  }));
  return episode.made;
}
const badness = (episode) => WORST[episode.bad ? '!' : episode.verdict];

let loaded;
const pack = () => (loaded ??= JSON.parse(id('data-episodes').textContent));
const chunks = new Map();
function chunk(number) {
  if (!chunks.has(number)) chunks.set(number, unpack(pack().chunks[number]));
  return chunks.get(number);
}
async function unpack(packed) {
  const raw = Uint8Array.from(atob(packed), (char) => char.charCodeAt(0));
  const opened = new Blob([raw]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(opened).text());
}
/* An episode's steps; null where the page had no room for them. */
async function detail(place) {
  const each = pack().per_chunk;
  return (await chunk(Math.floor(place / each)))[place % each];
}

// not Intl.NumberFormat: its first use loads a library, a tenth of the time until the page is open
const whole = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, ',');
// as the terminal rounds: half to even, never up to 100 or down to 0
const halfEven = (value) =>
  value % 1 === 0.5 ? Math.floor(value) + (Math.floor(value) % 2) : Math.round(value);
function wholePercent(share) {
  const near = halfEven(100 * share);
  if (near === 100 && share < 1) return 99;
  return near === 0 && share > 0 ? 1 : near;
}
// an interval's bounds outwards, as the terminal does
const wholeBounds = (low, high) => [Math.floor((100 * low).toFixed(9)), Math.ceil((100 * high).toFixed(9))];
const percent = (share) => wholePercent(share) + '%';
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? '' : 's'}`;
const words = (name) => String(name).replace(/_/g, ' ');
/* At most so many characters, and how many more there are. */
const cutEnd = (text, most) =>
  text.length <= most ? text : `${text.slice(0, most)}... (+${text.length - most} chars)`;

const asText = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
const money = (usd) => '$' + usd.toFixed(usd < 0.01 ? 4 : 2);
function duration(seconds) {
  if (seconds < 0.001) return '<1 ms';
  if (seconds < 1) return Math.round(seconds * 1000) + ' ms';
  if (seconds < 60) return seconds.toFixed(1) + ' s';
  return `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')} min`;
}
const link = (name, step) => '#e=' + encodeURIComponent(name) + (step ? '&s=' + step : '');
const placed = (name, step) => (step ? `${name}, step ${step}` : name);

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
  const codes = Object.keys(SOURCES).filter((code) => counts[CODES[code]]);
  const sum = codes.reduce((total, code) => total + counts[CODES[code]], 0) || 1;
  const label = codes.map((code) => `${CODES[code]} ${whole(counts[CODES[code]])}`).join(', ') || 'none';
  let x = 0;
  const parts = codes.map((code) => {
    const left = x,
      inset = code === 'x' ? 0.5 : 0;
    x += (counts[CODES[code]] / sum) * width;
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
  h('span', name ? sign(name) : null, h('span', h('b', whole(count)), ' ' + text));
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
