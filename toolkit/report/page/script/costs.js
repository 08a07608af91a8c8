/* 5 Faults: what was made to fail. 6 Cost. 7 Manifest. */

function faults() {
  if (!D.faults) return null;
  const rows = D.faults.kinds.map((one) =>
    h(
      'tr',
      {},
      h('th', {scope: 'row'}, words(one.kind)),
      h('td', {class: 'num'}, whole.format(one.calls)),
      h(
        'td',
        {},
        one.tools.map(([place, count]) =>
          h(
            'span',
            {class: 'word gap'},
            svg(12, 12, {}, glyph(TOOLS[place].effect)),
            h('span', {class: 'mono'}, TOOLS[place].name),
            ` ${whole.format(count)}`,
          ),
        ),
      ),
    ),
  );
  const split = D.faults.split.map((one) =>
    h(
      'tr',
      {},
      h('th', {scope: 'row'}, one.name),
      h('td', {class: 'num'}, whole.format(one.episodes)),
      ['passed', 'failed', 'inconclusive', 'error'].map((name) => h('td', {class: 'num'}, whole.format(one[name]))),
    ),
  );
  return section(
    'faults',
    'Planned faults',
    `${plural(D.faults.calls, 'call')} failed by plan, to see how the agent copes; what it was told then rests on no recording.`,
    rows.length
      ? wide('Faults by kind', h('table', {}, headings('Kind', '#Calls', 'Tools'), h('tbody', {}, rows)))
      : null,
    wide(
      'Verdicts with and without a fault',
      h(
        'table',
        {class: 'split'},
        headings('Episodes', '#Count', '#Success', '#Failure', '#Inconclusive'),
        h('tbody', {}, split),
      ),
    ),
  );
}

function spread(one) {
  const label = `${one.title}: median ${one.median}, 95 % below ${one.p95}, most ${one.most}`;
  return h(
    'figure',
    {class: 'chart'},
    h(
      'figcaption',
      {},
      h('b', {}, one.title),
      h('span', {class: 'soft'}, `median ${one.median}, p95 ${one.p95}`),
    ),
    picture(
      320,
      92,
      label,
      {},
      bars(one.bins, 320, 70, 2),
      s('rect', {x: 0, y: 70, width: 320, height: 1, class: 'f-line2'}),
      s('text', {x: 0, y: 86, class: 'f-faint'}, '0'),
      s('text', {x: 320, y: 86, 'text-anchor': 'end', class: 'f-faint'}, one.most),
    ),
  );
}
const cost = () =>
  section(
    'cost',
    'Cost and speed',
    null,
    h(
      'div',
      {class: 'stats'},
      D.cost.stats.map((one) => h('div', {}, h('b', {}, one.value), h('span', {}, one.label))),
    ),
    h('div', {class: 'charts'}, D.cost.spread.map(spread)),
  );

const manifest = () =>
  section(
    'manifest',
    'How this was made',
    'From the manifest of the run. Keys and passwords are never written there.',
    h(
      'dl',
      {class: 'man'},
      D.manifest.map(([name, value]) => [h('dt', {}, name), h('dd', {class: 'mono'}, value)]),
    ),
  );
