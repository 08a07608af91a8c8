/* One step of an episode: a call with its answer and what it changed, something said, or the verdict. */

const LONG_ANSWER = 500;

/* JSON is set in lines; anything else stays as it is. Its tokens are never parsed and written again: a time
   (16:38:41) or a number of twenty digits would come out changed. */
function readable(text) {
  if (!/^[[{]/.test(text)) return text;
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g),
    short = tokens.map((token) => (/^[,:]$/.test(token) ? token + ' ' : token)).join('');
  return short.length < 110 ? short : inLines(tokens);
}
function inLines(tokens) {
  let depth = 0;
  const line = () => '\n' + ' '.repeat(depth);
  return tokens
    .map((token, at) => {
      const opens = /^[[{]$/.test(token),
        closes = /^[\]}]$/.test(token);
      if (token === ':') return ': ';
      if (token === ',') return ',' + line();
      if (opens && !/^[\]}]$/.test(tokens[at + 1])) return (depth++, token + line());
      if (closes && !/^[[{]$/.test(tokens[at - 1])) return (depth--, line() + token);
      return token;
    })
    .join('');
}

function answer(step) {
  if (step.source === 'unanswered')
    return h(
      'div.ans',
      h('span.w-watch', 'No answer. '),
      step.why || 'The dream could not tell.',
      step.nearest ? h('pre', step.nearest) : null,
    );
  return answerBox(
    step,
    step.error ? h('span.err', step.error) : null,
    step.update ? h('span.soft', 'updates the state') : null,
  );
}
const cutAt = ({length}) =>
  length ? h('p.soft', `cut here; ${whole.format(length)} characters in all`) : null;
const answerBox = (step, ...before) =>
  h(
    'div.ans',
    {tabindex: step.text.length > LONG_ANSWER ? 0 : null},
    before,
    h('pre', readable(step.text)),
    cutAt(step),
  );
const speech = (speaker, text, step) =>
  h('div.say', h('span.who', speaker), h('span.pre', text), cutAt(step));
function source(step) {
  const dreamt = !['real', 'fault', 'scripted', 'unanswered'].includes(step.source);
  const bar = () => [rect(0, 0, 44, 5, 'f-line'), rect(0, 0, 44 * step.confidence, 5, 'f-soft')];
  const confidence = () => h('span.word', svg(44, 5, {}, bar()), 'confidence ' + step.confidence.toFixed(2));
  const cites = () =>
    h(
      'details.cite',
      h('summary', `rests on ${plural(step.cited, 'recording')}`),
      step.cites.map((name) => h('div.mono', name)),
      step.cited > step.cites.length ? h('div', 'and more') : null,
    );
  return h(
    'div.foot',
    h('span.word', swatch(CODE_OF[step.source]), step.source),
    dreamt ? confidence() : null,
    h('span', duration(step.dur_s)),
    step.node ? h('span', 'node ', h('span.mono', step.node)) : null,
    step.cites ? cites() : null,
  );
}
const findingLines = (findings = [], episode) =>
  findings.map((finding) => {
    const anchors = finding.steps.map((step, place) => [
      place ? ', ' : '',
      h('a', {href: link(episode.id, step)}, 'step ' + step),
    ]);
    const steps = anchors.length > 1 ? [': ', anchors] : null;
    const kind = finding.critical ? 'p.because' : 'p.because.mild';
    return h(kind, findingSign(finding), ' ', finding.text, steps);
  });
function callRow(step, episode) {
  return h(
    'div',
    h(
      'div.line',
      icon(step.effect),
      h('span.tn', step.tool),
      h(step.effect === 'destructive' ? 'span.flag' : 'span.faint.q', step.effect),
      step.fault ? h('span.err', 'planned fault: ' + words(step.fault)) : null,
    ),
    findingLines(step.findings, episode),
    pairs(step.args),
    answer(step),
    source(step),
  );
}
const PLAYED = {task: 'a reply of the task', script: 'a scripted user', persona: 'a user played by a model'};
const player = (name) => PLAYED[name] || name;

/* Where the graph stopped and waited for a person. */
function interruptRow(step) {
  const waits = h('span.faint.q', 'the graph waits for an answer');
  const reply = step.reply
    ? speech('told by ' + player(step.by), readable(step.reply.text), step.reply)
    : h('p.because.mild', 'Nobody answers.');
  const heading = h('div.line', sign('inconclusive'), h('b', 'Interrupted: '), waits);
  return h('div', heading, answerBox(step), reply);
}
function saidRow(step) {
  if (step.by !== 'tool')
    return speech([step.by, step.played ? ', ' + player(step.played) : null], step.text, step);
  const note = h('span.faint.q', 'answered by the framework; no call passed the gate');
  const text = h('div.ans', h('pre', readable(step.text)), cutAt(step));
  return h('div', h('div.line', h('span.tn', step.tool || 'tool'), note), text);
}
function verdictRow(step, episode, one) {
  const because = (...text) => h('p.because', sign('anomaly'), text);
  return h(
    'div',
    h('div.line', word(step.verdict), h('span', step.text)),
    step.traceback ? h('div.ans', h('pre', step.traceback.join('\n'))) : null,
    findingLines(step.findings, episode),
    (step.executed || []).map((call) => because(' executed: ', h('code', call))),
    (step.violations || []).map((text) => because(' refused: ', text)),
    one.stop !== 'finished' ? h('p.soft', 'ended by: ' + words(one.stop)) : null,
  );
}
const STEP_ROWS = {call: callRow, verdict: verdictRow, interrupt: interruptRow, said: saidRow};
function stepRow(step, place, episode, one) {
  const anchor = {href: link(episode.id, step.step), 'aria-label': 'Link to step ' + step.step};
  const gutter = () => [
    h('a', anchor, step.step),
    step.at_s === undefined ? null : h('div', '+' + duration(step.at_s)),
  ];
  const bad =
    (step.findings || []).some((finding) => finding.critical) || step.violations || step.executed;
  const kind = 'step k-' + (step.kind === 'said' ? 'said' : 'call') + (bad ? ' bad' : '');
  return h(
    'li',
    {class: kind, id: 'row-' + place, tabindex: -1},
    h('div.gut', step.kind === 'call' ? gutter() : null),
    STEP_ROWS[step.kind](step, episode, one),
    h('div.led', changed(step.changes)),
  );
}
