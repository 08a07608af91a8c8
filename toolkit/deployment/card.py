"""The card that lies with deployed weights: what they are, what was measured, what was not, and who decided.

Text of people, tasks and runs is data: none of its marks count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version as installed

from dreamgym_kit.deployment.pointing import KEY, Pointing
from dreamgym_kit.deployment.records import Deed, Event, Version
from dreamgym_kit.deployment.story import Story
from dreamgym_kit.report.evaluation import Evaluation
from dreamgym_kit.report.markdown import quiet
from dreamgym_kit.trust.outcomes import Share
from dreamgym_kit.trust.promotion import Promotion


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """All that a card tells."""

    name: str  # of what is deployed, as the server names it
    version: Version
    event: Event
    story: Story
    evaluation: Evaluation | None
    promotion: Promotion | None
    untested: tuple[str, ...]
    pointing: Pointing


def rendered(facts: CardFacts, *, merged: bool = True) -> str:
    """The card as Markdown, for the merged weights or for the adapter."""
    parts = [
        f"---\nlibrary_name: {'transformers' if merged else 'peft'}\ntags: [dreamgym-kit, tool-use]\n---",
        f"# {quiet(facts.name)} {quiet(facts.version.name)}",
        _decided(facts),
        "## What it is\n\n" + _table(("", ""), _what(facts)),
        "## Data\n\n" + _list(facts.story.data),
        _scores(facts),
        "## What it was not tested on\n\n" + _list(facts.untested),
        _use(facts),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _decided(facts: CardFacts) -> str:
    event, on = facts.event, _day(facts.event.at)
    if event.deed is Deed.FORCED:
        lines = [
            f"**Forced on {on}** by a person, who said: {quiet(event.why)}",
            "What spoke against it:",
            _list(event.reasons),
        ]
        return "\n\n".join(lines)
    return f"Promoted on {on}. {quiet(event.sentence)}"


def _what(facts: CardFacts) -> list[tuple[str, str]]:
    rows = [
        ("weights", facts.version.weights),
        ("taken from", facts.version.source),
        ("in place of", facts.event.before or "nothing that was deployed here"),
        ("base", facts.story.base),
        *facts.story.facts,
        ("made with", f"dreamgym-kit {installed('dreamgym-kit')}"),
    ]
    return [(quiet(label), quiet(text)) for label, text in rows]


def _scores(facts: CardFacts) -> str:
    found = facts.evaluation
    parts = []
    if found is not None:
        rows = [("this one", found.b)] + ([("what it is held against", found.a)] if found.a else [])
        told = [
            (name, quiet(one.agent), "the real tools" if one.real else "a dream", f"{len(one.outcomes)}",
             f"{one.episodes}", share(one.once), quiet(one.run))
            for name, one in rows
        ]  # fmt: skip
        parts.append(_table(("", "agent", "on", "tasks", "episodes", "solved (95 %)", "run"), told))
    if facts.promotion is not None and facts.promotion.families:
        parts.append(_families(facts.promotion))
    parts += [f"{quiet(label)}: {quiet(text)}" for label, text in facts.story.scores]
    return "## Scores\n\n" + "\n\n".join(parts) if parts else ""


def _families(found: Promotion) -> str:
    rows = [
        (
            quiet(name),
            f"{one.tasks}",
            f"{100 * one.a:.0f} %",
            f"{100 * one.b:.0f} %",
            f"{100 * one.change:+.0f} ({100 * one.low:+.0f} to {100 * one.high:+.0f})",
        )
        for name, one in ((each.name, each.found) for each in found.families)
    ]
    sure = 100 * (1 - 0.05 / max(1, len(rows)))
    return _table(("kind of task", "tasks", "before", "now", f"points ({sure:.1f} % interval)"), rows)


def _use(facts: CardFacts) -> str:
    lines = "\n".join(f"    {line}" for line in facts.pointing.lines)
    back = f"    dreamgym-kit deploy rollback --registry {facts.pointing.shelf}"
    key = f"Server and agent read the key from `{KEY}`: set it to a secret of your own."
    return f"## Use\n\n{lines}\n\n{key} Back to the version before:\n\n{back}"


def share(told: Share | None) -> str:
    """A share with its interval, in a cell."""
    if told is None:
        return "not known"
    return f"{100 * told.mean:.0f} % ({100 * told.low:.0f} to {100 * told.high:.0f})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def _list(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {quiet(one)}" for one in sentences)


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
