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

const HELP = L
  ? [['?', 'these keys']]
  : C
  ? [
      ['j k', 'next, previous task'],
      ['?', 'these keys'],
    ]
  : [
      ['j k', 'next, previous episode or step'],
      ['Enter', 'open the episode'],
      ['[ ]', 'previous, next episode'],
      ['/', 'filter'],
      ['Esc', 'back'],
      ['?', 'these keys'],
    ];
const help = h(
  'dialog',
  {'aria-label': 'Keys'},
  h('h3', {}, 'Keys'),
  h(
    'table',
    {},
    h(
      'tbody',
      {},
      HELP.map(([keys, text]) =>
        h(
          'tr',
          {},
          h(
            'td',
            {},
            keys.split(' ').map((key, place) => [place ? ' ' : '', h('kbd', {}, key)]),
          ),
          h('td', {}, text),
        ),
      ),
    ),
  ),
  h('p', {}, h('button', {class: 'btn', type: 'button', onclick: () => help.close()}, 'Close')),
);

function moveRow(by) {
  if (C) {
    focusNext(taskLinks(), by);
    return;
  }
  if (by > 0 && document.activeElement === [...rows.querySelectorAll('a')].at(-1) && drawn < hits.length)
    grow(MORE_ROWS);
  focusNext([...rows.querySelectorAll('a')], by);
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
  const parts = [
    ['verdict', 'Verdict', verdict],
    ['effects', 'Effects', effects],
    ['trust', 'Trust', trust],
    ['episodes', 'Episodes', episodes],
    ['faults', 'Faults', faults],
    ['cost', 'Cost', cost],
    ['manifest', 'Manifest', manifest],
  ];
  const drawnParts = C || L || E.length
    ? (C ? compareParts() : L ? trainingParts() : parts).map(([name, title, draw]) => [name, title, draw()]).filter(([, , node]) => node)
    : [
        ['verdict', 'Verdict', h('section', {id: 'verdict', tabindex: -1}, h('h1', {}, `${D.verdict.word}: ${D.verdict.counted}`))],
        ['manifest', 'Manifest', manifest()],
      ];
  navigation = drawnParts.map(([name, title]) => h('a', {href: '#' + name}, title));
  id('top').append(
    h('div', {class: 'wrap'}, h('b', {}, D.run.name), h('nav', {'aria-label': 'Sections'}, navigation)),
  );
  id('overview').append(...drawnParts.map(([, , node]) => node));
  if (E.length) list();
  id('foot').append(
    D.kind === 'record'
      ? 'Recorded with dreamgym-kit. '
      : C
        ? 'Compared with dreamgym-kit, task by task. '
        : L
          ? 'Trained with dreamgym-kit. What the dream rewarded is not the result. '
        : 'Dreamt with dreamgym-kit: no real tool ran unless this page says so. ',
    h('button', {class: 'btn small', type: 'button', onclick: () => help.showModal()}, 'Keys'),
  );
  if (L) {
    const [to, what] = L.curves.length ? ['#course', 'course'] : ['#manifest', 'manifest'];
    document.querySelector('.skip').replaceWith(h('a', {class: 'skip', href: to}, 'Skip to the ' + what));
  }
  if (C) document.querySelector('.skip').replaceWith(h('a', {class: 'skip', href: '#tasks'}, 'Skip to the tasks'));
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

if (D.schema !== KNOWN_SCHEMA) {
  id('overview').append(
    h('h1', {}, 'This page holds data that it cannot show.'),
    h(
      'p',
      {},
      `Its data has schema ${D.schema}, and it knows schema ${KNOWN_SCHEMA}. Make it again with dreamgym-kit report --html.`,
    ),
  );
} else {
  start();
}
