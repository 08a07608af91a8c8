/* 1 Verdict: the word with the counts of all episodes, the rate with its interval, one square an episode, every rule. */

const MOST_COLUMNS = 400;

function interval(verdict) {
  const width = 520,
    x = (share) => 7 + share * (width - 14);
  const [low, high] = wholeBounds(verdict.low, verdict.high);
  const label = `pass rate ${percent(verdict.value)}, 95% CI ${low} to ${high}%`;
  const tick = (share) =>
    caption(x(share), 36, share === 0 ? 'start' : share === 1 ? 'end' : 'middle', percent(share));
  return picture(
    width,
    40,
    label,
    {width: '100%', height: 40, class: 'axis', preserveAspectRatio: 'xMinYMid'},
    rect(7, 13, width - 14, 2, 'f-line2'),
    [0, 0.25, 0.5, 0.75, 1].map(tick),
    rect(x(verdict.low), 10, Math.max(2, x(verdict.high) - x(verdict.low)), 8, 'f-soft', {rx: 4}),
    circle(x(verdict.value), 14, 6.5, 'f-ink'),
  );
}

/* One column a task (the worst first, as Python ordered them), one square an episode. */
function matrix() {
  const columns = TASKS.map(() => []);
  E.forEach((episode) => columns[episode.task].push(episode));
  const column = (episodes, place) =>
    svg(
      17,
      Math.max(1, episodes.length) * 17,
      {},
      episodes.map((episode, row) => square(episode, TASKS[place], row * 17)),
    );
  return [
    h('div.matrix', columns.slice(0, MOST_COLUMNS).map(column)),
    columns.length > MOST_COLUMNS
      ? h('p.soft', `the ${MOST_COLUMNS} worst of ${plural(columns.length, 'task')}`)
      : null,
  ];
}
function square(episode, task, y) {
  const full = (kind) => rect(1, y + 1, 14, 14, kind, {rx: 2});
  const shapes = {
    passed: () => full('f-ok'),
    inconclusive: () => [
      rect(1.7, y + 1.7, 12.6, 12.6, 'f-und', {rx: 2, 'pointer-events': 'all'}),
      stroke(`M5 ${y + 8}h6`, 's-soft'),
    ],
    error: () => [
      stroke(`M5 ${y + 1}h6l4 4v6l-4 4H5l-4-4V${y + 5}z`, 'f-bad'),
      stroke(`M5 ${y + 8}h6`, 's-card'),
    ],
    failed: () => [full('f-bad'), stroke(`M5.4 ${y + 5.4}l5.2 5.2M10.6 ${y + 5.4}l-5.2 5.2`, 's-card')],
    anomaly: () => [full('f-bad'), stroke(`M8 ${y + 4}v5M8 ${y + 11.4}v.7`, 's-card')],
  };
  return s(
    'a',
    {href: link(episode.id), tabindex: -1, class: 'sq'},
    s('title', {}, `${episode.id}: ${episode.verdict}\n${episode.reason}\n${task.text}`),
    shapes[episode.bad ? 'anomaly' : episode.verdict](),
  );
}

function rules(list) {
  const result = (rule) =>
    rule.passed === null
      ? h('span.soft', 'not asked')
      : word(rule.verdict, rule.passed ? 'holds' : rule.verdict);
  const rows = list.map((rule) => {
    const soft = [rule.limit, rule.why].map((text) => h('td.soft', text));
    return tableRow(rule.key, h('td', result(rule)), h('td', rule.measured), soft);
  });
  return table('Gate rules', 'table.rules', ['Gate', 'Result', 'Measured', 'Limit', 'Why'], rows);
}

function nextStep({text, ref, command: pasted}) {
  const anchor = ref ? h('a', {href: link(...ref)}, placed(...ref)) : null;
  return h('li', text, ' ', anchor || (pasted ? command(pasted) : null));
}

function passRate(rate) {
  if (rate.value === null) return h('p.rate', 'No episode is conclusive.');
  const bounds = wholeBounds(rate.low, rate.high).join('\u2013');
  return [
    h('p.rate', h('b', percent(rate.value)), h('span.soft', `pass rate, 95% CI\u00a0${bounds}%, by task`)),
    interval(rate),
  ];
}
function verdict() {
  const run = D.verdict;
  const counts = VERDICTS.map((name) =>
    counted(name, COUNTS[name], name === 'error' && COUNTS.error !== 1 ? 'errors' : name),
  );
  const key = `${plural(TASKS.length, 'task')}, one column each, the worst first; one square an episode.`;
  const critical = E.some((episode) => episode.bad)
    ? h('span', sign('anomaly'), 'with a critical finding')
    : null;
  return opening(
    'Verdict',
    h(
      'div.hero',
      h(
        'div',
        stamp(R.verdict, run.word),
        h('h1', run.counted),
        terms('facts', run.facts),
        h('ul.next', {'aria-label': 'What to do next'}, run.next.map(nextStep)),
      ),
      h('div', passRate(R.pass_rate), h('div.counts', counts), matrix(), h('div.key', h('span', key), critical)),
    ),
    rules(run.rules),
  );
}

/* 2 Effects: what is wrong, each place linked; then every tool that changes the world, with its arguments. */

const MOST_ARGUMENT = 600,
  MOST_LINKS = 24,
  MOST_MORE = 200;

const pairs = (args) =>
  h(
    'div.kv',
    Object.entries(args || {}).map(([name, value]) => {
      const text = asText(value);
      const kind = text.length > 60 ? 'div.long' : 'div';
      return h(kind, h('i', name + ' '), cutEnd(text, MOST_ARGUMENT));
    }),
  );

/* A record's fields as they were told before and now. */
const changed = (list) =>
  list &&
  h(
    'div.chg',
    list.map((change, place) =>
      h(
        'div',
        place && list[place - 1].entity === change.entity ? null : h('em', change.entity),
        change.field + ' ',
        'before' in change ? [h('del', asText(change.before)), ' \u2192 '] : null,
        h('ins', asText(change.after)),
      ),
    ),
  );

const alarm = (critical, title, body, links) =>
  h(
    critical ? 'div.anom' : 'div.anom.warning',
    h('div', h('h3', findingSign({critical}), ' ' + title), body),
    h('div.links', links),
  );
const reached = (episode, step, tag = 'a') => h(tag, {href: link(episode, step)}, placed(episode, step));
function finding(group) {
  const places = group.at.slice(0, MOST_LINKS).map(({episode, step}) => reached(episode, step));
  const all = h(
    'a',
    {href: '#q=' + encodeURIComponent('finding:' + group.kind)},
    `all ${whole(group.count)}`,
  );
  const body = [
    h('p', group.count > 1 ? h('span.soft', 'First: ') : null, group.text),
    group.tool ? h('p.soft', 'tool ', h('code', group.tool)) : null,
  ];
  const kind = words(group.kind),
    title = `${kind[0].toUpperCase()}${kind.slice(1)}: ${plural(group.count, 'time')}`;
  return alarm(group.severity === 'critical', title, body, [places, group.count > places.length ? all : null]);
}

function effectRow(call) {
  const critical = (call.findings || []).some((finding) => finding.critical);
  return h(
    critical ? 'div.fx.bad' : 'div.fx',
    pairs(call.args),
    changed(call.changes) || h('div'),
    h(
      'div',
      findingKinds('div', call.findings),
      call.error ? h('div.err', call.error) : null,
      reached(call.episode, call.step, 'a.q'),
    ),
  );
}

/* The calls that are not in the sample, from the packed steps. */
async function otherCalls(group) {
  const seen = new Set(group.sample.map((call) => call.episode + '/' + call.step)),
    rows = [];
  for (let number = 0; number < pack().chunks.length && rows.length < MOST_MORE; number++) {
    (await chunk(number)).forEach((one, place) => {
      const episode = E[number * pack().per_chunk + place].id;
      for (const step of one ? one.steps : []) {
        const called = step.kind === 'call' && step.tool === group.name;
        if (called && !seen.has(episode + '/' + step.step)) rows.push(effectRow({...step, episode}));
      }
    });
  }
  return rows.slice(0, MOST_MORE);
}

function tool(group) {
  const rest = group.calls - group.sample.length;
  const more = async (event) => {
    event.target.disabled = true;
    const rows = await otherCalls(group),
      left = rest - rows.length;
    const every = h('a', {href: '#tool=' + encodeURIComponent(group.name)}, 'the episodes that call it');
    const others = left > 0 ? h('p.soft', `${whole(left)} more: `, every) : '';
    event.target.replaceWith(...rows, others);
  };
  const label = `Show ${rest > MOST_MORE ? `the next ${MOST_MORE} of ` : 'the other '}${whole(rest)}`;
  return h(
    'details.tool',
    {open: group.wrong > 0},
    h(
      'summary',
      h('span.tn', group.name),
      h('span.word', icon(group.effect), group.effect),
      h('span.soft', `${plural(group.calls, 'call')} in ${plural(group.episodes, 'episode')}`),
      h('span.flag', group.wrong ? `${whole(group.wrong)} wrong` : ''),
    ),
    h('div.in', group.sample.map(effectRow), rest > 0 ? button('btn', more, label) : null),
  );
}

function effects() {
  const recorded = D.kind === 'record',
    changing = TOOLS.filter((tool) => tool.sample);
  return section(
    'effects',
    recorded ? 'What it did' : 'What would have happened',
    recorded
      ? 'Calls that changed the world, for real: this run was asked to record. What cannot be undone comes first.'
      : 'Calls that would have changed the world. None of ' +
          (D.executed ? 'those that the dream answered' : 'them') +
          ' ran. What cannot be undone comes first.',
    (D.executed || []).map(([episode, call, how]) =>
      alarm(true, 'Executed, for real', [h('p', h('code', call)), h('p', how)], reached(episode)),
    ),
    R.violations.map(({episode, text}) => alarm(true, 'Refused', h('p', text), reached(episode))),
    R.findings.map(finding),
    changing.map(tool),
    changing.length ? null : h('p.soft', 'No tool was called that changes anything.'),
  );
}
