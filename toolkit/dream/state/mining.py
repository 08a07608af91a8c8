"""Mines tool models from recordings alone: what writes change, when calls fail, how answers are made.

Passes: first pairs from pooled nodes only, then again with views tracked through the rules so far, then
trees and templates on tracked states. While an episode is explained, what only it has seen is left out:
else its own answer would explain itself. Everything is counted by world, and tried on worlds that it was
not made from.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dreamgym_kit.dream.state.absences import GivenValues
from dreamgym_kit.dream.state.advance import advance, names_after, with_keys
from dreamgym_kit.dream.state.effects import Example, mine_rule
from dreamgym_kit.dream.state.facts import facts_around, recurring_values
from dreamgym_kit.dream.state.forms import enumerated_texts
from dreamgym_kit.dream.state.history import OFF_RECORD, Pool, Recording, Step, acting_failures
from dreamgym_kit.dream.state.likeness import hear, usual_values
from dreamgym_kit.dream.state.models import AnswerForm, ToolModels
from dreamgym_kit.dream.state.names import Names, around
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.pseudo import hidden_fields, probes
from dreamgym_kit.dream.state.templates import Template
from dreamgym_kit.dream.state.trees import Case, grow
from dreamgym_kit.dream.state.values import MISSING, spell
from dreamgym_kit.dream.state.views import State, View, ViewKey
from dreamgym_kit.dream.state.volatile import Renaming, fresh_fields
from dreamgym_kit.dream.state.worlds import reads_at, start
from dreamgym_kit.plain import JsonValue

_PASSES = 2
_CASES = 350  # calls of one tool that its tree is grown from
_FORM_EXAMPLES = 60
_UNKNOWN = 5  # one episode of so many
_PER_WORLD = 8  # examples of one kind that one world may give
_CERTAIN_SAME, _CERTAIN_CHANGED = 0.75, 0.9  # confidence in a read before the write
_PAIRS = 160  # of one (write, form, read)


def mine(episodes: Sequence[Recording]) -> ToolModels:
    """Mine the tool models of some recordings."""
    models = ToolModels(
        writes=frozenset(step.tool for episode in episodes for step in episode.steps if step.writes),
        transitions=sum(len(episode.steps) for episode in episodes),
        fresh=fresh_fields(episodes),
    )
    episodes = [renamed(episode, models) for episode in episodes]
    models.enumerated = enumerated_texts(episodes)
    models.acting = acting_failures(episodes, models.form)
    models.parameters = _parameters(episodes)
    models.usual = usual_values(episodes)
    pool = pooled(episodes, models)
    models.probes = probes(pool, models)
    models.steady = pool.steadiness()
    models.hidden = hidden_fields(episodes, pool, models)
    _count_everywhere(models, episodes)
    for number in range(_PASSES):
        gathered = _gather(episodes, models, pool, tracked=number > 0)
        models.common = frozenset(key for key, worlds in gathered.values.items() if len(worlds) >= 3)
        models.left_alone = _left_alone(gathered)
        models.rules = {}
        for (tool, form, read), examples in gathered.pairs.items():
            models.rules.setdefault((tool, form), {})[read] = mine_rule(examples)
    gathered = _gather(episodes, models, pool, tracked=True, unknown_worlds=True)
    models.absences = gathered.given.absences()
    models.trees = {tool: grow(cases) for tool, cases in gathered.cases.items()}
    models.answers = {key: _answer_form(examples) for key, examples in gathered.answers.items()}
    return models


def renamed(episode: Recording, models: ToolModels) -> Recording:
    """The episode with symbols for made-up ids."""
    renaming = Renaming(models.fresh)
    return Recording(episode.id, episode.world, tuple(renaming.step(step) for step in episode.steps))


def pooled(episodes: Sequence[Recording], models: ToolModels) -> Pool:
    """All episodes by the nodes that they passed."""
    pool = Pool(models.advances)
    for episode in episodes:
        pool.add(episode)
    return pool


@dataclass(slots=True)
class _Gathered:
    """Examples of one pass."""

    pairs: dict[tuple[str, str, str], list[Example]] = field(default_factory=lambda: defaultdict(list))
    cases: dict[str, list[Case]] = field(default_factory=lambda: defaultdict(list))
    answers: dict[tuple[str, str], list[tuple[Names, JsonValue, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    values: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    given: GivenValues = field(default_factory=GivenValues)
    quota: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def wants(self, most: int, have: int, *key: str) -> bool:
        """Whether one more example of this kind is wanted from this world (the last part of the key)."""
        if have >= most or self.quota[key] >= _PER_WORLD:
            return False
        self.quota[key] += 1
        return True


def _gather(
    episodes: Sequence[Recording],
    models: ToolModels,
    pool: Pool,
    *,
    tracked: bool,
    unknown_worlds: bool = False,
) -> _Gathered:
    """Walk all episodes; some as if their world had never been recorded, which is how a new one is met."""
    gathered = _Gathered()
    for number, episode in enumerate(episodes):
        state = start(pool, models, episode.world, without=episode.id)
        if unknown_worlds and number % _UNKNOWN == 0:
            state = State({}, OFF_RECORD)
        for step in episode.steps:
            state = _learn(
                gathered, models, pool, episode, state, step, tracked=tracked, unknown_worlds=unknown_worlds
            )
    return gathered


def _learn(
    gathered: _Gathered,
    models: ToolModels,
    pool: Pool,
    episode: Recording,
    state: State,
    step: Step,
    *,
    tracked: bool,
    unknown_worlds: bool,
) -> State:
    """Take one step as an example of its tool, and follow it."""
    names = around(step.args, state, models.fresh_for(step.tool, state))
    form, world = models.form(step), episode.world
    if tracked and gathered.wants(_CASES, len(gathered.cases[step.tool]), "case", step.tool, form, world):
        known, seen = pool.elsewhere(world, step.tool, step.spelled, without=episode.id)
        before = models.form(step._replace(seen=seen, failed=failed(seen))) if known else None
        facts = facts_around(step.tool, step.spelled, names, state, models.common, before)
        gathered.cases[step.tool].append(Case(facts, form, world))
    if tracked:
        gathered.given.see(step, state, world)
        if unknown_worlds:
            hear(models.usual, step, state)
    for key in recurring_values(names):
        gathered.values[key].add(world)
    answers = gathered.answers[step.tool, form]
    if gathered.wants(_FORM_EXAMPLES, len(answers), "answer", step.tool, form, world):
        answers.append((names, step.seen, world))
    line = pool.next(state.line, step)
    rules = models if tracked else ToolModels(**{name: getattr(models, name) for name in _WITHOUT_RULES})
    after = advance(rules, state, step, names, line)
    if not step.writes:
        return after
    if models.advances(step):
        _pair(gathered, models, pool, state, step, names, form, world, line)
        views: dict[ViewKey, View] = dict(after.views)
        for key, seen in reads_at(pool, models, line, episode.id).items():
            views[key] = View(*key, seen, confidence=0.99, source="told", step=after.writes)
        return replace(after, views=views, line=line)
    return after


_WITHOUT_RULES = ("writes", "parameters", "enumerated", "probes", "hidden", "acting", "fresh", "left_alone")


def _pair(
    gathered: _Gathered,
    models: ToolModels,
    pool: Pool,
    state: State,
    step: Step,
    names: Names,
    form: str,
    world: str,
    line: int,
) -> None:
    told = None
    for key, seen in reads_at(pool, models, line, None).items():
        view = state.views.get(key)
        known = view is not None and view.confidence > _CERTAIN_SAME
        pairs = gathered.pairs[step.tool, form, key[0]]
        same = view is not None and spell(view.observation) == spell(seen)
        if known and not same and view is not None and view.confidence < _CERTAIN_CHANGED:
            continue  # an earlier write may have changed it
        if not gathered.wants(_PAIRS, len(pairs), step.tool, form, key[0], f"{known}{same}", world):
            continue
        told = told or names_after(names, step.seen)
        args = {} if key[1] == "{}" else dict(View(*key, None, confidence=1, source="").args)
        before = view.observation if view is not None and known else MISSING
        pairs.append(Example(with_keys(told, args), args, before, seen, known, world))


def _answer_form(examples: Sequence[tuple[Names, JsonValue, str]]) -> AnswerForm:
    """A template from all examples; right and wrong from halves of the worlds tried on each other."""
    template = Template()
    for names, seen, _ in examples:
        template.see(seen, names)
    worlds = sorted({world for _, _, world in examples})
    made = AnswerForm(template, worlds=len(worlds), failure=failed(examples[0][1]))
    if len(worlds) < 2:
        return made
    for half in (set(worlds[::2]), set(worlds[1::2])):
        other = Template()
        for names, seen, world in examples:
            if world not in half:
                other.see(seen, names)
        for names, seen, world in examples:
            if world in half:
                filled = other.fill(names)
                if filled is not None:
                    made.count(filled.share, right=spell(filled.value) == spell(seen))
    return made


def _parameters(episodes: Sequence[Recording]) -> dict[str, frozenset[str]]:
    counts: dict[str, Counter[frozenset[str]]] = defaultdict(Counter)
    for episode in episodes:
        for step in episode.steps:
            if not step.writes:
                counts[step.tool][frozenset(step.args)] += 1
    return {tool: kinds.most_common(1)[0][0] for tool, kinds in counts.items()}


def _left_alone(gathered: _Gathered) -> dict[tuple[str, str], tuple[float, float]]:
    """How often writes leave known reads as they are; each kind of pair counts up to 20 times."""
    counts: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (write, _, read), pairs in gathered.pairs.items():
        known = [example.same for example in pairs if example.known]
        if not known or ":" in read:
            continue
        weight = min(len(known), 20)
        for key in ((write, read), (write, "*"), ("*", "*")):
            counts[key][0] += weight * sum(known) / len(known)
            counts[key][1] += weight
    return {key: (same, total) for key, (same, total) in counts.items()}


def _count_everywhere(models: ToolModels, episodes: Sequence[Recording]) -> None:
    """How often the same call is answered alike in different worlds."""
    worlds: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for episode in episodes:
        for step in episode.steps:
            worlds[step.tool, step.spelled][episode.world].add(spell(step.seen))
    for key, answers in worlds.items():
        models.everywhere[key] = Counter(spelled for seen in answers.values() for spelled in seen)
    counts: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (tool, _), answers in worlds.items():
        if len(answers) > 1:
            said = Counter(spelled for seen in answers.values() for spelled in seen)
            counts[tool][0] += max(said.values()) - 1
            counts[tool][1] += said.total() - 1
    models.agreement = {tool: (same + 0.2) / (total + 1) for tool, (same, total) in counts.items()}
