/* Siblings: the same task in the same world, beside each other from the first call in which they differ. */

const MOST_SIBLINGS = 12,
  MOST_PARTED = 12,
  MOST_TEXT = 300;

function parting(details, siblings, me) {
  if (siblings.length < 2 || details.some((one) => !one)) return null;
  const lists = details.map((one) => one.steps.filter((step) => step.kind === 'call'));
  const same = (place) => lists.every((list) => key(list[place]) === key(lists[0][place]));
  const key = (step) =>
    step ? step.tool + JSON.stringify(step.args) + '\n' + step.text + (step.error || '') : '';
  const longest = Math.max(...lists.map((list) => list.length));
  let first = 0;
  while (first < longest && same(first)) first++;
  if (first === longest)
    return h('p', {class: 'soft'}, 'All siblings made the same calls and got the same answers.');
  const cell = (step) =>
    !step
      ? h('span', {class: 'faint'}, '\u2013')
      : [
          h(
            'div',
            {class: 'line'},
            svg(12, 12, {}, glyph(step.effect)),
            h('b', {class: 'mono'}, step.tool),
            step.fault ? h('span', {class: 'err'}, words(step.fault)) : null,
            (step.findings || []).map((one) =>
              h('span', {class: one.critical ? 'flag' : 'err'}, words(one.kind)),
            ),
          ),
          h('div', {class: 'kv pre'}, cutEnd(Object.values(step.args).map(asText).join(' '), MOST_TEXT)),
          h(
            'div',
            {class: 'soft pre'},
            cutEnd(step.error || step.text || 'no answer', MOST_TEXT),
          ),
        ];
  const body = [];
  for (let place = first; place < Math.min(longest, first + MOST_PARTED); place++) {
    body.push(
      h(
        'tr',
        {class: place === first ? 'here' : null},
        lists.map((list, column) =>
          h('td', {class: siblings[column] === me ? 'me' : null}, cell(list[place])),
        ),
      ),
    );
  }
  return h(
    'details',
    {class: 'part', open: true},
    h(
      'summary',
      {},
      first ? `The siblings part at call ${first + 1}` : 'The siblings part at the first call',
    ),
    wide(
      'Where the siblings part',
      h(
        'table',
        {class: 'sibtab'},
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            siblings.map((one) =>
              h(
                'th',
                {scope: 'col'},
                h('a', {href: link(one.id)}, one.id),
                ' ',
                sign(one.bad ? 'anomaly' : one.verdict, 11),
              ),
            ),
          ),
        ),
        h(
          'tbody',
          {},
          first
            ? h(
                'tr',
                {},
                h(
                  'td',
                  {class: 'same', colspan: siblings.length},
                  'the same for all: ' +
                    lists[0]
                      .slice(0, first)
                      .map((step) => step.tool)
                      .join(', '),
                ),
              )
            : null,
          body,
        ),
      ),
    ),
  );
}

function siblingLinks(siblings, me) {
  if (siblings.length < 2) return null;
  return h(
    'nav',
    {class: 'sibs', 'aria-label': 'Siblings: the same task in the same world'},
    siblings.map((one) =>
      h(
        'a',
        {class: 'sib', href: link(one.id), 'aria-current': one === me ? 'page' : null},
        h('span', {class: 'word'}, sign(one.bad ? 'anomaly' : one.verdict), one.id),
        h('div', {}, path(one)),
      ),
    ),
  );
}

/* Around one episode of many siblings, only its neighbours are laid side by side. */
function besides(episode) {
  const all = E.filter((one) => one.task === episode.task),
    at = all.indexOf(episode);
  const from = Math.max(0, Math.min(at - MOST_SIBLINGS / 2, all.length - MOST_SIBLINGS));
  return {all, near: all.slice(from, from + MOST_SIBLINGS)};
}
