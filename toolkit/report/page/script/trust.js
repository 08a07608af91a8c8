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

/* What mined answers were worth on recordings that nothing was mined from, by the support asked for. */
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
        `support ${at}: ${percent(answered)} answered` +
        (right === null ? '' : `, ${percent(right)} of these exact`),
    )
    .join('; ');
  return h(
    'div',
    {class: 'charts'},
    h(
      'figure',
      {class: 'chart'},
      h('figcaption', {}, h('b', {}, 'Mined answers on held-out recordings')),
      picture(
        width,
        height,
        label,
        {},
        s('rect', {x: 4, y: bottom, width: width - 8, height: 1, class: 'f-line2'}),
        s('path', {d: line(curve), class: 'l-soft'}),
        exact.length ? s('path', {d: line(exact), class: 'l-ok'}) : null,
        s('text', {x: 4, y: 102, class: 'f-faint'}, 'support 0'),
        s('text', {x: width - 4, y: 102, 'text-anchor': 'end', class: 'f-faint'}, '1'),
      ),
      h(
        'div',
        {class: 'key'},
        h('span', {}, svg(16, 8, {}, s('path', {d: 'M0 4h16', class: 'l-ok'})), 'exact'),
        h('span', {}, svg(16, 8, {}, s('path', {d: 'M0 4h16', class: 'l-soft'})), 'answered, dashed'),
      ),
    ),
  );
}

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
    D.trust.curve ? heldOut(D.trust.curve) : null,
  );
}
