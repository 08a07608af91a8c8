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
const cutAt = (said) =>
  said.length ? h('p.soft', `cut here; ${whole.format(said.length)} characters in all`) : null;
const answerBox = (step, ...before) =>
  h(
    'div.ans',
    {tabindex: step.text.length > LONG_ANSWER ? 0 : null},
    before,
    h('pre', readable(step.text)),
    cutAt(step),
  );
const said = (who, text, whole) => h('div.say', h('span.who', who), h('span.pre', text), cutAt(whole));
function source(step) {
  const cites = step.cites
    ? h(
        'details.cite',
        h('summary', `rests on ${plural(step.cited, 'recording')}`),
        step.cites.map((name) => h('div.mono', name)),
        step.cited > step.cites.length ? h('div', 'and more') : null,
      )
    : null;
  const dreamt = !['real', 'fault', 'scripted', 'unanswered'].includes(step.source);
  return h(
    'div.foot',
    h('span.word', swatch(CODE_OF[step.source]), step.source),
    dreamt
      ? h(
          'span.word',
          svg(
            44,
            5,
            {},
            s('rect', {width: 44, height: 5, class: 'f-line'}),
            s('rect', {width: 44 * step.confidence, height: 5, class: 'f-soft'}),
          ),
          'confidence ' + step.confidence.toFixed(2),
        )
      : null,
    h('span', duration(step.dur_s)),
    step.node ? h('span', 'node ', h('span.mono', step.node)) : null,
    cites,
  );
}
function found(list, episode) {
  return (list || []).map((one) =>
    h(
      'p',
      {class: one.critical ? 'because' : 'because mild'},
      findingSign(one),
      ' ',
      one.text,
      one.steps.length > 1
        ? [
            ': ',
            one.steps.map((step, place) => [
              place ? ', ' : '',
              h('a', {href: link(episode.id, step)}, 'step ' + step),
            ]),
          ]
        : null,
    ),
  );
}
function callRow(step, episode) {
  return h(
    'div',
    h(
      'div.line',
      icon(step.effect),
      h('span.tn', step.tool),
      h('span', {class: step.effect === 'destructive' ? 'flag' : 'faint q'}, step.effect),
      step.fault ? h('span.err', 'planned fault: ' + words(step.fault)) : null,
    ),
    found(step.findings, episode),
    pairs(step.args),
    answer(step),
    source(step),
  );
}
const PLAYED = {task: 'a reply of the task', script: 'a scripted user', persona: 'a user played by a model'};
const player = (name) => PLAYED[name] || name;

/* Where the graph stopped and waited for a person. */
const interruptRow = (step) =>
  h(
    'div',
    h(
      'div.line',
      sign('inconclusive'),
      h('b', 'Interrupted: '),
      h('span.faint.q', 'the graph waits for an answer'),
    ),
    answerBox(step),
    step.reply
      ? said('told by ' + player(step.by), readable(step.reply.text), step.reply)
      : h('p.because.mild', 'Nobody answers.'),
  );
function saidRow(step) {
  if (step.by === 'tool')
    return h(
      'div',
      h(
        'div.line',
        h('span.tn', step.tool || 'tool'),
        h('span.faint.q', 'answered by the framework; no call passed the gate'),
      ),
      h('div.ans', h('pre', readable(step.text)), cutAt(step)),
    );
  return said([step.by, step.played ? ', ' + player(step.played) : null], step.text, step);
}
function verdictRow(step, episode, one) {
  return h(
    'div',
    h('div.line', word(step.verdict), h('span', step.text)),
    step.traceback ? h('div.ans', h('pre', step.traceback.join('\n'))) : null,
    found(step.findings, episode),
    (step.executed || []).map((call) => h('p.because', sign('anomaly'), ' executed: ', h('code', call))),
    (step.violations || []).map((text) => h('p.because', sign('anomaly'), ' refused: ', text)),
    one.stop !== 'finished' ? h('p.soft', 'ended by: ' + words(one.stop)) : null,
  );
}
function stepRow(step, place, episode, one) {
  const gutter =
    step.kind === 'call'
      ? [
          h('a', {href: link(episode.id, step.step), 'aria-label': 'Link to step ' + step.step}, step.step),
          step.at_s === undefined ? null : h('div', '+' + duration(step.at_s)),
        ]
      : null;
  const middle =
    step.kind === 'call'
      ? callRow(step, episode)
      : step.kind === 'verdict'
        ? verdictRow(step, episode, one)
        : step.kind === 'interrupt'
          ? interruptRow(step)
          : saidRow(step);
  const bad = (step.findings || []).some((found) => found.critical) || step.violations || step.executed;
  return h(
    'li',
    {
      class: 'step k-' + (step.kind === 'said' ? 'said' : 'call') + (bad ? ' bad' : ''),
      id: 'row-' + place,
      tabindex: -1,
    },
    h('div.gut', gutter),
    middle,
    h('div.led', changed(step.changes)),
  );
}
