/* 2 Effects: what is wrong, each place linked; then every tool that changes the world, with its arguments. */

const MOST_ARGUMENT = 600,
  MOST_LINKS = 24,
  MOST_MORE = 200;

const pairs = (args) =>
  h(
    'div',
    {class: 'kv'},
    Object.entries(args || {}).map(([name, value]) => {
      const text = asText(value);
      return h(
        'div',
        {class: text.length > 60 ? 'long' : null},
        h('i', {}, name + ' '),
        cutEnd(text, MOST_ARGUMENT),
      );
    }),
  );

/* A record's fields as they were told before and now. */
const changed = (list) =>
  !list
    ? null
    : h(
        'div',
        {class: 'chg'},
        list.map((change, place) =>
          h(
            'div',
            {},
            place && list[place - 1].entity === change.entity ? null : h('em', {}, change.entity),
            change.field + ' ',
            'before' in change ? [h('del', {}, asText(change.before)), ' \u2192 '] : null,
            h('ins', {}, asText(change.after)),
          ),
        ),
      );

function finding(group) {
  const places = group.at
    .slice(0, MOST_LINKS)
    .map(([place, step]) => h('a', {href: link(E[place].id, step)}, placed(E[place].id, step)));
  const more = group.count - places.length;
  return h(
    'div',
    {class: 'anom' + (group.critical ? '' : ' warning')},
    h(
      'div',
      {},
      h(
        'h3',
        {},
        sign(group.critical ? 'anomaly' : 'look'),
        ` ${group.title}: ${plural(group.count, 'time')}`,
      ),
      h('p', {}, group.count > 1 ? h('span', {class: 'soft'}, 'First: ') : null, group.text),
      group.tool ? h('p', {class: 'soft'}, 'tool ', h('code', {}, group.tool)) : null,
    ),
    h(
      'div',
      {class: 'links'},
      places,
      more > 0
        ? h(
            'a',
            {href: '#q=' + encodeURIComponent('finding:' + group.kind)},
            `all ${whole.format(group.count)}`,
          )
        : null,
    ),
  );
}

function effectRow(call) {
  const episode = E[call.episode],
    found = call.findings || [];
  return h(
    'div',
    {class: 'fx' + (found.some((one) => one.critical) ? ' bad' : '')},
    pairs(call.args),
    changed(call.changes) || h('div'),
    h(
      'div',
      {},
      found.map((one) => h('div', {class: one.critical ? 'flag' : 'err'}, words(one.kind))),
      call.error ? h('div', {class: 'err'}, call.error) : null,
      h('a', {class: 'q', href: link(episode.id, call.step)}, placed(episode.id, call.step)),
    ),
  );
}

/* The calls that are not in the sample, from the packed steps. */
async function otherCalls(tool, seen) {
  const rows = [];
  for (let number = 0; number < PACK.chunks.length && rows.length < MOST_MORE; number++) {
    (await chunk(number)).forEach((one, place) =>
      (one ? one.steps : []).forEach((step) => {
        const episode = number * PACK.per_chunk + place;
        if (
          step.tool === tool &&
          step.kind === 'call' &&
          !seen.has(episode + '/' + step.step) &&
          rows.length < MOST_MORE
        ) {
          rows.push(effectRow({...step, episode}));
        }
      }),
    );
  }
  return rows;
}

function tool(group) {
  const rest = group.calls - group.sample.length;
  const more = async (event) => {
    event.target.disabled = true;
    const rows = await otherCalls(
      group.tool,
      new Set(group.sample.map((call) => call.episode + '/' + call.step)),
    );
    const left = rest - rows.length;
    event.target.replaceWith(
      ...rows,
      left > 0
        ? h(
            'p',
            {class: 'soft'},
            `${whole.format(left)} more: `,
            h('a', {href: '#tool=' + encodeURIComponent(group.tool)}, 'the episodes that call it'),
          )
        : '',
    );
  };
  return h(
    'details',
    {class: 'tool', open: group.wrong > 0},
    h(
      'summary',
      {},
      h('span', {class: 'tn'}, group.tool),
      h('span', {class: 'word'}, svg(12, 12, {}, glyph(group.effect)), group.effect),
      h('span', {class: 'soft'}, `${plural(group.calls, 'call')} in ${plural(group.episodes, 'episode')}`),
      h('span', {class: 'flag'}, group.wrong ? `${whole.format(group.wrong)} wrong` : ''),
    ),
    h(
      'div',
      {class: 'in'},
      group.sample.map(effectRow),
      rest > 0
        ? h(
            'button',
            {class: 'btn', type: 'button', onclick: more},
            `Show ${rest > MOST_MORE ? 'the next ' + MOST_MORE + ' of ' : 'the other '}${whole.format(rest)}`,
          )
        : null,
    ),
  );
}

function effects() {
  const recorded = D.kind === 'record';
  return section(
    'effects',
    recorded ? 'What it did' : 'What would have happened',
    recorded
      ? 'Calls that changed the world, for real: this run was asked to record. What cannot be undone comes first.'
      : 'Calls that would have changed the world. None of ' +
          (D.executed ? 'those that the dream answered' : 'them') +
          ' ran. What cannot be undone comes first.',
    (D.executed || []).map(([place, call, how]) =>
      h(
        'div',
        {class: 'anom'},
        h(
          'div',
          {},
          h('h3', {}, sign('anomaly'), ' Executed, for real'),
          h('p', {}, h('code', {}, call)),
          h('p', {}, how),
        ),
        h('div', {class: 'links'}, h('a', {href: link(E[place].id)}, E[place].id)),
      ),
    ),
    D.violations.map(([place, text]) =>
      h(
        'div',
        {class: 'anom'},
        h('div', {}, h('h3', {}, sign('anomaly'), ' Refused'), h('p', {}, text)),
        h('div', {class: 'links'}, h('a', {href: link(E[place].id)}, E[place].id)),
      ),
    ),
    D.findings.map(finding),
    D.effects.map(tool),
    D.effects.length ? null : h('p', {class: 'soft'}, 'No tool was called that changes anything.'),
  );
}
