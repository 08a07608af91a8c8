"""One dreamed episode over mined programs: answers calls, and keeps its own state of the world."""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dreamgym_kit.dream.observed import Wrap
from dreamgym_kit.dream.programs.collections import VIEW, WHOLE, Document, Projection, RowKey, args_key
from dreamgym_kit.dream.programs.effects import Assign, Effect, Keep
from dreamgym_kit.dream.programs.environment_fields import ENVIRONMENT, FIELD, VALUE, are_related, made_of
from dreamgym_kit.dream.programs.model import Model, OutcomeForm, ToolProgram, made_up_places, most_common
from dreamgym_kit.dream.programs.queries import Find, ask
from dreamgym_kit.dream.programs.records import WorldState
from dreamgym_kit.dream.programs.scope import Scope
from dreamgym_kit.dream.programs.trees import TreeNode, has_grounds, leaf_of
from dreamgym_kit.dream.programs.trust import FEW, NEAR, SUSPECTED, Trust, lower_bound
from dreamgym_kit.dream.programs.values import (
    GONE,
    UNKNOWN,
    SeenStep,
    at_path,
    figure,
    is_clock,
    leaves,
    same,
    value_key,
)
from dreamgym_kit.serialization import JsonValue

_HEX = re.compile(r"[0-9a-f]*\d[0-9a-f]*$")
_FEW = 1  # recorded calls: a branch grown for one may be an accident, and is measured apart
_DECLARED = 0.97  # confidence in a program that a person wrote and no recording contradicts
EVERYWHERE = "everywhere"
"""Kind of an answer from other worlds; its confidence comes from their agreement."""
_OF_RECORDS = ("row", "nested", "find")  # answers of these kinds depend on certain records only
_DAY = re.compile(r"\d{4}-\d\d|\d\d?:\d\d")
_DENIES = re.compile(r"(?i)\b(no|none|nothing|unknown|not found|not exist)\b")
_CHANGED = ":changed"
"""Suffix of the kind of an answer that depends on a record changed in this episode."""


class Proposed(NamedTuple):
    """A program's answer to a call."""

    ok: bool
    out: JsonValue
    kind: str  # what sort of answer: each is trusted by itself
    rows: tuple[RowKey, ...]  # the records that the answer depends on
    share: float = 1.0  # of recorded calls in the same situation, the share with this outcome
    writes: frozenset[str] = frozenset()  # the tools whose writes these records went through


class ProgramAnswer(NamedTuple):
    """An answer with its confidence."""

    ok: bool
    out: JsonValue
    confidence: float
    kind: str
    wrap: Wrap

    @property
    def why(self) -> str:
        """The basis of the answer, in a phrase."""
        base, *marks = self.kind.split("|", maxsplit=1)[0].split(":")
        changed = ", as this episode changed it" * ("changed" in marks or "own" in marks)
        return _BECAUSE[base] + changed


_BECAUSE = {
    "row": "the record that it names is known",
    "view": "the same question was answered before",
    "fields": "what earlier answers show of the environment",
    "absent": "the record that it names is known to be gone",
    "nested": "the record stands in another one",
    "everywhere": "the same question has the same answer in every world",
    "find": "one known record fits",
    "list": "the known records that fit",
    "write": "recorded calls that stood like it went so",
    "read": "recorded calls that stood like it went so",
    "look-up": "recorded look-ups of unknown records went so",
}


class ProgramEpisode:
    """One dreamed episode.

    Args:
        model: the programs.
        world: of the episode.
        trust: the measured confidence of each kind of answer; None: full confidence.
        seed: determines the made-up values.
    """

    def __init__(self, model: Model, world: str, trust: Trust | None, seed: object = 0) -> None:
        self.model, self.trust = model, trust
        self.state = WorldState(model.collections, model.base, world)
        self.made_up: set[JsonValue] = set()
        self.read_views: set[RowKey] = set()  # views, in this episode
        self.proposed: list[Proposed] = []  # for the last call: each kind of answer is measured by itself
        self.seed(repr(seed))

    def seed(self, seed: str) -> None:
        """Set the seed of made-up values: the same call in the same state gets the same ids."""
        self._random = random.Random(seed)  # noqa: S311

    def consider(self, tool: str, args: Mapping[str, JsonValue]) -> ProgramAnswer | None:
        """Return the best answer to a call, at any confidence; None where no program has one."""
        if tool not in self.model.tools:
            return None
        program = self.model.tools[tool]
        scope = self.scope(tool, args)
        proposals = (
            self._of_environment(program, tool, args, scope),
            self._proposed(program, tool, dict(args), scope),
        )
        written = frozenset(write for write, _ in self.state.line)
        self.proposed = [
            proposal._replace(writes=written if proposal.rows else frozenset())
            for proposal in proposals
            if proposal is not None
            and (tool in self.model.writes or not self.state.open or self._stands(tool, args, proposal))
        ]
        proposed = max(self.proposed, key=lambda proposal: self._confidence(tool, proposal), default=None)
        if proposed is None or proposed.kind.startswith("view:"):
            proposed = self._same_everywhere(tool, args) or proposed
        if proposed is None:
            return None
        wrap = program.wraps.get(proposed.ok, _as_it_is)
        for row in proposed.rows if proposed.kind == "view" else ():
            wrap = self.model.base.wraps.get((self.state.world, row), wrap)
        return ProgramAnswer(proposed.ok, proposed.out, self._confidence(tool, proposed), proposed.kind, wrap)

    def scope(self, tool: str, args: Mapping[str, JsonValue]) -> Scope:
        """Return the names that a call can see; programs can make up values in it."""
        scope = self.model.scope(self.state, tool, args)
        scope.maker = self.make_up
        return scope

    def observe(self, step: SeenStep, confidence: float | None = None) -> None:
        """Apply an answered call to the state. `confidence`: of an answer that was dreamed."""
        model, state = self.model, self.state
        scope = model.scope(state, step.tool, step.args)
        facts = model.collections.facts(step)
        if not step.ok:
            self._failed(step, scope, confidence)
        if (
            step.tool in model.writes
            and step.ok
            and not model.tools[step.tool].arguments.issuperset(step.args)
        ):
            state.written.append((step.tool, model.things(step.tool, step.args), frozenset()))
            self.unseen(step.tool, step.args)  # an argument that no recording has: what it does is unknown
            for fact in facts:
                state.put(fact.collection, fact.key, fact.fields, fact.whole, confidence)
        elif step.tool in model.writes and step.ok:
            after = model.after_names(scope, step)
            model.write(state, step, after, {fact.row for fact in facts}, confidence)
            self._forget_lists(self._touched(step.tool, after) | {fact.collection for fact in facts})
            for fact in model.left(step.tool, after, facts):
                state.put(fact.collection, fact.key, fact.fields, fact.whole, confidence)
        elif step.tool not in model.writes:
            for fact in facts:
                self.read_views.add(fact.row)
                if confidence is None:
                    state.put(fact.collection, fact.key, fact.fields, fact.whole)
                    state.shown.add(fact.row)
                elif state.at(fact.row) is None:
                    state.put(fact.collection, fact.key, fact.fields, fact.whole, confidence)
        model.note(state, step)

    def changed(self, changes: Iterable[Mapping[str, JsonValue]], confidence: float) -> None:
        """Apply the changes that a model declared with its answer: `{"entity", "field", "value"}` each.

        Known records with this key are changed where they have the field; unknown records stay unknown.
        """
        for change in changes:
            key, field = change.get("entity"), str(change.get("field"))
            for collection, fields in self.model.collections.fields.items():
                row = self.state.at((collection, value_key(key)))
                if isinstance(row, dict) and field in row and field in fields:
                    new = {field: change.get("value")}
                    self.state.put(collection, key, new, whole=False, confidence=confidence)
                    self._forget_lists({collection})

    def _failed(self, step: SeenStep, scope: Scope, confidence: float | None) -> None:
        """Keep what a failure shows: a write may have taken effect, a read may deny that a thing exists."""
        if self.model.is_open(step):
            things, state = self.model.things(step.tool, step.args), self.state
            state.open.append((step.tool, things, self.unseen(step.tool, step.args)))
            state.written.append((step.tool, things, frozenset()))
            state.shown.clear()
        elif step.tool in self.model.writes and confidence is not None:
            self._doubt(step, scope, confidence)
        elif not step.writes and _DENIES.search(" ".join(map(str, leaves(step.out)))):
            self.state.denied |= self.model.things(step.tool, step.args)

    def _doubt(self, step: SeenStep, scope: Scope, confidence: float) -> None:
        """Cap the confidence of records that a write would have changed, if its refusal was simulated."""
        state, program = self.state, self.model.tools[step.tool]
        document = self.model.collections.documents.get(step.tool)
        for prefix, (collection, key) in scope.rows.items():
            effect = program.effect_on(prefix)
            named = document is not None and prefix == f"{document.collection}<args.{document.key_arg}>"
            if named or not isinstance(effect, Keep):
                row = (collection, value_key(key))
                state.confidence[row] = min(state.confidence.get(row, 1.0), confidence)

    def unseen(self, tool: str, args: Mapping[str, JsonValue]) -> frozenset[RowKey]:
        """Forget what a write without an answer may have changed. Return the records that it leaves alone."""
        model, state = self.model, self.state
        if tool not in model.writes:
            return frozenset()
        scope, program = model.scope(state, tool, args), model.tools[tool]
        document, unchanged = model.collections.documents.get(tool), set()
        state.broken = True
        state.tainted |= set(program.inserts) | ({document.collection} if document else set())
        for prefix, (collection, key) in scope.rows.items():
            effect = program.effect_on(prefix)
            answered = (
                document is not None
                and document.collection == collection
                and document.key_arg is not None
                and prefix.endswith(f"<args.{document.key_arg}>")
            )
            changes = effect is not None and not isinstance(effect, Keep)
            if answered or changes or (effect is None and collection.startswith(VIEW)):
                state.put(collection, key, UNKNOWN, whole=False)
                self._forget_lists({collection})
            elif effect is not None:
                unchanged.add((collection, value_key(key)))
        for view, (_, changed) in program.views.items():
            if changed:
                self._forget(view)
        state.count[tool] += 1
        return frozenset(unchanged)

    # -- answers

    def _proposed(
        self, program: ToolProgram, tool: str, args: dict[str, JsonValue], scope: Scope
    ) -> Proposed | None:
        collections = self.model.collections
        if tool not in collections.reads:
            return self._by_tree(program, tool, scope, "write", args)
        record = collections.documents.get(tool) or collections.projections.get(tool)
        for kind in collections.kinds.get(tool, ()):
            rows = self._rows_named(kind, args) if kind.key_arg in args else None
            if rows is not None and (record is None or any(self.state.at(row) is not None for row in rows)):
                record = kind
        if record is not None and record.key_arg in args:
            return self._looked_up(program, tool, record, args, scope)
        if tool in collections.views or tool in collections.lists:
            viewed = self._viewed(tool, args)
            if viewed is not None:
                return None if is_clock(viewed.out) and self.read_views.issuperset(viewed.rows) else viewed
        if program.query is not None:
            answer = ask(program.query, self.state, scope, args)
            if answer is not None:
                return Proposed(True, answer.out, answer.kind, answer.rows)
        return None if tool in collections.lists else self._by_tree(program, tool, scope, "read", args)

    def _viewed(self, tool: str, args: dict[str, JsonValue]) -> Proposed | None:
        """Return the earlier answer to the same call, or join those for each item of its list argument."""
        row = (VIEW + tool, value_key(args_key(args)))
        view = self.state.at(row)
        if isinstance(view, dict) and not self._is_forgotten(tool, args):
            ok, out = view[""]
            return Proposed(ok, out, "view" + self._own(row) + self._since(tool, args), (row,))
        known = view is not None or row in self.state.changed
        parts = [] if known else [fact.row for fact in self.model.collections.parts(tool, args)]
        part_views = [self.state.at(part) for part in parts]
        if not part_views or not all(
            isinstance(part_view, dict) and part_view[""][0] for part_view in part_views
        ):
            return None
        joined = {name: value for part_view in part_views for name, value in part_view[""][1].items()}
        changed = _CHANGED * any(part in self.state.changed for part in parts)
        return Proposed(True, joined, f"view{changed}:parts" + self._since(tool, args), tuple(parts))

    def _stands(self, tool: str, args: Mapping[str, JsonValue], proposed: Proposed) -> bool:
        """Whether no write with an unknown end can have changed this answer."""
        kind, view = re.split("[:|]", proposed.kind)[0], (VIEW + tool, value_key(args_key(args)))
        rows = proposed.rows if kind in _OF_RECORDS and proposed.rows else (view,)
        if self.state.shown.issuperset(rows):
            return True
        records = [record for row in proposed.rows if isinstance(record := self.state.at(row), dict)]
        named = {value_key(leaf) for value in (records, args) for leaf in leaves(value)}
        for write, things, keeps in self.state.open:
            program = self.model.tools[write]
            unchanged, changed = program.views.get(VIEW + tool, (0, 0))
            if (unchanged > 1 and not changed) or (kind != "list" and keeps.issuperset(proposed.rows or "?")):
                continue
            apart = (
                kind == "read" and args and not are_related(f"{write} {' '.join(program.arguments)}", tool)
            )
            if not things.isdisjoint(named) or not (apart or kind in _OF_RECORDS):
                return False
        return True

    def _confidence(self, tool: str, proposed: Proposed) -> float:
        confidence = proposed.share
        if tool in self.model.declared and "|" in proposed.kind:  # not for repeated reads
            confidence = min(confidence, _DECLARED)
        elif self.trust is not None and proposed.kind != EVERYWHERE:
            confidence = self.trust.confidence(tool, proposed.kind, confidence, proposed.writes)
        return min([confidence, *map(self.state.sure_of, proposed.rows)])

    def _of_environment(
        self, program: ToolProgram, tool: str, args: Mapping[str, JsonValue], scope: Scope
    ) -> Proposed | None:
        """Return an answer made only of fields of the environment: present ones, or those after a write."""
        fields = self.model.collections.environment
        if tool in self.model.declared:
            return None
        if tool in self.model.writes:
            paths, effects = fields.written.get(tool, ()), program.effects
            leaf = leaf_of(program.tree, scope) if program.accounts_for(args, scope) else None
            form = most_common(leaf)[0] if leaf is not None else None
            if form is None or not form[0] or self._breaks_a_law(program, form, scope):
                return None
            collections = self.model.collections
            if any(
                (tool, name) in collections.arg_refs or (tool, name) in collections.arg_fields
                for name in args
            ):
                return None  # it is about that record
            if not program.unread.isdisjoint(args) and self.model.things(tool, args) not in program.given:
                return None  # every argument is accounted for
        else:
            paths, effects = fields.forms.get((tool, value_key(dict(args))), ()), None
            view = self.state.row(VIEW + tool, args_key(args))
            if isinstance(view, dict) and not self.state.line and not self.state.broken:
                return None  # no write since the same call was answered
        names = [fields.names[tool, path] for path in paths]
        rows = tuple((ENVIRONMENT + name, value_key("")) for name in names)
        values = {}
        for path, name, row in zip(paths, names, rows, strict=True):
            record = self.state.at(row)
            value = record.get(VALUE, UNKNOWN) if isinstance(record, dict) else UNKNOWN
            values[path] = value if effects is None else _becomes(effects.get(FIELD + name), value, scope)
        if not values or UNKNOWN in values.values():
            return None
        kind = "fields" + self._since_fields(tool, args, names) + ":written" * (effects is not None)
        return Proposed(True, made_of(values), kind, rows)

    def _since_fields(self, tool: str, args: Mapping[str, JsonValue], names: list[str]) -> str:
        """Return a mark: no writes in this episode, known effects on these fields, or unknown effects."""
        if not self.state.line and not self.state.broken:
            return ""
        written = {write for write, _ in self.state.line}
        unknown = {
            write
            for write in written
            if any(self.model.tools[write].effect_on(FIELD + name) is None for name in names)
        }
        return self._examined(unknown, tool, args, names) or ":since"

    def _examined(
        self, unknown: set[str], tool: str, args: Mapping[str, JsonValue], names: Sequence[str] = ()
    ) -> str:
        """Return a mark if nobody saw whether these writes change an answer; another if names suggest so."""
        about = (tool, *(value for value in args.values() if isinstance(value, str)), *names)
        if any(
            are_related(f"{write} {' '.join(self.model.tools[write].arguments)}", *about) for write in unknown
        ):
            return SUSPECTED
        return ":unexamined" if unknown or self.state.broken else ""

    def _is_forgotten(self, tool: str, args: dict[str, JsonValue]) -> bool:
        """Whether a write of this episode changed a field of this read in an unknown way."""
        fields = self.model.collections.environment
        paths = fields.forms.get((tool, value_key(args)), ())
        rows = ((ENVIRONMENT + fields.names[tool, path], value_key("")) for path in paths)
        return any(row in self.state.changed and not self.state.changed[row] for row in rows)

    def _same_everywhere(self, tool: str, args: Mapping[str, JsonValue]) -> Proposed | None:
        """Return the answer of other worlds, if it is the same in all."""
        everywhere = self.model.everywhere.get(tool)
        answer = everywhere.answers.get(value_key(dict(args))) if everywhere is not None else None
        if everywhere is None or answer is None:
            return None
        return Proposed(*answer, EVERYWHERE, (), lower_bound(everywhere.agreed, everywhere.shared))

    def _looked_up(
        self,
        program: ToolProgram,
        tool: str,
        where: Document | Projection,
        args: dict[str, JsonValue],
        scope: Scope,
    ) -> Proposed | None:
        key_arg = str(where.key_arg)
        rows = self._rows_named(where, args)
        if len(rows) > 1 or any(self._has_another_value(where, row, args) for row in rows):
            return None
        row = rows[0] if rows else (where.collection, value_key(None))
        record = self.state.at(row)
        if isinstance(record, dict):
            if isinstance(where, Projection):
                field = args.get(where.field_arg)
                if isinstance(field, str) and field in record and set(args) == {key_arg, where.field_arg}:
                    return Proposed(True, {field: record[field]}, "row" + self._own(row), (row,))
            elif record.get(WHOLE) and set(args) == {key_arg}:
                shown = self.model.collections.tool_fields[tool]
                out = {name: value for name, value in record.items() if name in shown}
                return Proposed(True, out, "row" + self._own(row), (row,))
            return None
        if record is GONE:
            absent = self._absent(program, args)
            return None if absent is None else Proposed(*absent, "absent" + self._own(row), (row,))
        if row in self.state.changed:
            return None  # a write may have changed this known record in an unknown way
        inside = self._in_a_map(tool, where, args)
        if inside is not None:
            return Proposed(True, inside, "nested", ())
        return self._by_tree(program, tool, scope, "look-up", args)

    def _rows_named(self, where: Document | Projection, args: Mapping[str, JsonValue]) -> list[RowKey]:
        """Return the records that a look-up's argument may name."""
        value = args[str(where.key_arg)]
        if isinstance(where, Document) and where.by != where.key_field:
            return self.state.named_by(where.collection, where.by, value)
        return [(where.collection, value_key(value))]

    def _has_another_value(
        self, where: Document | Projection, row: RowKey, args: Mapping[str, JsonValue]
    ) -> bool:
        """Whether a record that once had the argument's value in the look-up's field has another one now."""
        record = self.state.at(row)
        if not isinstance(where, Document) or where.by == where.key_field or not isinstance(record, dict):
            return False
        return not same(record.get(where.by, UNKNOWN), args[str(where.key_arg)])

    def _own(self, row: RowKey) -> str:
        """Return a mark: a write changed this record, there were other writes, or there were none."""
        if row in self.state.changed:
            return _CHANGED
        return ":since" if self.state.line or self.state.broken else ""

    def _since(self, tool: str, args: Mapping[str, JsonValue]) -> str:
        """Return a mark: no writes since the view, writes known to leave it alone, or unexamined writes."""
        if not self.state.line and not self.state.broken:
            return ""
        counts = {
            write: self.model.tools[write].views.get(VIEW + tool, (0, 0)) for write, _ in self.state.line
        }
        unknown = {write for write, (same, changed) in counts.items() if same < 2 or changed}
        return self._examined(unknown, tool, args) or ":kept"

    def _absent(self, program: ToolProgram, args: Mapping[str, JsonValue]) -> tuple[bool, JsonValue] | None:
        """Return the tool's answer for a record that does not exist."""
        scope = Scope({f"args.{name}": value for name, value in args.items()})
        for form, _ in program.absent.most_common(2):
            says = program.says.get(form)
            out = says(scope) if says is not None else UNKNOWN
            if out is not UNKNOWN:
                return form[0], out
        return None

    def _in_a_map(
        self, tool: str, where: Document | Projection, args: Mapping[str, JsonValue]
    ) -> dict[str, Any] | None:
        """Return a record that is known only as an entry in a map of another record."""
        collections, key = self.model.collections, args[str(where.key_arg)]
        owner = collections.arg_maps.get((tool, str(where.key_arg)))
        if owner is None or not isinstance(key, str):
            return None
        fields = collections.fields.get(where.collection, set())
        for row in self.state.rows_of(owner[0]):
            record = self.state.at(row)
            entries = at_path(record, owner[1]) if isinstance(record, dict) else None
            entry = entries.get(key) if isinstance(entries, dict) else None
            if isinstance(entry, dict) and set(entry) == fields:
                return entry
        return None

    def _by_tree(
        self, program: ToolProgram, tool: str, scope: Scope, kind: str, args: Mapping[str, JsonValue]
    ) -> Proposed | None:
        """Return the most frequent outcome of recorded calls at the same leaf of the tree."""
        leaf = leaf_of(program.tree, scope) if program.accounts_for(args, scope) else None
        if leaf is None:
            return None
        form, count, total = most_common(leaf)
        says = program.says.get(form)
        if says is None:
            return None
        always_refused = not any(went_well for went_well, _ in program.says)
        is_mined = tool not in self.model.declared  # else a person wrote the conditions
        if is_mined and always_refused and (tool, self.state.world) not in self.model.recorded_in:
            return None  # without a success its conditions are unknown
        if is_mined and form[0] and kind == "write" and self._names_nothing_known(program, tool, args, scope):
            return None
        ambiguous = len(leaf.counts) > 1 or len(program.says) > 1
        if not form[0] and ambiguous and not has_grounds(program.tree, scope):
            return None
        out = says(scope)
        if out is UNKNOWN or self._breaks_a_law(program, form, scope):
            return None
        if (
            (form[0] or always_refused)
            and not program.unread.isdisjoint(args)
            and self.model.things(tool, args) not in program.given
        ):
            return None  # every argument is accounted for
        if form[0] and kind == "write" and self._is_there_already(tool, out):
            return None  # it makes another thing
        self.made_up |= self.model.guessed_ids(tool, out, self.state) if form[0] else set()
        share = lower_bound(count, total, NEAR) if count < total else min(1.0, 0.5 + 0.15 * total)
        kind += (
            ":unheard" * self._names_unheard(program, scope, args)
            + FEW * (total <= _FEW and isinstance(program.tree, TreeNode))
            + self._untried(program, kind, tool, args, scope)
        )
        outcome = "ok" if form[0] else "fail"
        return Proposed(form[0], out, f"{kind}|{outcome}|{str(form[1])[:40]}", (), share)

    def _is_there_already(self, tool: str, out: JsonValue) -> bool:
        """Whether the key of a record that a write makes is that of one made or changed in this episode."""
        document = self.model.collections.documents.get(tool)
        if document is None or document.key_arg is not None or not isinstance(out, dict):
            return False
        return (document.collection, value_key(out.get(document.key_field))) in self.state.changed

    def _names_nothing_known(
        self, program: ToolProgram, tool: str, args: Mapping[str, JsonValue], scope: Scope
    ) -> bool:
        """Whether a write names a thing that is known not to exist, or that no answer in this world shows."""
        denied = {name for name, value in args.items() if value_key(value) in self.state.denied}
        if denied or scope.absent() - program.blind:
            return True
        if any(self.state.world == world for world, _ in self.model.base.facts):
            return False
        unseen = {name for name in args if not scope.seen_earlier.get(f"args.{name}", True)}
        makes = program.inserts or made_up_places(program)  # a new thing takes its values from the call
        return any(
            (tool, name) in self.model.collections.arg_refs or (not makes and _may_be_a_key(name, args[name]))
            for name in unseen - program.choices.keys() - program.blind
        )

    def _names_unheard(self, program: ToolProgram, scope: Scope, args: Mapping[str, JsonValue]) -> bool:
        """Whether a call names a thing that no answer in this world shows; these are measured separately."""
        names = program.names.intersection(args) - program.choices.keys()
        unseen = (name for name in names if not scope.seen_earlier.get(f"args.{name}", True))
        return bool(scope.unseen) or any(_may_be_a_key(name, args[name]) for name in unseen)

    def _untried(
        self, program: ToolProgram, kind: str, tool: str, args: Mapping[str, JsonValue], scope: Scope
    ) -> str:
        """Return a mark if this episode's writes to a thing have an order that no recording shows."""
        if kind != "write":
            return ""
        pairs = self.model.followed(self.state, tool, args, scope) - self.model.sequences
        if program.inserts or any(of == tool for of, _ in self.model.counters):
            pairs.discard((tool, tool))  # what makes a thing makes another one
        return ":untried" * bool(pairs)

    def _breaks_a_law(self, program: ToolProgram, form: OutcomeForm, scope: Scope) -> bool:
        return any(law(scope) is False for law in program.laws.get(form, ()))

    # -- what changes

    def _touched(self, tool: str, scope: Scope) -> set[str]:
        """Return the collections that a write changes."""
        program, document = self.model.tools[tool], self.model.collections.documents.get(tool)
        touched = {*program.inserts, *([document.collection] if document else [])}
        for prefix, (collection, _) in scope.rows.items():
            effect = program.effect_on(prefix)
            if effect is not None and not isinstance(effect, Keep):
                touched.add(collection)
        return touched

    def _forget_lists(self, collections: set[str]) -> None:
        """Forget the stored lists of these records."""
        for tool, sites in self.model.collections.lists.items():
            if any(site.collection in collections for site in sites):
                self._forget(VIEW + tool)
        for tool, program in self.model.tools.items():
            if isinstance(program.query, Find) and program.query.collection in collections:
                self._forget(VIEW + tool)

    def _forget(self, view: str) -> None:
        for row in self.state.rows_of(view):
            self.state.changed[row] = None

    def make_up(self, like: str) -> JsonValue:
        """Return a made-up value in the form of a recorded one."""
        made = made_like(like, self._random)
        self.made_up.add(made)
        return made


def made_like(like: str, chance: random.Random) -> str:
    """Return a text in the form of another one, with random digits."""
    digits = _HEX.search(like)
    is_hex = digits and len(digits[0]) >= 5 and re.search("[a-f]", digits[0])
    return "".join(
        chance.choice("0123456789abcdef")
        if is_hex and digits and place >= digits.start()
        else chance.choice("0123456789")
        if character.isdigit()
        else character
        for place, character in enumerate(like)
    )


def _becomes(effect: Effect | None, value: Any, scope: Scope) -> Any:
    """Return the value of a field of the environment after a write, from the value before."""
    if isinstance(effect, Assign):
        return effect.fields[VALUE](scope.child({"old": value}))
    return value if isinstance(effect, Keep) else UNKNOWN


def _may_be_a_key(name: str, value: JsonValue) -> bool:
    """Whether an argument may name a thing: it is neither an amount nor a time."""
    return (figure(value) is None and not _DAY.match(str(value))) or name.lower().endswith(
        ("id", "no", "key")
    )


def _as_it_is(out: JsonValue) -> JsonValue:
    return out
