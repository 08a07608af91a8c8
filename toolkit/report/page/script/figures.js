/* 3 Trust: where the dream's answers came from, tool by tool. */

const sourceKey = (counts) =>
  h(
    'div.key',
    Object.keys(SOURCES)
      .filter((code) => counts[code])
      .map((code) =>
        h(
          'span',
          swatch(code),
          `${CODES[code]} ${whole.format(counts[code])}`,
          h('span.faint', SOURCES[code][1]),
        ),
      ),
  );

/* What mined answers were worth on recordings that nothing was mined from, by the confidence asked for. */
function heldOut(curve) {
  const width = 320,
    height = 110,
    bottom = 84;
  const x = (share) => 4 + share * (width - 8),
    y = (share) => 6 + (1 - share) * (bottom - 6);
  const line = (points) => 'M' + points.map(([at, share]) => `${x(at)} ${y(share)}`).join('L');
  const exact = curve.filter(([, , share]) => share !== null).map(([at, , share]) => [at, share]);
  const label = curve
    .map(
      ([at, answered, right]) =>
        `confidence ${at}: ${percent(answered)} answered` +
        (right === null ? '' : `, ${percent(right)} of these exact`),
    )
    .join('; ');
  const key = (look, name) => h('span', svg(16, 8, {}, s('path', {d: 'M0 4h16', class: look})), name);
  return h(
    'div.charts',
    chart(
      'Mined answers on held-out recordings',
      null,
      picture(
        width,
        height,
        label,
        {},
        s('rect', {x: 4, y: bottom, width: width - 8, height: 1, class: 'f-line2'}),
        s('path', {d: line(curve), class: 'l-soft'}),
        exact.length ? s('path', {d: line(exact), class: 'l-ok'}) : null,
        s('text', {x: 4, y: 102, class: 'f-faint'}, 'confidence 0'),
        s('text', {x: width - 4, y: 102, 'text-anchor': 'end', class: 'f-faint'}, '1'),
      ),
      h('div.key', key('l-ok', 'exact'), key('l-soft', 'answered, dashed')),
    ),
  );
}

/* How well grounded the answers of a tool were: a small histogram with their median. */
const confidences = ({bins, median}) =>
  h(
    'span.word',
    svg(90, 18, {}, s('rect', {x: 0, y: 17, width: 90, height: 1, class: 'f-line2'}), bars(bins, 90, 17)),
    median.toFixed(2),
  );
const trustRow = (one) =>
  h(
    'tr',
    h('th.mono', {scope: 'row'}, one.name),
    amount(one.calls),
    h('td', stack(one.sources)),
    h('td.num', `${whole.format(one.grounded)} of ${whole.format(one.dreamt)}`),
    h('td', one.confidence ? confidences(one.confidence) : null),
    least(one.confidence?.least),
    amount(one.sources.x || 0, one.sources.x ? ' w-watch' : ' faint'),
    amount(one.errors, one.errors ? '' : ' faint'),
  );
const TRUST_COLUMNS = [
  'Tool, weakest first',
  '#Calls',
  'Where answers came from',
  '#On recordings',
  'Support, 0 to 1',
  '#Least',
  '#Abstained',
  '#Errors told',
];
function trust() {
  const counts = D.trust.sources,
    weakestFirst = D.trust.order.map((place) => trustRow(TOOLS[place]));
  if (!Object.values(counts).some(Boolean)) return null;
  return section(
    'trust',
    'How far to trust the dream',
    D.trust.text + '.',
    h('div.whole', stack(counts, 1100, 20)),
    sourceKey(counts),
    weakestFirst.length ? table('Tools', 'table.tools', TRUST_COLUMNS, weakestFirst) : null,
    D.trust.curve ? heldOut(D.trust.curve) : null,
  );
}

/* 5 Faults: what was made to fail. 6 Cost. 7 Manifest. */

function faults() {
  if (!D.faults) return null;
  const used = ([place, count]) =>
    h(
      'span.word.gap',
      icon(TOOLS[place].effect),
      h('span.mono', TOOLS[place].name),
      ` ${whole.format(count)}`,
    );
  const verdicts = ['passed', 'failed', 'inconclusive', 'error'];
  return section(
    'faults',
    'Planned faults',
    `${plural(D.faults.calls, 'call')} failed by plan, to see how the agent copes; what it was told then rests on no recording.`,
    D.faults.kinds.length
      ? table(
          'Faults by kind',
          'table',
          ['Kind', '#Calls', 'Tools'],
          D.faults.kinds.map((one) =>
            tableRow(words(one.kind), amount(one.calls), h('td', one.tools.map(used))),
          ),
        )
      : null,
    table(
      'Verdicts with and without a fault',
      'table.split',
      ['Episodes', '#Count', '#Success', '#Failure', '#Inconclusive'],
      D.faults.split.map((one) =>
        tableRow(
          one.name,
          amount(one.episodes),
          verdicts.map((name) => amount(one[name])),
        ),
      ),
    ),
  );
}

const spread = (one) =>
  chart(
    one.title,
    `median ${one.median}, p95 ${one.p95}`,
    picture(
      320,
      92,
      `${one.title}: median ${one.median}, 95 % below ${one.p95}, most ${one.most}`,
      {},
      bars(one.bins, 320, 70, 2),
      s('rect', {x: 0, y: 70, width: 320, height: 1, class: 'f-line2'}),
      s('text', {x: 0, y: 86, class: 'f-faint'}, '0'),
      s('text', {x: 320, y: 86, 'text-anchor': 'end', class: 'f-faint'}, one.most),
    ),
  );
const cost = () =>
  section(
    'cost',
    'Cost and speed',
    null,
    h(
      'div.stats',
      D.cost.stats.map((one) => h('div', h('b', one.value), h('span', one.label))),
    ),
    h('div.charts', D.cost.spread.map(spread)),
  );

const manifest = () =>
  section(
    'manifest',
    'How this was made',
    'From the manifest of the run. Keys and passwords are never written there.',
    h(
      'dl.man',
      D.manifest.map(([name, value]) => [h('dt', name), h('dd.mono', value)]),
    ),
  );
