/* A training: the sentence, its figures, then one small drawing a figure, step by step. */

const L = D.training;
const PLOT = {width: 360, height: 170, left: 46, right: 8, top: 10, bottom: 22};
const LINES = ['1', '2', '3', '4', '5'];

const stepSpan = () => Math.max(1, L.steps.at(-1) || 1);
const xOf = (step) => PLOT.left + (step / stepSpan()) * (PLOT.width - PLOT.left - PLOT.right);
const yOf = (value, most) =>
  PLOT.height - PLOT.bottom - (Math.min(value, most) / most) * (PLOT.height - PLOT.top - PLOT.bottom);
const tenth = (value) => Math.round(value * 10) / 10;

function tick(value, share) {
  if (share) return Math.round(value * 100) + '\u2009%';
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(1); // all that fits beside the drawing
  return value === 0 ? '0' : Number(value.toPrecision(2)).toString();
}
function frame(curve) {
  const room = PLOT.width - PLOT.left - PLOT.right;
  return [
    [0, 0.5, 1].map((part) => {
      const y = tenth(yOf(part * curve.most, curve.most));
      return [
        s('rect', {x: PLOT.left, y, width: room, height: 1, class: part ? 'f-line' : 'f-line2'}),
        s(
          'text',
          {x: PLOT.left - 5, y: y + 4, 'text-anchor': 'end', class: 'f-faint'},
          tick(part * curve.most, curve.share),
        ),
      ];
    }),
    s('text', {x: PLOT.left, y: PLOT.height - 5, class: 'f-faint'}, '0'),
    s(
      'text',
      {x: PLOT.width - PLOT.right, y: PLOT.height - 5, 'text-anchor': 'end', class: 'f-faint'},
      'step ' + stepSpan(),
    ),
  ];
}
/* Where an alarm would stop it; only bounds that are on the drawing. */
function bounds(curve) {
  return (curve.corridor || [])
    .filter((bound) => bound !== null && bound <= curve.most)
    .map((bound) =>
      s('path', {
        d: `M${PLOT.left} ${tenth(yOf(bound, curve.most))}H${PLOT.width - PLOT.right}`,
        class: 'l-bound',
      }),
    );
}
/* A line breaks where nothing was measured. */
function lineOf(curve, values, place) {
  let drawn = '',
    open = false;
  values.forEach((value, index) => {
    if (value === null) {
      open = false;
      return;
    }
    drawn += `${open ? 'L' : 'M'}${tenth(xOf(L.steps[index]))} ${tenth(yOf(value, curve.most))}`;
    open = true;
  });
  const alone = values.filter((value) => value !== null).length === 1;
  return alone
    ? s('circle', {
        cx: xOf(L.steps[values.findIndex((value) => value !== null)]),
        cy: yOf(
          values.find((value) => value !== null),
          curve.most,
        ),
        r: 3,
        class: 'f-t' + LINES[place],
      })
    : s('path', {d: drawn, class: 'l-t' + LINES[place]});
}
function layers(curve) {
  const below = L.steps.map(() => 0),
    each = Math.max(0.8, (PLOT.width - PLOT.left - PLOT.right) / stepSpan() - 1);
  return curve.lines.map((line, place) =>
    line.values.map((value, index) => {
      const from = below[index];
      below[index] += value || 0;
      const top = yOf(below[index], curve.most),
        height = yOf(from, curve.most) - top;
      return height > 0.05
        ? s('rect', {
            x: tenth(xOf(L.steps[index]) - each),
            y: tenth(top),
            width: tenth(each),
            height: Math.max(0.3, tenth(height)),
            class: 'f-t' + LINES[place],
          })
        : null;
    }),
  );
}
const measured = (curve) =>
  curve.marks.map((mark) => {
    const x = tenth(xOf(mark.step)),
      [low, middle, high] = mark.at.map((value) => tenth(yOf(value, curve.most)));
    return [
      s('rect', {x: x - 1, y: high, width: 2, height: Math.max(1, low - high), class: 'f-ok'}),
      s('circle', {cx: x, cy: middle, r: 4, class: 'f-ok'}),
    ];
  });
function drawing(curve) {
  const last = curve.lines
    .map((line) => (curve.lines.length > 1 ? line.name + ' ' : '') + line.last)
    .join(', ');
  const label = `${curve.title}, ${plural(L.steps.length, 'step')}; last: ${last}. ${curve.marks.map((mark) => mark.told).join(', ')}`;
  const drawn = chart(
    curve.title,
    curve.lines.length > 1 ? '' : 'last ' + last,
    picture(
      PLOT.width,
      PLOT.height,
      label,
      {},
      frame(curve),
      bounds(curve),
      curve.stacked ? layers(curve) : curve.lines.map((line, place) => lineOf(curve, line.values, place)),
      measured(curve),
    ),
    curve.lines.length > 1 || curve.marks.length
      ? h(
          'div.key',
          curve.lines.map((line, place) => h('span', swatch('t' + LINES[place]), line.name)),
          curve.marks.length
            ? h(
                'span',
                svg(11, 11, {}, s('circle', {cx: 5.5, cy: 5.5, r: 4, class: 'f-ok'})),
                'held-out tasks, 95 %',
              )
            : null,
        )
      : null,
    h(
      'p.q',
      curve.note,
      curve.corridor && bounds(curve).length ? ' Dashed: where an alarm stops the run.' : '',
    ),
  );
  drawn.id = 'curve-' + curve.key;
  return drawn;
}

const learned = () =>
  opening('What it was worth', stamp(L.sign, L.stamp), h('h1.told', L.sentence), terms('facts', L.facts));
const measuredTable = () => {
  const marks = L.curves.flatMap((curve) => curve.marks);
  return marks.length
    ? section(
        'measured',
        'Held-out tasks',
        'Tasks that it never learned from: the only result of a training.',
        h(
          'ul',
          marks.map((mark) => h('li', mark.told)),
        ),
      )
    : null;
};
const course = () =>
  L.curves.length
    ? section('course', 'How it went', 'Step by step.', h('div.charts', L.curves.map(drawing)))
    : null;

const TRAINING_PARTS = [
  ['verdict', 'Result', learned],
  ['measured', 'Held-out', measuredTable],
  ['course', 'Course', course],
  ['manifest', 'Manifest', manifest],
];
