/* Two runs on the same tasks: the sentence, what changed with its interval, then task by task. */

const C = D.compare;
const TASK_ROWS = 200;
const MARKS = {
  '!': ['anomaly', 'critical finding'],
  x: ['failed', 'failed'],
  E: ['error', 'error'],
  '.': ['passed', 'passed'],
};
const MOST_MARKS = 12;

/* One interval about no change; what is sure is full, what is not is hollow. */
function moved(row) {
  const width = 180,
    x = (value) => width / 2 + (Math.max(-1, Math.min(1, value / row.most)) * (width - 14)) / 2;
  const [low, middle, high] = row.at.map(x);
  const colour = row.good === null ? 'soft' : row.good ? 'ok' : 'bad';
  return picture(
    width,
    16,
    row.moved + (row.clear ? '' : ', not clear'),
    {},
    s('rect', {x: width / 2, y: 0, width: 1, height: 16, class: 'f-line2'}),
    s('rect', {x: low, y: 6, width: Math.max(2, high - low), height: 4, rx: 2, class: 'f-line2'}),
    row.clear
      ? s('circle', {cx: middle, cy: 8, r: 4.5, class: 'f-' + colour})
      : s('circle', {cx: middle, cy: 8, r: 4, class: 'f-und'}),
  );
}
const changes = (name, rows, first) =>
  table(
    name,
    'table.changes',
    [first, '#Before', '#After', 'Change (95 % interval)', 'Drawn'],
    rows.map((one) =>
      tableRow(
        one.name,
        h('td.num', one.before),
        h('td.num', one.after),
        h('td', {class: one.clear ? null : 'soft'}, one.moved, one.clear ? '' : ', not clear'),
        h('td', moved(one)),
      ),
    ),
  );

const change = () =>
  opening(
    'What changed',
    stamp(C.sign, C.stamp),
    h('h1.told', C.sentence),
    h('dl.facts', h('dt', 'before'), h('dd.mono', C.before), h('dt', 'after'), h('dd.mono', C.after)),
    C.figures.length ? changes('Pass rate and cost', C.figures, 'Figure') : null,
  );
const foundIn = () =>
  C.findings.length
    ? section(
        'findings',
        'Findings',
        'Share of episodes that a finding of this kind stands in.',
        changes(
          'Findings by kind',
          C.findings.map((row) => ({...row, name: words(row.name)})),
          'Kind',
        ),
      )
    : null;
const called = () =>
  C.tools.length
    ? section(
        'tools',
        'Calls',
        'Calls of an episode, those that cannot be undone first.',
        changes('Calls by tool', C.tools, 'Tool'),
      )
    : null;

/* One sign an episode, as in the matrix of a run. */
function marks(text) {
  const all = [...text].map((mark) => MARKS[mark] || ['inconclusive', 'inconclusive']);
  const counts = new Map();
  for (const [, name] of all) counts.set(name, (counts.get(name) || 0) + 1);
  const label = [...counts].map(([name, count]) => `${count} ${name}`).join(', ') || 'no episode';
  return h(
    'span.marks',
    all.slice(0, MOST_MARKS).map(([name]) => sign(name, 11)),
    all.length > MOST_MARKS ? ` of ${whole.format(all.length)}` : null,
    h('span.vh', label),
  );
}
const WORD_SIGN = {better: 'passed', worse: 'failed', unknown: 'inconclusive'};
const taskRow = (one) =>
  tableRow(
    h('a', {href: '#t=' + encodeURIComponent(one.task)}, one.task),
    h(
      'td',
      h(
        'span',
        {class: 'word v-' + (WORD_SIGN[one.word] || 'inconclusive')},
        WORD_SIGN[one.word] ? sign(WORD_SIGN[one.word]) : null,
        one.word,
        one.moved && one.word !== 'same' ? ` ${one.moved} points` : '',
      ),
    ),
    h('td', h('span.soft', one.before, ' '), marks(one.marks[0])),
    h('td', h('span.soft', one.after, ' '), marks(one.marks[1])),
    h('td.soft', one.note),
  );
function taskTable(name, list) {
  const body = h('tbody', list.slice(0, TASK_ROWS).map(taskRow));
  let shownRows = Math.min(list.length, TASK_ROWS);
  const more = h(
    'button.btn.more',
    {
      type: 'button',
      hidden: shownRows >= list.length,
      onclick: () => grown(list.length),
    },
    `Show all ${whole.format(list.length)}`,
  );
  function grown(count) {
    body.append(...list.slice(shownRows, count).map(taskRow));
    shownRows = Math.max(shownRows, count);
    more.hidden = shownRows >= list.length;
  }
  const table = h('table.cmp', headings('Task', 'Change', 'Before', 'After', 'Worst episode after'), body);
  return {node: [wide(name, table), more], list, body, grown};
}
let taskTables = [];
function comparedTasks() {
  if (!C.tasks.length) return null;
  const same = C.tasks.filter((one) => one.word === 'same');
  taskTables = [
    taskTable(
      'Changed tasks',
      C.tasks.filter((one) => one.word !== 'same'),
    ),
    taskTable('Unchanged tasks', same),
  ];
  const counts = Object.entries(C.counts).map(([name, count]) => counted(WORD_SIGN[name], count, name));
  return section(
    'tasks',
    'Tasks',
    'Worse ones first. One sign an episode.',
    h('div.counts', counts),
    taskTables[0].list.length ? taskTables[0].node : null,
    same.length
      ? h('details.part', h('summary', `${plural(same.length, 'task')} unchanged`), taskTables[1].node)
      : null,
  );
}
/* A link to a task shows its row, whatever is folded. */
function openTask(name) {
  for (const table of taskTables) {
    const place = table.list.findIndex((one) => one.task === name);
    if (place < 0) continue;
    table.grown(place + 1);
    const row = table.body.children[place],
      folded = row.closest('details');
    if (folded) folded.open = true;
    for (const other of document.querySelectorAll('.cmp tr.cur')) other.classList.remove('cur');
    row.classList.add('cur');
    row.querySelector('a').focus();
    row.scrollIntoView({block: 'center', behavior: 'instant'});
    tell(`${name}: ${table.list[place].word}`);
    return;
  }
  tell(`No task has the name ${name}`);
}
const taskLinks = () => [...document.querySelectorAll('.cmp a')].filter((one) => one.offsetParent);
const COMPARE_PARTS = [
  ['verdict', 'Change', change],
  ['findings', 'Findings', foundIn],
  ['tools', 'Calls', called],
  ['tasks', 'Tasks', comparedTasks],
];
