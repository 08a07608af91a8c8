/* One episode: what it came to, its repeats, a strip of time, then step by step. */

let current = null,
  currentRow = 0,
  request = 0;

/* Calls by the moment of their answer; what lies between is the agent and its model. */
function strip(one, episode) {
  const timed = one.steps.filter((step) => step.kind === 'call' && step.at_s !== undefined);
  if (!timed.length || !episode.s) return null;
  const width = 1100,
    x = (seconds) => Math.min(width - 3, (seconds / episode.s) * width);
  const sums = {dream: 0, fault: 0, real: 0};
  timed.forEach((step) => {
    sums[step.source === 'fault' ? 'fault' : step.source === 'real' ? 'real' : 'dream'] += step.dur_s;
  });
  const rest = Math.max(0, episode.s - sums.dream - sums.fault - sums.real);
  return [
    svg(
      width,
      24,
      {class: 'strip', preserveAspectRatio: 'none'},
      s('rect', {x: 0, y: 9, width, height: 5, class: 'f-line'}),
      timed.map((step) =>
        s(
          'a',
          {href: link(episode.id, step.step), tabindex: -1},
          s(
            'rect',
            {
              x: x(Math.max(0, step.at_s - step.dur_s)),
              y: 3,
              width: Math.max(3, (step.dur_s / episode.s) * width),
              height: 17,
              rx: 1,
              class: 'f-' + CODE_OF[step.source],
            },
            s('title', {}, `${step.step} ${step.tool}: ${duration(step.dur_s)}`),
          ),
        ),
      ),
    ),
    h(
      'div.key.spent',
      h('span', `the agent and its model ${duration(rest)}`),
      sums.dream ? h('span', `the dream ${duration(sums.dream)}`) : null,
      sums.real ? h('span', `real tools ${duration(sums.real)}`) : null,
      sums.fault ? h('span', `planned faults ${duration(sums.fault)}`) : null,
    ),
  ];
}

function heading(one, episode) {
  const facts = [
    plural(calls(episode).length, 'call'),
    duration(episode.s),
    one && one.model_calls ? plural(one.model_calls, 'model call') : null,
    one && one.tokens ? whole.format(one.tokens) + ' tokens' : null,
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
    h(
      'div.meta',
      facts.filter(Boolean).map((fact) => h('span', fact)),
    ),
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
    h('span.faint.pos', at >= 0 ? `${whole.format(at + 1)} of ${whole.format(hits.length)} listed` : ''),
    at >= 0 ? [to(at - 1, (name) => '\u2190 ' + name), to(at + 1, (name) => name + ' \u2192')] : null,
  );
}

async function openEpisode(name, step) {
  const box = id('episode'),
    place = byId.get(name),
    mine = ++request;
  if (place === undefined) {
    current = null;
    box.replaceChildren(
      h('p.crumb', h('a', {href: '#episodes'}, 'All episodes')),
      h('h1', 'No episode has that name'),
      h('p', name.slice(0, 200)),
    );
    show('episode');
    return;
  }
  const episode = E[place],
    repeats = besides(episode);
  const details = await Promise.all(repeats.near.map((one) => detail(one.i)));
  if (mine !== request) return;
  const fresh = current !== episode,
    one = details[repeats.near.indexOf(episode)];
  current = episode;
  if (fresh) {
    box.replaceChildren(
      crumb(episode),
      heading(one, episode),
      repeatLinks(repeats.all, episode) || '',
      parting(details, repeats.near, episode) || '',
      ...(one ? [strip(one, episode) || ''].flat() : []),
      one
        ? h(
            'ol.steps',
            one.steps.map((each, at) => stepRow(each, at, episode, one)),
          )
        : h(
            'p.note',
            'The steps of this episode are not in this page: it would be too large. dreamgym-kit report --episode shows them.',
          ),
    );
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

/* Repeats: the same task in the same environment, beside each other from the first call in which they differ. */
const MOST_SIBLINGS = 12,
  MOST_PARTED = 12,
  MOST_TEXT = 300;

function parting(details, repeats, me) {
  if (repeats.length < 2 || details.some((one) => !one)) return null;
  const lists = details.map((one) => one.steps.filter((step) => step.kind === 'call'));
  const same = (place) => lists.every((list) => key(list[place]) === key(lists[0][place]));
  const key = (step) =>
    step ? step.tool + JSON.stringify(step.args) + '\n' + step.text + (step.error || '') : '';
  const longest = Math.max(...lists.map((list) => list.length));
  let first = 0;
  while (first < longest && same(first)) first++;
  if (first === longest) return h('p.soft', 'All repeats made the same calls and got the same answers.');
  const cell = (step) =>
    !step
      ? h('span.faint', '\u2013')
      : [
          h(
            'div.line',
            icon(step.effect),
            h('b.mono', step.tool),
            step.fault ? h('span.err', words(step.fault)) : null,
            findingKinds('span', step.findings),
          ),
          h('div.kv.pre', cutEnd(Object.values(step.args).map(asText).join(' '), MOST_TEXT)),
          h('div.soft.pre', cutEnd(step.error || step.text || 'no answer', MOST_TEXT)),
        ];
  const body = [];
  for (let place = first; place < Math.min(longest, first + MOST_PARTED); place++) {
    body.push(
      h(
        'tr',
        {class: place === first ? 'here' : null},
        lists.map((list, column) =>
          h('td', {class: repeats[column] === me ? 'me' : null}, cell(list[place])),
        ),
      ),
    );
  }
  return h(
    'details.part',
    {open: true},
    h('summary', first ? `The repeats differ at call ${first + 1}` : 'The repeats differ at the first call'),
    wide(
      'Where the repeats differ',
      h(
        'table.sibtab',
        h(
          'thead',
          h(
            'tr',
            repeats.map((one) =>
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
          first
            ? h(
                'tr',
                h(
                  'td.same',
                  {colspan: repeats.length},
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

function repeatLinks(repeats, me) {
  if (repeats.length < 2) return null;
  return h(
    'nav.sibs',
    {'aria-label': 'Repeats: the same task in the same environment'},
    repeats.map((one) =>
      h(
        'a.sib',
        {href: link(one.id), 'aria-current': one === me ? 'page' : null},
        h('span.word', sign(one.bad ? 'anomaly' : one.verdict), one.id),
        h('div', path(one)),
      ),
    ),
  );
}

/* Around one episode of many repeats, only its neighbours are laid side by side. */
function besides(episode) {
  const all = E.filter((one) => one.task === episode.task),
    at = all.indexOf(episode);
  const from = Math.max(0, Math.min(at - MOST_SIBLINGS / 2, all.length - MOST_SIBLINGS));
  return {all, near: all.slice(from, from + MOST_SIBLINGS)};
}
