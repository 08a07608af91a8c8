/* Where a link leads, what a key does, and the first drawing. */

const VIEWS = ['overview', 'episode'],
  scrolled = {};
let booted = false,
  navigation = [];

const shown = () => VIEWS.find((name) => !id(name).hidden);
function show(view) {
  const before = shown();
  if (before === view) return;
  scrolled[before] = scrollY;
  for (const name of VIEWS) id(name).hidden = name !== view;
  if (view === 'overview') rename(D.run.title);
}
function point(target) {
  for (const anchor of navigation) {
    if (anchor.getAttribute('href') === '#' + target) anchor.setAttribute('aria-current', 'true');
    else anchor.removeAttribute('aria-current');
  }
}
function takeFilter(query) {
  for (const name of Object.keys(filter)) filter[name] = query.get(name) || '';
  controls.q.value = filter.q;
  controls.task.value = filter.task;
  controls.tool.value = filter.tool;
  list();
  if (filter.q) readAll();
}
function route() {
  const hash = location.hash.slice(1),
    query = new URLSearchParams(hash.includes('=') ? hash : ''),
    from = shown();
  if (query.has('e')) {
    openEpisode(query.get('e'), parseInt(query.get('s'), 10) || 0);
    point('');
    return;
  }
  current = null;
  request++;
  if (C && query.has('t')) {
    openTask(query.get('t'));
    point('tasks');
    return;
  }
  const filtered = hash.includes('=') && !C;
  if (filtered && rows) takeFilter(query);
  show('overview');
  const target = filtered ? 'episodes' : hash;
  if (from === 'episode' && target === 'episodes' && scrolled.overview !== undefined)
    scrollTo({top: scrolled.overview, behavior: 'instant'});
  else if (/^[a-z]+$/.test(target) && id(target))
    id(target).scrollIntoView({behavior: booted ? 'auto' : 'instant'});
  point(target);
}

const RUN_PARTS = [
  ['verdict', 'Verdict', verdict],
  ['effects', 'Effects', effects],
  ['trust', 'Trust', trust],
  ['episodes', 'Episodes', episodes],
  ['faults', 'Faults', faults],
  ['cost', 'Cost', cost],
  ['manifest', 'Manifest', manifest],
];
const nothingRan = () =>
  h('section', {id: 'verdict', tabindex: -1}, h('h1', `${D.verdict.word}: ${D.verdict.counted}`));
const RUN_KEYS = [
  ['j k', 'next, previous episode or step'],
  ['Enter', 'open the episode'],
  ['[ ]', 'previous, next episode'],
  ['/', 'filter'],
  ['Esc', 'back'],
];
/* What each kind of page has: its sections, its keys, the section to skip to, and how it came about. */
const KINDS = {
  compare: () => ({
    parts: COMPARE_PARTS,
    keys: [['j k', 'next, previous task']],
    main: 'tasks',
    made: 'Compared with dreamgym-kit, task by task. ',
  }),
  train: () => ({
    parts: TRAINING_PARTS,
    keys: [],
    main: L.curves.length ? 'course' : 'manifest',
    made: 'Trained with dreamgym-kit. What the dream rewarded is not the result. ',
  }),
  record: () => ({...KINDS.simulate(), made: 'Recorded with dreamgym-kit. '}),
  simulate: () => ({
    parts: E.length ? RUN_PARTS : [['verdict', 'Verdict', nothingRan], RUN_PARTS.at(-1)],
    keys: RUN_KEYS,
    main: 'episodes',
    made: 'Dreamt with dreamgym-kit: no real tool ran unless this page says so. ',
  }),
};
const PAGE = D.schema === KNOWN_SCHEMA ? KINDS[D.kind]() : {keys: []};
const keyRow = ([keys, text]) => {
  const shownKeys = keys.split(' ').map((key, place) => [place ? ' ' : '', h('kbd', key)]);
  return h('tr', h('td', shownKeys), h('td', text));
};
const help = h(
  'dialog',
  {'aria-label': 'Keys'},
  h('h3', 'Keys'),
  h('table', h('tbody', [...PAGE.keys, ['?', 'these keys']].map(keyRow))),
  h('p', button('btn', () => help.close(), 'Close')),
);

function moveRow(by) {
  const links = C ? taskLinks : () => [...rows.querySelectorAll('a')];
  if (rows && by > 0 && document.activeElement === links().at(-1) && drawn < hits.length) grow(MORE_ROWS);
  focusNext(links(), by);
}
function focusNext(links, by) {
  const at = links.indexOf(document.activeElement);
  const to = links[Math.max(0, Math.min(links.length - 1, at + by))];
  if (to) {
    to.focus();
    to.scrollIntoView({block: 'nearest', behavior: 'instant'});
  }
}
function moveStep(by) {
  const count = document.querySelectorAll('.step').length;
  mark(Math.max(0, Math.min(count - 1, currentRow + by)), false);
  history.replaceState(null, '', link(current.id, stepAt(currentRow)));
}
function moveEpisode(by) {
  const to = hits[hits.indexOf(current) + by];
  if (to) location.hash = link(to.id);
}
function escape(inField, target) {
  if (help.open) return;
  if (inField) target.blur();
  else if (shown() !== 'overview') location.hash = hashOf();
}
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const inField = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName),
    inEpisode = shown() === 'episode';
  if (event.key === 'Escape') escape(inField, event.target);
  if (inField || help.open) return;
  const by = {j: 1, k: -1, ']': 1, '[': -1}[event.key];
  if (event.key === '/' && rows) {
    event.preventDefault();
    if (inEpisode) location.hash = hashOf();
    setTimeout(() => controls.q.focus());
  } else if (event.key === '?') help.showModal();
  else if (by && 'jk'.includes(event.key)) {
    if (!inEpisode && (rows || C)) moveRow(by);
    else if (current) moveStep(by);
  } else if (by && current) moveEpisode(by);
}

function start() {
  const parts = PAGE.parts.map(([name, title, draw]) => [name, title, draw()]).filter(([, , node]) => node);
  navigation = parts.map(([name, title]) => h('a', {href: '#' + name}, title));
  id('top').append(h('div.wrap', h('b', D.run.name), h('nav', {'aria-label': 'Sections'}, navigation)));
  id('overview').append(...parts.map(([, , node]) => node));
  if (E.length) list();
  id('foot').append(PAGE.made, button('btn.small', () => help.showModal(), 'Keys'));
  const skip = h('a.skip', {href: '#' + PAGE.main}, 'Skip to the ' + PAGE.main);
  document.querySelector('.skip').replaceWith(skip);
  document.body.append(help);
  rename(D.run.title);
  document.addEventListener('keydown', pressed);
  addEventListener('hashchange', route);
  addEventListener('beforeprint', () => {
    if (rows && drawn < hits.length) grow(PRINTED_ROWS);
    for (const folded of document.querySelectorAll('details.tool, #tasks details')) folded.open = true;
  });
  route();
  booted = true;
}

if (D.schema === KNOWN_SCHEMA) {
  start();
} else {
  const text = `Its data has schema ${D.schema}, and it knows schema ${KNOWN_SCHEMA}.`;
  id('overview').append(
    h('h1', 'This page holds data that it cannot show.'),
    h('p', text, ' Make it again with dreamgym-kit view.'),
  );
}
