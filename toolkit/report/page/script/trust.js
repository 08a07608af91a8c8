/* 3 Trust: where the dream's answers came from, tool by tool. */

const provenanceKey = (counts) =>
  h(
    'div',
    {class: 'key'},
    ORDER.filter((code) => counts[code]).map((code) =>
      h(
        'span',
        {},
        swatch(code),
        `${CODES[code]} ${whole.format(counts[code])}`,
        h('span', {class: 'faint'}, MEANS[code]),
      ),
    ),
  );

function trust() {
  const counts = D.trust.provenance,
    total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  if (!total) return null;
  const row = (one) =>
    h(
      'tr',
      {},
      h('th', {scope: 'row', class: 'mono'}, one.name),
      h('td', {class: 'num'}, whole.format(one.calls)),
      h('td', {}, stack(one.provenance)),
      h('td', {class: 'num'}, `${whole.format(one.grounded)} of ${whole.format(one.dreamt)}`),
      h(
        'td',
        {},
        one.support
          ? h(
              'span',
              {class: 'word'},
              svg(
                90,
                18,
                {},
                s('rect', {x: 0, y: 17, width: 90, height: 1, class: 'f-line2'}),
                bars(one.support.bins, 90, 17),
              ),
              one.support.median.toFixed(2),
            )
          : null,
      ),
      h(
        'td',
        {class: 'num' + (one.support && one.support.least < 0.5 ? ' w-watch' : '')},
        one.support ? one.support.least.toFixed(2) : '',
      ),
      h(
        'td',
        {class: 'num' + (one.provenance.x ? ' w-watch' : ' faint')},
        whole.format(one.provenance.x || 0),
      ),
      h('td', {class: 'num' + (one.errors ? '' : ' faint')}, whole.format(one.errors)),
    );
  const table = D.trust.order.length
    ? wide(
        'Tools',
        h(
          'table',
          {class: 'tools'},
          headings(
            'Tool, weakest first',
            '#Calls',
            'Where answers came from',
            '#On recordings',
            'Support, 0 to 1',
            '#Least',
            '#Abstained',
            '#Errors told',
          ),
          h(
            'tbody',
            {},
            D.trust.order.map((place) => row(TOOLS[place])),
          ),
        ),
      )
    : null;
  return section(
    'trust',
    'How far to trust the dream',
    D.trust.text + '.',
    h('div', {class: 'whole'}, stack(counts, 1100, 20)),
    provenanceKey(counts),
    table,
  );
}
