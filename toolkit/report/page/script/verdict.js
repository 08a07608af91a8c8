/* 1 Verdict: the word with the counts of all episodes, the rate with its interval, one square an episode, every rule. */

const MOST_COLUMNS = 400;

function interval(verdict) {
  const width = 520,
    x = (share) => 7 + share * (width - 14);
  const [low, high] = wholeBounds(verdict.low, verdict.high);
  const label = `pass rate ${percent(verdict.rate)}, 95% CI ${low} to ${high}%`;
  return picture(
    width,
    40,
    label,
    {width: '100%', height: 40, class: 'axis', preserveAspectRatio: 'xMinYMid'},
    s('rect', {x: 7, y: 13, width: width - 14, height: 2, class: 'f-line2'}),
    [0, 0.25, 0.5, 0.75, 1].map((share) =>
      s(
        'text',
        {
          x: x(share),
          y: 36,
          class: 'f-faint',
          'text-anchor': share === 0 ? 'start' : share === 1 ? 'end' : 'middle',
        },
        percent(share),
      ),
    ),
    s('rect', {
      x: x(verdict.low),
      y: 10,
      width: Math.max(2, x(verdict.high) - x(verdict.low)),
      height: 8,
      rx: 4,
      class: 'f-soft',
    }),
    s('circle', {cx: x(verdict.rate), cy: 14, r: 6.5, class: 'f-ink'}),
  );
}

/* One column a task (the worst first, as Python ordered them), one square an episode. */
function matrix() {
  const columns = TASKS.map(() => []);
  E.forEach((episode) => columns[episode.task].push(episode));
  const shown = columns.slice(0, MOST_COLUMNS);
  return [
    h(
      'div.matrix',
      shown.map((episodes, place) => {
        const tall = Math.max(1, episodes.length) * 17;
        return svg(
          17,
          tall,
          {},
          episodes.map((episode, row) => square(episode, TASKS[place], row * 17)),
        );
      }),
    ),
    columns.length > MOST_COLUMNS
      ? h('p.soft', `the ${MOST_COLUMNS} worst of ${plural(columns.length, 'task')}`)
      : null,
  ];
}
function square(episode, task, y) {
  const node = s(
    'a',
    {href: link(episode.id), tabindex: -1, class: 'sq'},
    s('title', {}, `${episode.id}: ${episode.verdict}\n${episode.reason}\n${task.text}`),
  );
  const full = () => s('rect', {x: 1, y: y + 1, width: 14, height: 14, rx: 2, class: 'f-bad'}),
    stroke = (d, kind = 's-card') => s('path', {d, class: kind});
  const hollow = {
    x: 1.7,
    y: y + 1.7,
    width: 12.6,
    height: 12.6,
    rx: 2,
    class: 'f-und',
    'pointer-events': 'all',
  };
  const shapes = {
    passed: () => [s('rect', {x: 1, y: y + 1, width: 14, height: 14, rx: 2, class: 'f-ok'})],
    inconclusive: () => [s('rect', hollow), stroke(`M5 ${y + 8}h6`, 's-soft')],
    error: () => [
      s('path', {d: `M5 ${y + 1}h6l4 4v6l-4 4H5l-4-4V${y + 5}z`, class: 'f-bad'}),
      stroke(`M5 ${y + 8}h6`),
    ],
    failed: () => [full(), stroke(`M5.4 ${y + 5.4}l5.2 5.2M10.6 ${y + 5.4}l-5.2 5.2`)],
    anomaly: () => [full(), stroke(`M8 ${y + 4}v5M8 ${y + 11.4}v.7`)],
  };
  node.append(...shapes[episode.bad ? 'anomaly' : episode.verdict]());
  return node;
}

function rules(list) {
  const result = (rule) =>
    rule.passed === null
      ? h('span.soft', 'not asked')
      : h(
          'span',
          {class: 'word v-' + rule.verdict},
          sign(rule.verdict),
          rule.passed ? 'holds' : rule.verdict,
        );
  return table(
    'Gate rules',
    'table.rules',
    ['Gate', 'Result', 'Measured', 'Limit', 'Why'],
    list.map((rule) =>
      tableRow(
        rule.key,
        h('td', result(rule)),
        h('td', rule.measured),
        h('td.soft', rule.limit),
        h('td.soft', rule.why),
      ),
    ),
  );
}

function nextStep(step) {
  return h(
    'li',
    step.text,
    ' ',
    step.ref
      ? h('a', {href: link(step.ref[0], step.ref[1])}, placed(step.ref[0], step.ref[1]))
      : step.command
        ? command(step.command)
        : null,
  );
}

function verdict() {
  const said = D.verdict;
  const rate =
    said.rate === null
      ? h('p.rate', 'No episode is conclusive.')
      : [
          h(
            'p.rate',
            h('b', percent(said.rate)),
            h(
              'span.soft',
              `pass rate, 95% CI\u00a0${wholeBounds(said.low, said.high).join('\u2013')}%, by task`,
            ),
          ),
          interval(said),
        ];
  return opening(
    'Verdict',
    h(
      'div.hero',
      h(
        'div',
        stamp(said.verdict, said.word),
        h('h1', said.counted),
        terms('facts', said.facts),
        h('ul.next', {'aria-label': 'What to do next'}, said.next.map(nextStep)),
      ),
      h(
        'div',
        rate,
        h(
          'div.counts',
          Object.entries(said.counts).map(([name, count]) =>
            counted(name, count, name === 'error' && count !== 1 ? 'errors' : name),
          ),
        ),
        matrix(),
        h(
          'div.key',
          h(
            'span',
            `${plural(TASKS.length, 'task')}, one column each, the worst first; one square an episode.`,
          ),
          E.some((episode) => episode.bad) ? h('span', sign('anomaly'), 'with a critical finding') : null,
        ),
      ),
    ),
    rules(said.rules),
  );
}
