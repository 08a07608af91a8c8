"""Tool models: what was mined of each tool, as data with its evidence.

For each tool, under which facts its answer takes which form (a tree), how an answer of a form is put
together (a template), and what a write of a form does to each read (rules). A person reads them with
`dreamgym-kit rules show`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from dreamgym_kit.dream.state.absences import Absences
from dreamgym_kit.dream.state.effects import EffectRule
from dreamgym_kit.dream.state.facts import Common
from dreamgym_kit.dream.state.forms import Enumerated, form_of
from dreamgym_kit.dream.state.history import HistoryStep
from dreamgym_kit.dream.state.likeness import Usuals
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.stated import StatedModel
from dreamgym_kit.dream.state.templates import GRADES, Template
from dreamgym_kit.dream.state.trees import CONTESTED, Node
from dreamgym_kit.dream.state.values import field_path, is_scalar, walk
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.dream.state.volatile import Fresh, symbol_of
from dreamgym_kit.dream.state.wrapping import Wrap, is_raw
from dreamgym_kit.serialization import JsonValue

PROBE, HIDDEN, LAST = "probe:", "hidden:", "last:"
"""Pseudo-reads: whether a tool can be used at all, a hidden field of a write's answer, its last success."""


@dataclass(slots=True)
class AnswerForm:
    """How answers of one form are made, with what it was right about on worlds that it was not made from.

    `tried` is [right, wrong] by grade (`templates.Filled`): the same form may be sure where a number is known
    that it needs, and a guess where it is not.
    """

    template: Template
    tried: dict[str, list[int]] = field(default_factory=lambda: {grade: [0, 0] for grade in GRADES})
    worlds: int = 0
    failure: bool = False

    def count(self, grade: str, *, right: bool) -> None:
        """One answer of this grade on a held-out world."""
        self.tried[grade][not right] += 1

    @property
    def right(self) -> int:
        """How often it was right on worlds that it was not made from."""
        return sum(right for right, _ in self.tried.values())

    @property
    def wrong(self) -> int:
        """How often it was wrong there."""
        return sum(wrong for _, wrong in self.tried.values())

    def support(self, grade: str) -> float:
        """0..1; never high for what only one world has shown."""
        if self.worlds < 2:
            return 0.35
        right, wrong = self._tried(grade)
        return (right + 0.4) / (right + wrong + 1)

    def contested(self, grade: str) -> bool:
        """Whether other worlds contradicted it too often."""
        right, wrong = self._tried(grade)
        return wrong >= 2 and wrong > CONTESTED * (right + wrong)

    def _tried(self, grade: str) -> tuple[int, int]:
        """What is known of a grade; of one that was never tried, what is known of the form."""
        right, wrong = self.tried[grade]
        return (right, wrong) if right + wrong else (self.right, self.wrong)


@dataclass(slots=True)
class ToolModels:
    """Everything mined from some recordings.

    Attributes:
        writes: the tools that change the world.
        parameters: by read, the arguments that its calls have.
        enumerated, common: see `forms` and `facts`.
        probes: (tool, form) of failures without arguments, which tell a hidden flag.
        hidden: (tool, field path) of write answers that tell a hidden value.
        acting: (tool, form) of failures that change something all the same.
        fresh: ids that tools make up.
        rules: by (write, form) and read.
        trees: by tool.
        answers: by (tool, form).
        stated: what a person declared or a model drafted, by tool.
        wraps: of stated tools, what they put around their answers.
        everywhere: by (tool, spelled arguments), the answers in all worlds, as spelled.
        agreement: by tool, how often another world's answer to the same call is right.
        fixed: tools that answered all calls that went well alike in all worlds: a catalogue, a conversion.
        steady: by tool, how often a call that went well is answered alike after other writes to its world.
        left_alone: pairs of a read around a write: left as it was, and all; by write and read, by write
            ("*" for the read), and of everything ("*", "*").
        absences, usual: see `absences` and `likeness`.
    """

    writes: frozenset[str] = frozenset()
    parameters: Mapping[str, frozenset[str]] = field(default_factory=dict)
    enumerated: Mapping[str, Enumerated] = field(default_factory=dict)
    common: Common = frozenset()
    probes: frozenset[tuple[str, str]] = frozenset()
    hidden: frozenset[tuple[str, str]] = frozenset()
    acting: frozenset[tuple[str, str]] = frozenset()
    fresh: Fresh = field(default_factory=dict)
    rules: dict[tuple[str, str], dict[str, EffectRule]] = field(default_factory=dict)
    trees: dict[str, Node] = field(default_factory=dict)
    answers: dict[tuple[str, str], AnswerForm] = field(default_factory=dict)
    everywhere: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    agreement: dict[str, float] = field(default_factory=dict)
    fixed: dict[str, float] = field(default_factory=dict)
    steady: dict[str, float] = field(default_factory=dict)
    left_alone: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    absences: Absences = field(default_factory=dict)
    usual: Usuals = field(default_factory=dict)
    transitions: int = 0
    stated: Mapping[str, StatedModel] = field(default_factory=dict)
    wraps: Mapping[str, Wrap] = field(default_factory=dict)

    def keeps(self, write: str, read: str) -> float:
        """0..1, that a write of whatever form leaves a read alone: share of pairs, the general first."""
        same, total = self.left_alone.get(("*", "*"), (0.0, 0.0))
        share = min(0.97, (same + 1.7) / (total + 2))
        for key in ((write, "*"), (write, read)):
            same, total = self.left_alone.get(key, (0.0, 0.0))
            share = (same + 4 * share) / (total + 4)
        return share

    def form(self, step: HistoryStep) -> str:
        """The form of a call's answer."""
        return form_of(
            step.seen,
            Names({f"args.{key}": value for key, value in step.args.items()}),
            self.enumerated.get(step.tool, frozenset()),
        )

    def fails(self, tool: str, form: str) -> bool:
        """Whether answers of a form say that the tool did not do it."""
        answer = self.answers.get((tool, form))
        return answer is not None and answer.failure

    def advances(self, step: HistoryStep) -> bool:
        """Whether the world may be another after this call."""
        if not step.failed:
            return step.writes
        return bool(self.acting) and step.writes and (step.tool, self.form(step)) in self.acting

    def fresh_for(self, tool: str, state: State) -> dict[str, JsonValue]:
        """The symbols of the ids that a write would make up now."""
        count = state.minted.get(tool, 0) + 1
        return {name: symbol_of(tool, name, count) for name in self.fresh.get(tool, ())}

    def pseudo_reads(self, step: HistoryStep) -> dict[str, JsonValue]:
        """What a call tells besides its answer, as answers of pseudo-reads."""
        told: dict[str, JsonValue] = {}
        tells = {form for tool, form in self.probes if tool == step.tool}
        if tells:
            form = self.form(step) if step.failed else ""
            told[PROBE + step.tool] = form if form in tells else "pass"
        if step.writes and not step.failed and self.hidden:
            for path, value in walk(step.seen):
                name = field_path(path)
                if (step.tool, name) in self.hidden and is_scalar(value):
                    told[f"{HIDDEN}{step.tool}.{name}"] = value
        return told

    def wrapped(self, tool: str, seen: JsonValue) -> JsonValue:
        """A stated answer in what the tool puts around its answers."""
        return seen if is_raw(seen) or tool not in self.wraps else self.wraps[tool](seen)
