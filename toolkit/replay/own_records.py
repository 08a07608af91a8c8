"""The quick way to read a record of the very form that the kit writes; anything else is left to `records`.

Decides nothing of its own: what is taken here is what `records` takes, as the same transition. Every field
has to be there, in the order written and of exactly the type written; at the least doubt the answer is None,
and the slow reader takes what a person wrote or says what is wrong with it.
"""

from math import isfinite
from typing import Any

from dreamgym_kit.vocabulary import SCHEMA_VERSION, Answer, Call, Effect, Provenance, Split, Transition, World

WORLD_FIELDS = ("name", "seed")
CALL_FIELDS = ("tool", "args", "call_id", "node")
ANSWER_FIELDS = (
    "content",
    "provenance",
    "support",
    "artifact",
    "error",
    "error_type",
    "update",
    "cites",
    "why",
)
TRANSITION_FIELDS = (
    *("schema", "id", "tenant", "split", "world", "task", "episode", "step", "after", "effect"),
    *("call", "answer", "elapsed_s", "recorded_at"),
)
_TYPES = (int, str, str, str, dict, str, str, int, str, str, dict, dict, float, float)  # of these, in order
_TEXT_OR_NONE = (str, type(None))
_OBJECT_OR_NONE = (dict, type(None))
_SPLITS = {str(split): split for split in Split}
_EFFECTS = {str(effect): effect for effect in Effect}
_PROVENANCES = {str(provenance): provenance for provenance in Provenance}


def read_own(record: object) -> Transition | None:
    """Read a record of the very form written; its `id` is not compared with its content."""
    if type(record) is not dict or tuple(record) != TRANSITION_FIELDS:
        return None
    values = tuple(record.values())
    if tuple(map(type, values)) != _TYPES:
        return None
    schema, _, tenant, split, place, task, episode, step, after, effect, asked, said, took, at = values
    world, call, answer = _world(place), _call(asked), _answer(said)
    if world is None or call is None or answer is None or split not in _SPLITS or effect not in _EFFECTS:
        return None
    if not (1 <= schema <= SCHEMA_VERSION and step >= 1 and isfinite(took) and isfinite(at)):
        return None
    return Transition(
        *(call, answer, _EFFECTS[effect], episode, step, world, task, after, tenant, _SPLITS[split]),
        *(took, at, schema),
    )


def _world(record: dict[str, Any]) -> World | None:
    if tuple(record) != WORLD_FIELDS:
        return None
    name, seed = record.values()
    return World(name, seed) if type(name) is str and type(seed) is int else None


def _call(record: dict[str, Any]) -> Call | None:
    if tuple(record) != CALL_FIELDS:
        return None
    tool, args, call_id, node = record.values()
    right = type(tool) is str and type(args) is dict
    if not right or type(call_id) not in _TEXT_OR_NONE or type(node) not in _TEXT_OR_NONE:
        return None
    return Call(tool, args, call_id, node)


def _answer(record: dict[str, Any]) -> Answer | None:
    """Those with `changes` go the slow way; few have them."""
    if tuple(record) != ANSWER_FIELDS:
        return None
    content, provenance, support, artifact, error, error_type, update, cites, why = record.values()
    if type(provenance) is not str or provenance not in _PROVENANCES:
        return None
    if type(support) is not float or not 0 <= support <= 1 or type(why) is not str:
        return None
    if type(error) not in _TEXT_OR_NONE or type(error_type) not in _TEXT_OR_NONE:
        return None
    if type(update) not in _OBJECT_OR_NONE or type(cites) is not list:
        return None
    if not all(type(cited) is str for cited in cites):
        return None
    origin = _PROVENANCES[provenance]
    return Answer(content, origin, support, artifact, error, error_type, update, tuple(cites), why)
