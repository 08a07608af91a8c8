/* One episode: each step of it; then what it came to, its repeats, a strip of time. */

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
    ['model', 'imagined'].includes(step.source) && step.why ? h('p.soft', 'Because ', step.why) : null,
  );
}
const cutAt = ({length}) =>
  length ? h('p.soft', `cut here; ${whole(length)} characters in all`) : null;
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

let current = null,
  currentRow = 0,
  request = 0;

/* Calls by the moment of their answer; what lies between is the agent and its model. */
function strip(one, episode) {
  const timed = one.steps.filter((step) => step.kind === 'call' && step.at_s !== undefined);
  if (!timed.length || !episode.s) return null;
  const width = 1100,
    x = (seconds) => Math.min(width - 3, (seconds / episode.s) * width);
  const sums = {dream: 0, real: 0, fault: 0};
  for (const step of timed) sums[step.source in sums ? step.source : 'dream'] += step.dur_s;
  const rest = Math.max(0, episode.s - sums.dream - sums.fault - sums.real);
  const names = {dream: 'the dream', real: 'real tools', fault: 'planned faults'};
  const call = (step) => {
    const title = s('title', {}, `${step.step} ${step.tool}: ${duration(step.dur_s)}`);
    const left = x(Math.max(0, step.at_s - step.dur_s)),
      long = Math.max(3, (step.dur_s / episode.s) * width);
    const bar = rect(left, 3, long, 17, 'f-' + CODE_OF[step.source], {rx: 1});
    bar.append(title);
    return s('a', {href: link(episode.id, step.step), tabindex: -1}, bar);
  };
  const line = rect(0, 9, width, 5, 'f-line');
  return [
    svg(width, 24, {class: 'strip', preserveAspectRatio: 'none'}, line, timed.map(call)),
    h(
      'div.key.spent',
      h('span', `the agent and its model ${duration(rest)}`),
      Object.entries(names).map(([part, name]) =>
        sums[part] ? h('span', `${name} ${duration(sums[part])}`) : null,
      ),
    ),
  ];
}

function heading(one, episode) {
  const facts = [
    plural(calls(episode).length, 'call'),
    duration(episode.s),
    one && one.model_calls ? plural(one.model_calls, 'model call') : null,
    one && one.tokens ? whole(one.tokens) + ' tokens' : null,
    episode.usd ? money(episode.usd) : null,
    episode.reward !== undefined && episode.reward !== null ? 'reward ' + episode.reward : null,
    episode.confidence === undefined ? null : 'least confidence ' + episode.confidence.toFixed(2),
    one && one.attempt > 1 ? 'attempt ' + one.attempt : null,
  ];
  return h(
    'div.ephead',
    h('p.q', `${episode.id}, environment ${TASKS[episode.task].environment}`),
    h('h1', TASKS[episode.task].text || episode.id),
    h('p.why', word(episode.verdict), ' ', episode.reason),
    h('div.meta', facts.filter(Boolean).map((fact) => h('span', fact))),
  );
}
function crumb(episode) {
  const at = hits.indexOf(episode);
  const to = (place, text) =>
    hits[place] ? h('a', {href: link(hits[place].id)}, text(hits[place].id)) : null;
  return h(
    'nav.crumb',
    {'aria-label': 'Episodes'},
    h('a', {href: hashOf()}, 'All episodes'),
    h('span.faint.pos', at >= 0 ? `${whole(at + 1)} of ${whole(hits.length)} listed` : ''),
    at >= 0 ? [to(at - 1, (name) => '\u2190 ' + name), to(at + 1, (name) => name + ' \u2192')] : null,
  );
}

function unknownEpisode(name) {
  current = null;
  id('episode').replaceChildren(
    h('p.crumb', h('a', {href: '#episodes'}, 'All episodes')),
    h('h1', 'No episode has that name'),
    h('p', name.slice(0, 200)),
  );
  show('episode');
}
const NOT_PACKED =
  'The steps of this episode are not in this page: it would be too large. ' +
  'dreamgym-kit report --episode shows them.';
async function openEpisode(name, step) {
  const place = byId.get(name),
    mine = ++request;
  if (place === undefined) return unknownEpisode(name);
  const episode = E[place],
    repeats = besides(episode);
  const details = await Promise.all(repeats.near.map((repeat) => detail(repeat.i)));
  if (mine !== request) return;
  const fresh = current !== episode,
    one = details[repeats.near.indexOf(episode)];
  current = episode;
  if (fresh) {
    const rows = one ? one.steps.map((each, at) => stepRow(each, at, episode, one)) : [];
    const parts = [
      crumb(episode),
      heading(one, episode),
      repeatLinks(repeats.all, episode),
      parting(details, repeats.near, episode),
      one ? strip(one, episode) : null,
      one ? h('ol.steps', rows) : h('p.note', NOT_PACKED),
    ];
    id('episode').replaceChildren();
    fill(id('episode'), parts);
    rename(`${episode.id}, ${D.run.title}`);
  }
  show('episode');
  const at = one && step ? one.steps.findIndex((each) => each.step === step) : -1;
  mark(at, fresh);
  if (fresh) tell(`${episode.id}, ${episode.verdict}`);
}
function mark(at, fresh) {
  for (const row of document.querySelectorAll('.step.cur')) row.classList.remove('cur');
  currentRow = at;
  const row = at >= 0 && id('row-' + at);
  if (row) {
    row.classList.add('cur');
    row.focus({preventScroll: true});
    row.scrollIntoView({block: fresh ? 'center' : 'nearest', behavior: 'instant'});
  } else if (fresh) {
    scrollTo({top: 0, behavior: 'instant'});
  }
}
/* The step that a row is; rows in which something was said have none. */
const stepAt = (at) => {
  const anchor = document.querySelector(`#row-${at} .gut a`);
  return anchor ? parseInt(anchor.textContent, 10) : 0;
};

/* Repeats: the same task in the same environment, side by side from the first call in which they differ. */
const MOST_SIBLINGS = 12,
  MOST_PARTED = 12,
  MOST_TEXT = 300;

function partedCall(step) {
  if (!step) return h('span.faint', '\u2013');
  const args = Object.values(step.args).map(asText).join(' ');
  return [
    h(
      'div.line',
      icon(step.effect),
      h('b.mono', step.tool),
      step.fault ? h('span.err', words(step.fault)) : null,
      findingKinds('span', step.findings),
    ),
    h('div.kv.pre', cutEnd(args, MOST_TEXT)),
    h('div.soft.pre', cutEnd(step.error || step.text || 'no answer', MOST_TEXT)),
  ];
}
function parting(details, repeats, me) {
  if (repeats.length < 2 || details.some((one) => !one)) return null;
  const lists = details.map((one) => one.steps.filter((step) => step.kind === 'call'));
  const key = (step) =>
    step ? step.tool + JSON.stringify(step.args) + '\n' + step.text + (step.error || '') : '';
  const same = (place) => lists.every((list) => key(list[place]) === key(lists[0][place]));
  const longest = Math.max(...lists.map((list) => list.length));
  let first = 0;
  while (first < longest && same(first)) first++;
  if (first === longest) return h('p.soft', 'All repeats made the same calls and got the same answers.');
  const begun = lists[0].slice(0, first).map((step) => step.tool);
  const shared = h('td.same', {colspan: repeats.length}, 'the same for all: ' + begun.join(', '));
  const body = first ? [h('tr', shared)] : [];
  for (let place = first; place < Math.min(longest, first + MOST_PARTED); place++) {
    const cells = lists.map((list, column) =>
      h(repeats[column] === me ? 'td.me' : 'td', partedCall(list[place])),
    );
    body.push(h(place === first ? 'tr.here' : 'tr', cells));
  }
  const columns = repeats.map((one) => [h('a', {href: link(one.id)}, one.id), ' ', worstSign(one, 11)]);
  return h(
    'details.part',
    {open: true},
    h('summary', first ? `The repeats differ at call ${first + 1}` : 'The repeats differ at the first call'),
    table('Where the repeats differ', 'table.sibtab', columns, body),
  );
}
const worstSign = (episode, size) => sign(episode.bad ? 'anomaly' : episode.verdict, size);

function repeatLinks(repeats, me) {
  if (repeats.length < 2) return null;
  const repeat = (one) =>
    h(
      'a.sib',
      {href: link(one.id), 'aria-current': one === me ? 'page' : null},
      h('span.word', worstSign(one), one.id),
      h('div', path(one)),
    );
  const label = 'Repeats: the same task in the same environment';
  return h('nav.sibs', {'aria-label': label}, repeats.map(repeat));
}

/* Around one episode of many repeats, only its neighbours are laid side by side. */
function besides(episode) {
  const all = E.filter((one) => one.task === episode.task),
    at = all.indexOf(episode);
  const from = Math.max(0, Math.min(at - MOST_SIBLINGS / 2, all.length - MOST_SIBLINGS));
  return {all, near: all.slice(from, from + MOST_SIBLINGS)};
}
