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
const plain = (text) =>
  String(text)
    .replace(/\r\n/g, '\n')
    .replace(HIDDEN, (char) => '\u27e8' + char.codePointAt(0).toString(16).padStart(4, '0') + '\u27e9');

function fill(node, children) {
  for (const child of children.flat(9)) {
    if (child !== null && child !== undefined && child !== false)
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
const amount = (count, kind = '') => h('td', {class: 'num' + kind}, whole.format(count));

/* The two blocks of data, read once; steps are unpacked when they are first asked for. */

const D = JSON.parse(id('data-report').textContent);
const PACK = JSON.parse(id('data-episodes').textContent);
const KNOWN_SCHEMA = 2;
const TOOLS = D.tools || [],
  TASKS = D.tasks || [],
  E = D.episodes || [];
/* Where an answer may come from, by the code in an episode's path: its name, and what that means. */
const SOURCES = {
  R: ['real', 'the tool itself ran; in a dream only tools that touch nothing may'],
  r: ['recorded', 'recorded in this environment'],
  c: ['derived', 'put together from what was recorded'],
  a: ['analogous', 'recorded in another environment'],
  m: ['model', 'a model\u2019s answer'],
  s: ['scripted', 'a scripted answer'],
  f: ['fault', 'planned failure'],
  x: ['unanswered', 'no answer given'],
};
const CODES = Object.fromEntries(Object.entries(SOURCES).map(([code, [name]]) => [code, name]));
const CODE_OF = Object.fromEntries(Object.entries(CODES).map(([code, name]) => [name, code]));
const WORST = {'!': 0, failed: 1, error: 2, inconclusive: 3, passed: 4};
const byId = new Map(E.map((episode, place) => [episode.id, place]));
E.forEach((episode, place) => {
  episode.i = place;
});

/* The calls of an episode in order: tool, code of the source, and whether a critical finding points at it. */
function calls(episode) {
  episode.calls ??= (episode.path.match(/\S+/g) || []).map((word) => ({
    tool: TOOLS[parseInt(word, 10)],
    code: word.replace(/[\d!]/g, ''),
    bad: word.endsWith('!'),
  }));
  return episode.calls;
}
const badness = (episode) => WORST[episode.bad ? '!' : episode.verdict];

const chunks = new Map();
function chunk(number) {
  if (!chunks.has(number)) chunks.set(number, unpack(PACK.chunks[number]));
  return chunks.get(number);
}
async function unpack(packed) {
  const raw = Uint8Array.from(atob(packed), (char) => char.charCodeAt(0));
  const opened = new Blob([raw]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(opened).text());
}
/* An episode's steps; null where the page had no room for them. */
const detail = async (place) => (await chunk(Math.floor(place / PACK.per_chunk)))[place % PACK.per_chunk];

const whole = new Intl.NumberFormat('en');
// as the terminal rounds: half to even, never up to 100 or down to 0
function wholePercent(share) {
  const below = Math.floor(100 * share);
  const near = 100 * share - below === 0.5 ? below + (below % 2) : Math.round(100 * share);
  if (near === 100 && share < 1) return 99;
  return near === 0 && share > 0 ? 1 : near;
}
// an interval's bounds outwards, as the terminal does
const wholeBounds = (low, high) => [Math.floor((100 * low).toFixed(9)), Math.ceil((100 * high).toFixed(9))];
const percent = (share) => wholePercent(share) + '%';
const plural = (count, word) => `${whole.format(count)} ${word}${count === 1 ? '' : 's'}`;
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
