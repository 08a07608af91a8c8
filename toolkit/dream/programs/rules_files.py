"""`rules/TOOL.toml`: the program of a tool, for people to read, correct and write.

Mined programs are exported in the same format. A file replaces the mined program of its tool, unless a
recording contradicts it: then a warning names the recording, and the mined program is used.
"""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from dreamgym_kit.dream.programs import notation
from dreamgym_kit.dream.programs.collections import RecordedCalls
from dreamgym_kit.dream.programs.conditions import Condition
from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.effects import Effect, Insert
from dreamgym_kit.dream.programs.forms import Program
from dreamgym_kit.dream.programs.model import Model, OutcomeForm, ToolProgram
from dreamgym_kit.dream.programs.notation import Decide, UnreadableProgram
from dreamgym_kit.dream.programs.queries import Query
from dreamgym_kit.dream.programs.records import WorldState
from dreamgym_kit.dream.programs.scope import Parameters
from dreamgym_kit.dream.programs.trees import Tree, TreeLeaf, TreeNode
from dreamgym_kit.dream.programs.trust import MadeUpNames
from dreamgym_kit.errors import UserError
from dreamgym_kit.serialization import JsonValue

_KEYS = (
    *("writes", "arguments", "decides", "absent", "unaffected", "forgotten"),
    *("query", "outcomes", "updates", "inserts"),
)
_OUTCOME_KEYS = ("fails", "answer", "always")
_SHOWN = 200  # characters of an answer
_SEEN = 10  # weight of a declared outcome, as a number of recorded calls


@dataclass(frozen=True, slots=True)
class ToolRules:
    """One rules file.

    Attributes:
        text: the file's text.
        program: the parsed program.
        writes: whether the tool changes its environment.
        arguments: names of the tool's arguments.
    """

    text: str
    program: ToolProgram
    writes: bool
    arguments: frozenset[str] = field(default_factory=frozenset)


class Contradiction(NamedTuple):
    """A recorded call that a program answers differently."""

    tool: str
    world: str
    episode: str
    step: int  # from 1
    predicted: JsonValue
    recorded: JsonValue

    def describe(self) -> str:
        """Return the recording and both answers, on one line."""
        rule, recorded = (str(value)[:_SHOWN] for value in (self.predicted, self.recorded))
        return f"call {self.step} of {self.episode} in {self.world}: rule {rule}, recorded {recorded}"


def read_rules(folder: Path) -> dict[str, ToolRules]:
    """Read the rules in a folder, by tool; empty if the folder does not exist.

    Raises:
        UserError: a file is unreadable or invalid; gives the line and the nearest form or key.
    """
    return {file.stem: read_file(file) for file in sorted(folder.glob("*.toml"))}


def read_file(file: Path) -> ToolRules:
    """Read the rules of one tool.

    Raises:
        UserError: like `read_rules`.
    """
    try:
        return read_text(file, file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {error}") from None


def read_text(file: Path, text: str) -> ToolRules:
    """Read the rules of one tool from a text; `file` names it in messages.

    Raises:
        UserError: like `read_rules`.
    """
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: {error}") from None
    return _Reader(file, text).rules(data)


class _Reader:
    """Reads one file."""

    def __init__(self, file: Path, text: str) -> None:
        self._file, self._text = file, text
        self._forms: dict[str, OutcomeForm] = {}

    def rules(self, data: dict[str, Any]) -> ToolRules:
        self._check_keys(data, _KEYS, "")
        outcomes = self._of(data, "outcomes", dict, {})
        program = ToolProgram()
        for name, outcome in outcomes.items():
            if not isinstance(outcome, dict):
                raise self._wrong(name, f"outcomes.{name} must be a table")
            self._check_keys(outcome, _OUTCOME_KEYS, f"outcomes.{name}.")
            form = self._forms[name] = (not self._of(outcome, "fails", bool, False), name)
            if "answer" in outcome:
                program.says[form] = self._read(outcome, "answer", Program)
            laws = self._of(outcome, "always", list, [])
            program.laws[form] = tuple(self._parsed(text, Condition, "always") for text in laws)
        if "decides" in data:
            program.tree = self._tree(self._read(data, "decides", Decide | str | Mapping[str, int]))
        for prefix in (updates := self._of(data, "updates", dict, {})):
            program.effects[prefix] = self._read(updates, prefix, Effect)
        for collection in (inserts := self._of(data, "inserts", dict, {})):
            program.inserts[collection] = self._read(inserts, collection, Insert)
        if "query" in data:
            program.query = self._read(data, "query", Query)
        absent = [self._outcome(name) for name in self._of(data, "absent", list, [])]
        program.absent = Counter({form: len(absent) - place for place, form in enumerate(absent)})
        program.views = dict.fromkeys(self._of(data, "unaffected", list, []), (_SEEN, 0))
        program.views |= dict.fromkeys(self._of(data, "forgotten", list, []), (0, _SEEN))
        program.arguments = frozenset(self._of(data, "arguments", list, []))
        return ToolRules(self._text, program, self._of(data, "writes", bool, False), program.arguments)

    def _tree(self, decides: Any) -> Tree | None:
        if isinstance(decides, Decide):
            yes, no = self._tree(decides.yes), self._tree(decides.no)
            return TreeNode(decides.condition, yes, no, self._tree(decides.unknown))
        if isinstance(decides, str):
            return TreeLeaf(((self._outcome(decides), _SEEN),))
        if isinstance(decides, dict):
            counts = Counter({self._outcome(name): int(count) for name, count in decides.items()})
            return TreeLeaf(tuple(counts.most_common()))
        return None

    def _outcome(self, name: str) -> OutcomeForm:
        if name not in self._forms:
            near = get_close_matches(name, self._forms, n=1, cutoff=0)
            instead = f"; did you mean '{near[0]}'?" if near else "; there is none"
            raise self._wrong(name, f"no [outcomes.{name}]{instead}")
        return self._forms[name]

    def _read(self, data: Mapping[str, Any], key: str, wanted: Any) -> Any:
        return self._parsed(data[key], wanted, key)

    def _parsed(self, text: Any, wanted: Any, key: str) -> Any:
        if not isinstance(text, str):
            raise self._wrong(key, f"'{key}' must be a string with a program")
        try:
            return notation.read(text, wanted)
        except UnreadableProgram as error:
            start = self._text.find(text.strip())
            line = self._text.count("\n", 0, start) + error.line if start >= 0 else self._line(key)
            raise UserError(f"{self._file}:{line}: {error}") from None

    def _of(self, data: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
        value: Any = data.get(key, default)
        if not isinstance(value, kind):
            raise self._wrong(key, f"'{key}' must be a {kind.__name__}")
        if (
            kind is list
            and key in data
            and key != "always"
            and not all(isinstance(item, str) for item in data[key])
        ):
            raise self._wrong(key, f"'{key}' must be a list of strings")
        return value

    def _check_keys(self, data: Mapping[str, Any], allowed: Sequence[str], place: str) -> None:
        for key in data:
            if key not in allowed:
                near = get_close_matches(key, allowed, n=1, cutoff=0)[0]
                raise self._wrong(key, f"unknown key '{place}{key}'; did you mean '{near}'?")

    def _wrong(self, key: str, text: str) -> UserError:
        return UserError(f"{self._file}:{self._line(key)}: {text}")

    def _line(self, key: str) -> int:
        place = self._text.find(key)
        return self._text.count("\n", 0, max(place, 0)) + 1


def as_file(program: ToolProgram, arguments: Sequence[str], *, writes: bool) -> str:
    """Serialize a program as the text of a rules file."""
    names = _outcome_names(program)
    lines = [f"writes = {str(writes).lower()}", f"arguments = {notation.write(tuple(arguments))}"]
    if program.tree is not None:
        lines += _block("decides", notation.write(_decides(program.tree, names)))
    if program.absent:
        lines.append(
            f"absent = {notation.write(tuple(names[form] for form, _ in program.absent.most_common()))}"
        )
    for key, changed in (("unaffected", False), ("forgotten", True)):
        views = tuple(sorted(view for view in program.views if program.changes(view) is changed))
        lines += [f"{key} = {notation.write(views)}"] if views else []
    if program.query is not None:
        lines += _block("query", notation.write(program.query))
    for form, name in names.items():
        lines += ["", f"[outcomes.{name}]", f"fails = {str(not form[0]).lower()}"]
        if (says := program.says.get(form)) is not None:
            lines += _block("answer", notation.write(says))
        if laws := program.laws.get(form):
            lines += ["always = [", *dict.fromkeys(f"  {_quoted(notation.write(law))}," for law in laws), "]"]
    for title, entries in (("updates", program.effects), ("inserts", program.inserts)):
        present = {key: entry for key, entry in entries.items() if entry is not None}
        lines += ["", f"[{title}]"] if present else []
        for key, entry in present.items():
            lines += _block(notation.write(key), notation.write(entry))
    return "\n".join(lines) + "\n"


def _outcome_names(program: ToolProgram) -> dict[OutcomeForm, str]:
    forms = dict.fromkeys([*(form for form, _ in _leaves(program.tree)), *program.says, *program.absent])
    names: dict[OutcomeForm, str] = {}
    for form in forms:
        word = "ok" if form[0] else "error"
        number = sum(other[0] == form[0] for other in names) + 1
        names[form] = word if number == 1 else f"{word}_{number}"
    return names


def _leaves(tree: Tree | None) -> Iterator[tuple[OutcomeForm, int]]:
    if isinstance(tree, TreeLeaf):
        yield from tree.counts
    elif tree is not None:
        for branch in (tree.yes, tree.no, tree.unknown):
            yield from _leaves(branch)


def _decides(tree: Tree | None, names: Mapping[OutcomeForm, str]) -> Any:
    if tree is None:
        return None
    if isinstance(tree, TreeLeaf):
        counts = {names[form]: count for form, count in tree.counts}
        return next(iter(counts)) if len(counts) == 1 else counts
    branches = (_decides(branch, names) for branch in (tree.yes, tree.no, tree.unknown))
    return Decide(tree.condition, *branches)


def _block(key: str, text: str) -> list[str]:
    if "\n" not in text and "'" not in text:
        return [f"{key} = {_quoted(text)}"]
    if "'''" in text:
        return [f"{key} = {_quoted(text)}"]
    return [f"{key} = '''", f"{text}'''"]


def _quoted(text: str) -> str:
    return f"'{text}'" if "'" not in text and "\n" not in text else notation.write(text)


def with_declared(mined: Model, rules: Mapping[str, ToolRules]) -> Model:
    """Return a copy of the model in which rules replace the mined programs of their tools."""
    if not rules:
        return mined
    model = copy(mined)
    model.tools, model.parameters = mined.tools.copy(), dict(mined.parameters)
    model.writes |= {tool for tool, tool_rules in rules.items() if tool_rules.writes}
    model.declared = frozenset(rules)
    for tool, tool_rules in rules.items():
        wraps = mined.tools[tool].wraps if tool in mined.tools else {}
        model.tools[tool] = replace(tool_rules.program, wraps=wraps)
        model.parameters.setdefault(tool, Parameters.required_only(tool_rules.arguments))
    model.collections = copy(mined.collections)
    refs = mined.collections.arg_refs
    model.collections.arg_refs = dict(refs)
    for tool in rules.keys() - mined.tools.keys():  # never recorded: arguments refer as in other tools
        for arg in rules[tool].arguments:
            named = Counter(collection for (_, name), collection in refs.items() if name == arg)
            for collection, _ in named.most_common(1):
                model.collections.arg_refs[tool, arg] = collection
    return model


def contradictions(model: Model, episodes: Sequence[RecordedCalls]) -> Iterator[Contradiction]:
    """Yield recorded calls that declared programs answer differently, and reads that show another change.

    Each call is predicted from the state after the recorded answers before it. No answer is no contradiction.
    """
    for episode in episodes:
        dream, names = ProgramEpisode(model, episode.world, None, episode.id), MadeUpNames()
        dream.state = WorldState(model.collections, model.base, episode.world, without=episode.id)
        changed_by = ""
        for place, step in enumerate(episode.steps, start=1):
            answer = (
                dream.consider(step.tool, step.args) if step.tool in model.declared or changed_by else None
            )
            to_blame = step.tool if step.tool in model.declared else changed_by
            if answer is not None and (step.tool in model.declared or ":changed" in answer.kind):
                same = answer.ok == step.ok and names.equal(answer.out, step.out, dream.made_up)
                if not same:
                    yield Contradiction(to_blame, episode.world, episode.id, place, answer.out, step.out)
            if step.ok and step.tool in model.writes:
                changed_by = step.tool if step.tool in model.declared else ""
            dream.observe(step)


def without_parts(program: ToolProgram) -> Iterator[tuple[str, ToolProgram]]:
    """Each part of a program by name, with what is left without it."""
    for form in program.says:
        says = {other: answer for other, answer in program.says.items() if other != form}
        yield f"outcomes.{form[1]}.answer", replace(program, says=says)
    for prefix in program.effects:
        effects = {other: effect for other, effect in program.effects.items() if other != prefix}
        yield f"updates.{prefix}", replace(program, effects=effects)
    for collection in program.inserts:
        inserts = {other: insert for other, insert in program.inserts.items() if other != collection}
        yield f"inserts.{collection}", replace(program, inserts=inserts)
    if program.query is not None:
        yield "query", replace(program, query=None)
    if program.tree is not None:
        yield "decides", replace(program, tree=None)
