"""Tool models in words and as JSON: each rule with its evidence, for a person who reads and corrects them."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from dreamgym_kit.dream.state.effects import EffectRule
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.sentences import form, operation, question, spelled, whole
from dreamgym_kit.dream.state.templates import Template
from dreamgym_kit.dream.state.trees import Node
from dreamgym_kit.serialization import JsonValue

_MAX_LINES = 40


@dataclass(frozen=True, slots=True)
class RuleLine:
    """One rule, mined or stated.

    Attributes:
        kind: answers, fails, changes or keeps.
        says: the rule as a sentence.
        right, wrong: held out by world; for `keeps`, pairs that stayed and pairs that did not.
        worlds: how many worlds it was seen in; 0 for what was stated.
        source: who says so: mined, declared or drafted.
        contradiction: of what was stated, the first recording that says otherwise.
    """

    tool: str
    kind: str
    says: str
    right: int
    wrong: int
    worlds: int
    source: str = "mined"
    contradiction: str = ""

    def to_json(self) -> dict[str, JsonValue]:
        """The fields by name."""
        return dict(asdict(self))


def rule_lines(models: ToolModels) -> list[RuleLine]:
    """Every rule: what each tool answers, what each write changes, what it leaves alone."""
    lines = [
        RuleLine(tool, "answers", _short(shape), answer.right, answer.wrong, answer.worlds)
        for (tool, shape), answer in models.answers.items()
    ]
    for (tool, shape), rules in models.rules.items():
        for read, rule in rules.items():
            if rule.program is not None or rule.right > rule.wrong:  # else nothing was found out
                lines.append(_effect(tool, shape, read, rule))
    kinds = ("answers", "changes", "keeps")
    return sorted(lines, key=lambda line: (line.tool, kinds.index(line.kind), -line.right, line.says))


def explain(models: ToolModels, tool: str) -> Iterator[str]:
    """All that is known of one tool: when which answer, how it is made, what it does."""
    if tool in models.trees:
        yield "when it answers what (calls recorded):"
        yield from list(_branches(models.trees[tool], "  "))[:_MAX_LINES]
    for (name, shape), answer in models.answers.items():
        if name == tool:
            tried = f"{answer.right} right, {answer.wrong} wrong held out, {answer.worlds} worlds"
            yield f"answer {_short(shape)}: {tried}"
            yield from (f"  {line}" for line in _leaves(answer.template))
    for line in rule_lines(models):
        if line.tool == tool and line.kind != "answers":
            yield f"{line.kind} {line.says} ({line.right} right, {line.wrong} wrong)"
    for (name, argument), (source, least) in models.absences.items():
        if name == tool:
            yield f"a {argument} that occurs nowhere is absent, where {least} answers of {source} are known"
    for path in models.fresh.get(tool, ()):
        yield f"makes up {path}"


def _effect(tool: str, shape: str, read: str, rule: EffectRule) -> RuleLine:
    bound = " and ".join(f"{of} = {name}" for of, name in rule.bind)
    where = f"{read}({bound})" if bound else read
    after = f", where it answered {_short(shape)}"
    if rule.keeps:
        same = rule.same + rule.other_same
        return RuleLine(
            tool, "keeps", where + after, same, rule.changed + rule.other - rule.other_same, rule.worlds
        )
    if rule.program is None:
        made = operation("set", "", _value(rule.whole))
        return RuleLine(tool, "changes", f"{where}: {made}{after}", rule.right, rule.wrong, rule.worlds)
    done = []
    for path, kind in rule.program:
        template = rule.operations.get((path, kind))
        to = _value(template) if template is not None else "something"
        done.append(operation(kind, ".".join(map(str, path)), to))
    return RuleLine(
        tool, "changes", f"{where}: {'; '.join(done)}{after}", rule.right, rule.wrong, rule.worlds
    )


def _value(template: Template) -> str:
    return whole(_parts(template)[:3])


def _leaves(template: Template) -> list[str]:
    named = ((path.removeprefix("$answer."), value) for path, value in _parts(template))
    return [f"{path} = {value}" if path else value for path, value in named]


def _parts(template: Template) -> list[tuple[str, str]]:
    return [(path, spelled(str(expression))) for path, expression, _, _ in template.leaves()]


def _branches(node: Node, indent: str) -> Iterator[str]:
    if node.feature is None:
        yield indent + ", ".join(f"{_short(shape)} {count}" for shape, count in node.counts.most_common(3))
        return
    for way, branch in enumerate(node.branches):
        if branch is not None:
            yield f"{indent}if {question(node.feature, node.value, way)}:"
            yield from _branches(branch, indent + "  ")


def _short(spelled_form: str) -> str:
    said = form(spelled_form)
    return said if len(said) <= 80 else said[:77] + "..."
