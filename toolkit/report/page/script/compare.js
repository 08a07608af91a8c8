/* Two runs on the same tasks: the sentence, what changed with its interval, then task by task. */

const C = D.compare;
const TASK_ROWS = 200,
  MOST_NOTE = 300;
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
  const colour = row.good === null ? 'f-soft' : row.good ? 'f-ok' : 'f-bad';
  return picture(
    width,
    16,
    row.moved + (row.clear ? '' : ', not clear'),
    {},
    rect(width / 2, 0, 1, 16, 'f-line2'),
    rect(low, 6, Math.max(2, high - low), 4, 'f-line2', {rx: 2}),
    row.clear ? circle(middle, 8, 4.5, colour) : circle(middle, 8, 4, 'f-und'),
  );
}
function changes(name, rows, first) {
  const columns = [first, '#Before', '#After', 'Change (95 % interval)', 'Drawn'];
  const line = (row) =>
    tableRow(
      row.name,
      h('td.num', row.before),
      h('td.num', row.after),
      h(row.clear ? 'td' : 'td.soft', row.moved, row.clear ? '' : ', not clear'),
      h('td', moved(row)),
    );
  return table(name, 'table.changes', columns, rows.map(line));
}

const change = () =>
  opening(
    'What changed',
    stamp(C.sign, C.stamp),
    h('h1.told', R.sentence),
    terms('facts', ['before', 'after'].map((side) => [side, R[side]]), 'dd.mono'),
    C.figures.length ? changes('Pass rate and cost', C.figures, 'Figure') : null,
  );
function foundIn() {
  const rows = C.findings.map((row) => ({...row, name: words(row.name)})),
    lead = 'Share of episodes that a finding of this kind stands in.';
  const table = () => changes('Findings by kind', rows, 'Kind');
  return rows.length ? section('findings', 'Findings', lead, table()) : null;
}
function called() {
  const lead = 'Calls of an episode, those that cannot be undone first.';
  const table = () => changes('Calls by tool', C.tools, 'Tool');
  return C.tools.length ? section('tools', 'Calls', lead, table()) : null;
}

/* One sign an episode, as in the matrix of a run. */
function marks(text) {
  const all = [...text].map((mark) => MARKS[mark] || ['inconclusive', 'inconclusive']);
  const counts = new Map();
  for (const [, name] of all) counts.set(name, (counts.get(name) || 0) + 1);
  const label = [...counts].map(([name, count]) => `${count} ${name}`).join(', ') || 'no episode';
  return h(
    'span.marks',
    all.slice(0, MOST_MARKS).map(([name]) => sign(name, 11)),
    all.length > MOST_MARKS ? ` of ${whole(all.length)}` : null,
    h('span.vh', label),
  );
}
const WORD_SIGN = {better: 'passed', worse: 'failed', unknown: 'inconclusive'};
function taskRow(task) {
  const known = WORD_SIGN[task.word];
  const change = task.after - task.before;
  const moved = Math.sign(change) * halfEven(100 * Math.abs(change));
  const points = ['better', 'worse'].includes(task.word) ? ` ${moved > 0 ? '+' : ''}${moved} points` : '';
  const judged = {class: 'word v-' + (known || 'inconclusive')};
  const side = (share, signs) =>
    h('td', h('span.soft', share === null ? '' : percent(share), ' '), marks(signs));
  return tableRow(
    h('a', {href: '#t=' + encodeURIComponent(task.task)}, task.task),
    h('td', h('span', judged, known ? sign(known) : null, task.word, points)),
    side(task.before, task.before_marks),
    side(task.after, task.after_marks),
    h('td.soft', cutEnd(task.note, MOST_NOTE)),
  );
}
function taskTable(name, list) {
  const body = h('tbody');
  const more = button('btn.more', () => grown(list.length), `Show all ${whole(list.length)}`);
  function grown(count) {
    body.append(...list.slice(body.children.length, count).map(taskRow));
    more.hidden = body.children.length >= list.length;
  }
  grown(TASK_ROWS);
  const table = h('table.cmp', headings('Task', 'Change', 'Before', 'After', 'Worst episode after'), body);
  return {node: [wide(name, table), more], list, body, grown};
}
let taskTables = [];
function comparedTasks() {
  if (!R.tasks.length) return null;
  const same = R.tasks.filter((task) => task.word === 'same'),
    other = R.tasks.filter((task) => task.word !== 'same');
  taskTables = [taskTable('Changed tasks', other), taskTable('Unchanged tasks', same)];
  const counts = ['worse', 'unknown', 'better', 'same'].map((name) =>
    counted(WORD_SIGN[name], R.tasks.filter((task) => task.word === name).length, name),
  );
  const unchanged = h('summary', `${plural(same.length, 'task')} unchanged`);
  return section(
    'tasks',
    'Tasks',
    'Worse ones first. One sign an episode.',
    h('div.counts', counts),
    other.length ? taskTables[0].node : null,
    same.length ? h('details.part', unchanged, taskTables[1].node) : null,
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
