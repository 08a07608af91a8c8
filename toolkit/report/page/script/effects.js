/* 2 Effects: what is wrong, each place linked; then every tool that changes the world, with its arguments. */

const MOST_ARGUMENT = 600,
  MOST_LINKS = 24,
  MOST_MORE = 200;

const pairs = (args) =>
  h(
    'div.kv',
    Object.entries(args || {}).map(([name, value]) => {
      const text = asText(value);
      return h(
        'div',
        {class: text.length > 60 ? 'long' : null},
        h('i', name + ' '),
        cutEnd(text, MOST_ARGUMENT),
      );
    }),
  );

/* A record's fields as they were told before and now. */
const changed = (list) =>
  !list
    ? null
    : h(
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
const reached = (place, step, tag = 'a') =>
  h(tag, {href: link(E[place].id, step)}, placed(E[place].id, step));
function finding(group) {
  const more = group.count - Math.min(group.at.length, MOST_LINKS),
    all = '#q=' + encodeURIComponent('finding:' + group.kind);
  return alarm(
    group.critical,
    `${group.title}: ${plural(group.count, 'time')}`,
    [
      h('p', group.count > 1 ? h('span.soft', 'First: ') : null, group.text),
      group.tool ? h('p.soft', 'tool ', h('code', group.tool)) : null,
    ],
    [
      group.at.slice(0, MOST_LINKS).map(([place, step]) => reached(place, step)),
      more > 0 ? h('a', {href: all}, `all ${whole.format(group.count)}`) : null,
    ],
  );
}

function effectRow(call) {
  const critical = (call.findings || []).some((one) => one.critical);
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
            'p.soft',
            `${whole.format(left)} more: `,
            h('a', {href: '#tool=' + encodeURIComponent(group.tool)}, 'the episodes that call it'),
          )
        : '',
    );
  };
  return h(
    'details.tool',
    {open: group.wrong > 0},
    h(
      'summary',
      h('span.tn', group.tool),
      h('span.word', icon(group.effect), group.effect),
      h('span.soft', `${plural(group.calls, 'call')} in ${plural(group.episodes, 'episode')}`),
      h('span.flag', group.wrong ? `${whole.format(group.wrong)} wrong` : ''),
    ),
    h(
      'div.in',
      group.sample.map(effectRow),
      rest > 0
        ? h(
            'button.btn',
            {type: 'button', onclick: more},
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
      alarm(true, 'Executed, for real', [h('p', h('code', call)), h('p', how)], reached(place)),
    ),
    D.violations.map(([place, text]) => alarm(true, 'Refused', h('p', text), reached(place))),
    D.findings.map(finding),
    D.effects.map(tool),
    D.effects.length ? null : h('p.soft', 'No tool was called that changes anything.'),
  );
}
