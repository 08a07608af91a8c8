/* The two blocks of data, read once; steps are unpacked when they are first asked for. */

const D = JSON.parse(id('data-report').textContent);
const PACK = JSON.parse(id('data-episodes').textContent);
const KNOWN_SCHEMA = 2;
const TOOLS = D.tools || [],
  TASKS = D.tasks || [],
  E = D.episodes || [];
/* Where an answer may come from, by the code in an episode's path: its name, and what that means. */
const SOURCES = {
  R: ['real', 'the tool itself ran; in a dream only tools that touch nothing may'],
  r: ['recorded', 'recorded in this environment'],
  c: ['derived', 'put together from what was recorded'],
  a: ['analogous', 'recorded in another environment'],
  m: ['model', 'a model\u2019s answer'],
  s: ['scripted', 'a scripted answer'],
  f: ['fault', 'planned failure'],
  x: ['unanswered', 'no answer given'],
};
const CODES = Object.fromEntries(Object.entries(SOURCES).map(([code, [name]]) => [code, name]));
const CODE_OF = Object.fromEntries(Object.entries(CODES).map(([code, name]) => [name, code]));
const WORST = {'!': 0, failed: 1, error: 2, inconclusive: 3, passed: 4};
const byId = new Map(E.map((episode, place) => [episode.id, place]));
E.forEach((episode, place) => {
  episode.i = place;
});

/* The calls of an episode in order: tool, code of the source, and whether a critical finding points at it. */
function calls(episode) {
  if (!episode.calls) {
    episode.calls = !episode.path
      ? []
      : episode.path.split(' ').map((word) => ({
          tool: TOOLS[parseInt(word, 10)],
          code: word.replace(/[\d!]/g, ''),
          bad: word.endsWith('!'),
        }));
  }
  return episode.calls;
}
const badness = (episode) => WORST[episode.bad ? '!' : episode.verdict];

const chunks = new Map();
function chunk(number) {
  if (!chunks.has(number)) chunks.set(number, unpack(PACK.chunks[number]));
  return chunks.get(number);
}
async function unpack(packed) {
  const raw = Uint8Array.from(atob(packed), (char) => char.charCodeAt(0));
  const opened = new Blob([raw]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(opened).text());
}
/* An episode's steps; null where the page had no room for them. */
const detail = async (place) => (await chunk(Math.floor(place / PACK.per_chunk)))[place % PACK.per_chunk];

const whole = new Intl.NumberFormat('en');
// as the terminal rounds: half to even, never up to 100 or down to 0
function wholePercent(share) {
  const below = Math.floor(100 * share);
  const near = 100 * share - below === 0.5 ? below + (below % 2) : Math.round(100 * share);
  if (near === 100 && share < 1) return 99;
  return near === 0 && share > 0 ? 1 : near;
}
// an interval's bounds outwards, as the terminal does
const wholeBounds = (low, high) => [Math.floor((100 * low).toFixed(9)), Math.ceil((100 * high).toFixed(9))];
const percent = (share) => wholePercent(share) + '%';
const plural = (count, word) => `${whole.format(count)} ${word}${count === 1 ? '' : 's'}`;
const words = (name) => String(name).replace(/_/g, ' ');
/* At most so many characters, and how many more there are. */
const cutEnd = (text, most) =>
  text.length <= most ? text : `${text.slice(0, most)}... (+${text.length - most} chars)`;

const asText = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
const money = (usd) => '$' + usd.toFixed(usd < 0.01 ? 4 : 2);
function duration(seconds) {
  if (seconds < 0.001) return '<1 ms';
  if (seconds < 1) return Math.round(seconds * 1000) + ' ms';
  if (seconds < 60) return seconds.toFixed(1) + ' s';
  return `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')} min`;
}
const link = (name, step) => '#e=' + encodeURIComponent(name) + (step ? '&s=' + step : '');
const placed = (name, step) => (step ? `${name}, step ${step}` : name);
