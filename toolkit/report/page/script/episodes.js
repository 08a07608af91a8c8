/* 4 Episodes: filter by verdict, task, tool and a line of words; rows are drawn a few at a time. */

const FIRST_ROWS = 40,
  MORE_ROWS = 100,
  PRINTED_ROWS = 500,
  LONG_MENU = 500,
  MOST_REASON = 300;
const filter = {v: '', task: '', tool: '', q: ''};
const controls = {};
let texts = null,
  hits = [],
  drawn = 0,
  rows,
  listed,
  more;

/* What a word may be asked of: `tool:refund_payment`, `-verdict:passed`, "two words". */
const KEYS = {
  verdict: (episode, asked) => episode.verdict.startsWith(asked),
  tool: (episode, asked) => calls(episode).some((call) => call.tool.name.toLowerCase() === asked),
  task: (episode, asked) => TASKS[episode.task].id.toLowerCase() === asked,
  finding: (episode, asked) =>
    asked === 'any'
      ? Boolean(episode.kinds)
      : (episode.kinds || []).some((kind) => kind.toLowerCase().startsWith(asked)),
  source: (episode, asked) => calls(episode).some((call) => CODES[call.code].startsWith(asked)),
  effect: (episode, asked) => calls(episode).some((call) => call.tool.effect === asked),
  stop: (episode, asked) => episode.stop.startsWith(asked),
};
function parse(query) {
  const unquoted = (text) => text.replace(/"/g, '').toLowerCase();
  return (query.match(/-?\w+:"[^"]*"|-?"[^"]*"|\S+/g) || [])
    .map((part) => {
      const [, minus, key, value] = /^(-?)(\w+):(.+)$/.exec(part) || [];
      if (value && Object.hasOwn(KEYS, key))
        return {not: minus === '-', holds: KEYS[key], asked: unquoted(value)};
      const not = part.length > 1 && part.startsWith('-');
      return {not, holds: says, asked: unquoted(part.slice(not ? 1 : 0))};
    })
    .filter((token) => token.asked);
}
const nearText = (episode) =>
  (episode.near ??= [
    episode.id,
    episode.reason,
    TASKS[episode.task].text,
    ...(episode.kinds || []).map(words),
    ...new Set(calls(episode).map((call) => call.tool.name)),
  ]
    .join('\n')
    .toLowerCase());
const says = (episode, asked) =>
  nearText(episode).includes(asked) || (texts !== null && texts[episode.i].includes(asked));

/* Everything that was said and told, for words that stand in no row; read once, in the background. */
const SEARCHED = ['tool', 'by', 'text', 'why', 'nearest', 'error', 'source'];
const wordsOf = (one) =>
  (one ? one.steps : [])
    .flatMap((step) => [
      ...SEARCHED.map((name) => step[name]),
      step.args ? JSON.stringify(step.args) : '',
      ...(step.findings || []).map((finding) => finding.text),
      ...(step.cites || []),
    ])
    .join('\n')
    .toLowerCase();
async function readAll() {
  if (texts) return;
  texts = new Array(E.length).fill('');
  for (let number = 0; number < pack().chunks.length; number++) {
    (await chunk(number)).forEach((one, place) => {
      texts[number * pack().per_chunk + place] = wordsOf(one);
    });
    await new Promise((done) => setTimeout(done));
  }
  if (filter.q) list();
}

function list() {
  const tokens = parse(filter.q);
  hits = E.filter(
    (episode) =>
      (!filter.v || episode.verdict === filter.v) &&
      (!filter.task || TASKS[episode.task].id === filter.task) &&
      (!filter.tool || calls(episode).some((call) => call.tool.name === filter.tool)) &&
      tokens.every((token) => token.holds(episode, token.asked) !== token.not),
  );
  hits.sort((one, other) => badness(one) - badness(other) || one.i - other.i);
  rows.replaceChildren();
  drawn = 0;
  grow(FIRST_ROWS);
  const text = hits.length
    ? `${whole(hits.length)} of ${plural(E.length, 'episode')}`
    : 'No episode is like that.';
  listed.textContent = text;
  tell(text);
  for (const button of controls.verdicts)
    button.setAttribute('aria-pressed', String(button.dataset.v === filter.v));
}
function row(episode) {
  const open = (event) => {
    if (!event.target.closest('a') && !String(getSelection())) location.hash = link(episode.id);
  };
  return h(
    'tr.ep',
    {onclick: open},
    h('td', word(episode.verdict)),
    h('td', h('a', {href: link(episode.id)}, episode.id)),
    h(
      'td',
      h('span.t', TASKS[episode.task].text || episode.id),
      episode.bad ? h('span.r.flag', (episode.kinds || ['refused']).map(words).join(', ')) : null,
      episode.verdict !== 'passed' ? h('span.r', cutEnd(episode.reason, MOST_REASON)) : null,
    ),
    h('td', path(episode)),
    h('td.num', calls(episode).length),
    least(episode.confidence),
    h('td.num', duration(episode.s)),
  );
}
function grow(count) {
  const part = document.createDocumentFragment();
  for (const episode of hits.slice(drawn, drawn + count))
    part.append(episode.row || (episode.row = row(episode)));
  rows.append(part);
  drawn = Math.min(hits.length, drawn + count);
  const left = hits.length - drawn;
  more.parentNode.hidden = left === 0;
  more.textContent = `Show ${Math.min(MORE_ROWS, left)} more of ${whole(left)}`;
}
function hashOf() {
  const set = Object.entries(filter)
    .filter(([, value]) => value)
    .map(([name, value]) => name + '=' + encodeURIComponent(value));
  return set.length ? '#' + set.join('&') : '#episodes';
}
function refilter() {
  list();
  history.replaceState(null, '', hashOf());
}

/* A menu of many thousand entries would cost more than the page: then the line of words does. */
function menu(label, any, names, key) {
  const option = (value, text) => h('option', {value}, text || value);
  const choose = (event) => {
    filter[key] = event.target.value;
    refilter();
  };
  return h(
    'select',
    {'aria-label': label, onchange: choose, hidden: names.length > LONG_MENU},
    option('', any),
    names.slice(0, LONG_MENU).map((name) => option(name)),
  );
}
function verdictButton(name) {
  const choose = () => {
    filter.v = name;
    refilter();
  };
  const text = name ? [sign(name), `${name} ${whole(COUNTS[name])}`] : 'all';
  const attributes = {type: 'button', 'aria-pressed': 'false', 'data-v': name, onclick: choose};
  return h('button.btn', attributes, text);
}
const COLUMNS = ['Verdict', 'Episode', 'Task', 'Calls in order', '#Calls', '#Least confidence', '#Time'];
function episodes() {
  let frame = 0;
  rows = h('tbody');
  listed = h('span.soft', {id: 'counted'});
  more = button('btn', () => grow(MORE_ROWS));
  controls.verdicts = ['', 'failed', 'error', 'inconclusive', 'passed'].map(verdictButton);
  controls.q = h('input', {
    type: 'search',
    id: 'q',
    placeholder: 'Words, or tool:NAME finding:any source:unanswered -verdict:passed',
    'aria-label': 'Filter episodes',
    onfocus: readAll,
    oninput: (event) => {
      filter.q = event.target.value;
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(refilter);
    },
  });
  controls.task = menu('Task', 'every task', TASKS.map((task) => task.id), 'task');
  controls.tool = menu('Tool', 'every tool', TOOLS.map((tool) => tool.name), 'tool');
  const verdicts = h('div.seg', {role: 'group', 'aria-label': 'Verdict'}, controls.verdicts);
  const widths = h('colgroup', COLUMNS.map((_, place) => h('col', {class: 'c' + (place + 1)})));
  return section(
    'episodes',
    'Every episode',
    null,
    h('div.filters', verdicts, controls.task, controls.tool, controls.q),
    h('div.key', listed, glyphKey()),
    wide('Episodes', h('table.eps', widths, headings(...COLUMNS), rows)),
    h('p.more', more),
  );
}
