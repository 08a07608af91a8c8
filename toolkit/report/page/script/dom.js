/* Everything that came from a run enters the page here: as text nodes, or through the attributes that are
   named below. Never as markup; no style attribute (the policy forbids it); links lead into this page only. */

const id = (name) => document.getElementById(name);
const ALLOWED = new Set(
  (
    'class id href title role type scope colspan value placeholder tabindex open for hidden ' +
    'aria-label aria-labelledby aria-current aria-pressed aria-hidden data-v'
  ).split(' '),
);
const ALLOWED_SVG = new Set(
  (
    'viewBox width height x y rx r cx cy d class transform role tabindex href focusable ' +
    'aria-hidden aria-label preserveAspectRatio text-anchor stroke-width stroke-dasharray pointer-events'
  ).split(' '),
);
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

const svg = (width, height, attributes, ...children) =>
  s(
    'svg',
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      'aria-hidden': 'true',
      focusable: 'false',
      ...attributes,
    },
    ...children,
  );
/* A drawing that says something of its own. */
const picture = (width, height, label, attributes, ...children) =>
  svg(
    width,
    height,
    {role: 'img', 'aria-hidden': null, 'aria-label': label, ...attributes},
    s('title', {}, label),
    ...children,
  );

const section = (name, title, lead, ...children) =>
  h(
    'section',
    {id: name, 'aria-labelledby': name + '-h', tabindex: -1},
    h('header', h('h2', {id: name + '-h'}, title), lead ? h('p', lead) : null),
    children,
  );
/* The first section of a page, which says what it all comes to. */
const opening = (label, ...children) =>
  h(
    'section',
    {id: 'verdict', 'aria-label': label, tabindex: -1},
    D.run.notes.map((note) => h('p.note', note)),
    children,
  );
const stamp = (name, text) => h('span', {class: 'stamp ' + name}, sign(name, 14), text);
const terms = (name, pairs) =>
  h(
    'dl.' + name,
    pairs.map(([term, text]) => [h('dt', term), h('dd', text)]),
  );
const chart = (title, note, ...children) =>
  h('figure.chart', h('figcaption', h('b', title), note === null ? null : h('span.soft', note)), children);

/* A box that scrolls sideways on its own, so that the page does not. */
const wide = (name, ...children) =>
  h('div.scroll', {tabindex: 0, role: 'region', 'aria-label': name}, children);
/* Names of columns; those of numbers begin with #. */
const headings = (...names) =>
  h(
    'thead',
    h(
      'tr',
      names.map((name) =>
        name.startsWith('#') ? h('th.num', {scope: 'col'}, name.slice(1)) : h('th', {scope: 'col'}, name),
      ),
    ),
  );
const table = (name, tag, columns, rows) => wide(name, h(tag, headings(...columns), h('tbody', rows)));
const tableRow = (name, ...cells) => h('tr', h('th', {scope: 'row'}, name), cells);
const amount = (count, kind = '') => h('td', {class: 'num' + kind}, whole.format(count));
