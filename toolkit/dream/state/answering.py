"""How answers of one form are made: a template from examples, tried on worlds that it was not made from."""

from collections.abc import Sequence

from dreamgym_kit.dream.state.models import AnswerForm
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.templates import Template
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.serialization import JsonValue

Told = tuple[Names, JsonValue, str]
"""One answer: what could be named, what was said, the world."""


def answer_form(examples: Sequence[Told]) -> AnswerForm:
    """Make the template; count right and wrong on halves of the worlds, each tried on the other."""
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
                    made.count(filled.grade, right=spell(filled.value) == spell(seen))
    return made
