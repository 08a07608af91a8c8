/* 3 Trust: where the dream's answers came from, tool by tool. */

const sourceKey = (counts) =>
  h(
    'div.key',
    Object.entries(SOURCES)
      .filter(([, [name]]) => counts[name])
      .map(([code, [name, meaning]]) =>
        h('span', swatch(code), `${name} ${whole(counts[name])}`, h('span.faint', meaning)),
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
  const answers = curve.map(({confidence, answered}) => [confidence, answered]);
  const right = curve.filter(({exact}) => exact !== null).map(({confidence, exact}) => [confidence, exact]);
  const spoken = ({confidence, answered, exact}) =>
    `confidence ${confidence}: ${percent(answered)} answered` +
    (exact === null ? '' : `, ${percent(exact)} of these exact`);
  const key = (look, name) => h('span', svg(16, 8, {}, stroke('M0 4h16', look)), name);
  const drawing = picture(
    width,
    height,
    curve.map(spoken).join('; '),
    {},
    rect(4, bottom, width - 8, 1, 'f-line2'),
    stroke(line(answers), 'l-soft'),
    right.length ? stroke(line(right), 'l-ok') : null,
    caption(4, 102, null, 'confidence 0'),
    caption(width - 4, 102, 'end', '1'),
  );
  const keys = h('div.key', key('l-ok', 'exact'), key('l-soft', 'answered, dashed'));
  return h('div.charts', chart('Mined answers on held-out recordings', null, drawing, keys));
}

/* How well grounded the answers of a tool were: a small histogram with their median. */
const confidences = ({bins, median}) =>
  h('span.word', svg(90, 18, {}, rect(0, 17, 90, 1, 'f-line2'), bars(bins, 90, 17)), median.toFixed(2));
const trustRow = (tool) =>
  h(
    'tr',
    h('th.mono', {scope: 'row'}, tool.name),
    amount(tool.calls),
    h('td', stack(tool.sources)),
    h('td.num', `${whole(tool.grounded)} of ${whole(tool.dreamt)}`),
    h('td', tool.confidence ? confidences(tool.confidence) : null),
    least(tool.confidence?.least),
    amount(tool.sources.unanswered || 0, tool.sources.unanswered ? ' w-watch' : ' faint'),
    amount(tool.errors, tool.errors ? '' : ' faint'),
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
  const counts = R.coverage.sources,
    share = (tool) => tool.grounded / tool.dreamt,
    dreamt = TOOLS.filter((tool) => tool.dreamt);
  const weakestFirst = dreamt
    .sort(
      (one, other) =>
        share(one) - share(other) || other.calls - one.calls || (one.name < other.name ? -1 : 1),
    )
    .map(trustRow);
  if (!Object.values(counts).some(Boolean)) return null;
  return section(
    'trust',
    'How far to trust the dream',
    D.coverage + '.',
    h('div.whole', stack(counts, 1100, 20)),
    sourceKey(counts),
    weakestFirst.length ? table('Tools', 'table.tools', TRUST_COLUMNS, weakestFirst) : null,
    R.fidelity.curve.length ? heldOut(R.fidelity.curve) : null,
  );
}

/* 5 Faults: what was made to fail. 6 Cost. 7 Manifest. */

const SPLIT_COLUMNS = ['Episodes', '#Count', '#Passed', '#Failed', '#Inconclusive', '#Error'];
function faults() {
  if (!D.faults) return null;
  const used = ([name, count]) => {
    const {effect} = TOOLS.find((tool) => tool.name === name);
    return h('span.word.gap', icon(effect), h('span.mono', name), ` ${whole(count)}`);
  };
  const kinds = D.faults.kinds.map((fault) =>
    tableRow(words(fault.kind), amount(fault.calls), h('td', fault.tools.map(used))),
  );
  const split = ['with a fault', 'without'].map((name, without) => {
    const those = E.filter((episode) => (episode.faults === 0) === Boolean(without));
    const ended = (verdict) => amount(those.filter((episode) => episode.verdict === verdict).length);
    return those.length ? tableRow(name, amount(those.length), VERDICTS.map(ended)) : null;
  });
  return section(
    'faults',
    'Planned faults',
    `${plural(D.faults.calls, 'call')} failed by plan, to see how the agent copes; what it was told then rests on no recording.`,
    kinds.length ? table('Faults by kind', 'table', ['Kind', '#Calls', 'Tools'], kinds) : null,
    table('Verdicts with and without a fault', 'table.split', SPLIT_COLUMNS, split),
  );
}

function spread({title, bins, median, p95, most}) {
  const label = `${title}: median ${median}, 95 % below ${p95}, most ${most}`;
  const drawing = picture(
    320,
    92,
    label,
    {},
    bars(bins, 320, 70, 2),
    rect(0, 70, 320, 1, 'f-line2'),
    caption(0, 86, null, '0'),
    caption(320, 86, 'end', most),
  );
  return chart(title, `median ${median}, p95 ${p95}`, drawing);
}
const cost = () =>
  section(
    'cost',
    'Cost and speed',
    null,
    h('div.stats', D.cost.stats.map(({value, label}) => h('div', h('b', value), h('span', label)))),
    h('div.charts', D.cost.spread.map(spread)),
  );

const manifest = () =>
  section(
    'manifest',
    'How this was made',
    'From the manifest of the run. Keys and passwords are never written there.',
    terms('man', D.manifest, 'dd.mono'),
  );
