/* A training: the sentence, its figures, then one small drawing a figure, step by step. */

const L = D.training;
const PLOT = {width: 360, height: 170, left: 46, right: 8, top: 10, bottom: 22};

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
  const right = PLOT.width - PLOT.right,
    below = PLOT.height - 5;
  const rule = (part) => {
    const y = tenth(yOf(part * curve.most, curve.most));
    return [
      rect(PLOT.left, y, right - PLOT.left, 1, part ? 'f-line' : 'f-line2'),
      caption(PLOT.left - 5, y + 4, 'end', tick(part * curve.most, curve.share)),
    ];
  };
  const steps = [caption(PLOT.left, below, null, '0'), caption(right, below, 'end', 'step ' + stepSpan())];
  return [[0, 0.5, 1].map(rule), steps];
}
/* Where an alarm would stop it; only bounds that are on the drawing. */
const bounds = (curve) =>
  (curve.corridor || [])
    .filter((bound) => bound !== null && bound <= curve.most)
    .map((bound) =>
      stroke(`M${PLOT.left} ${tenth(yOf(bound, curve.most))}H${PLOT.width - PLOT.right}`, 'l-bound'),
    );
/* A line breaks where nothing was measured; a point alone is a dot. */
function lineOf(curve, values, place) {
  const points = values.map((value, index) =>
    value === null ? null : [tenth(xOf(L.steps[index])), tenth(yOf(value, curve.most))],
  );
  const measured = points.filter(Boolean);
  if (measured.length === 1) return circle(...measured[0], 3, 'f-t' + (place + 1));
  const drawn = points.map((point, at) => point && `${points[at - 1] ? 'L' : 'M'}${point.join(' ')}`);
  return stroke(drawn.filter(Boolean).join(''), 'l-t' + (place + 1));
}
function layers(curve) {
  const below = L.steps.map(() => 0),
    each = Math.max(0.8, (PLOT.width - PLOT.left - PLOT.right) / stepSpan() - 1);
  return curve.lines.map((line, place) =>
    line.values.map((value, index) => {
      const from = yOf(below[index], curve.most);
      below[index] += value || 0;
      const top = yOf(below[index], curve.most),
        height = from - top;
      if (height <= 0.05) return null;
      const left = tenth(xOf(L.steps[index]) - each);
      return rect(left, tenth(top), tenth(each), Math.max(0.3, tenth(height)), 'f-t' + (place + 1));
    }),
  );
}
const measured = (curve) =>
  curve.marks.map((mark) => {
    const x = tenth(xOf(mark.step)),
      [low, middle, high] = mark.at.map((value) => tenth(yOf(value, curve.most)));
    return [rect(x - 1, high, 2, Math.max(1, low - high), 'f-ok'), circle(x, middle, 4, 'f-ok')];
  });
function drawing(curve) {
  const several = curve.lines.length > 1;
  const last = curve.lines.map((line) => (several ? line.name + ' ' : '') + line.last).join(', ');
  const marks = curve.marks.map((mark) => mark.told).join(', ');
  const label = `${curve.title}, ${plural(L.steps.length, 'step')}; last: ${last}. ${marks}`;
  const lines = curve.stacked
    ? layers(curve)
    : curve.lines.map((line, place) => lineOf(curve, line.values, place));
  const dot = svg(11, 11, {}, circle(5.5, 5.5, 4, 'f-ok'));
  const key = h(
    'div.key',
    curve.lines.map((line, place) => h('span', swatch('t' + (place + 1)), line.name)),
    curve.marks.length ? h('span', dot, 'held-out tasks, 95 %') : null,
  );
  const dashed = bounds(curve).length ? ' Dashed: where an alarm stops the run.' : '';
  const drawn = chart(
    curve.title,
    several ? '' : 'last ' + last,
    picture(PLOT.width, PLOT.height, label, {}, frame(curve), bounds(curve), lines, measured(curve)),
    several || curve.marks.length ? key : null,
    h('p.q', curve.note, dashed),
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
        h('ul', marks.map((mark) => h('li', mark.told))),
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
