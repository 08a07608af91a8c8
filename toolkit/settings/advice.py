"""Lines that a person can add to dreamgym.toml, each with what happens then.

Whoever prints one goes by this module, so that the same line is never told with another consequence. Where
several would help, the first has the call answered by the dream; one that lets it happen comes last.
"""

import json
from dataclasses import dataclass

SOME_FUNCTION = "package.module:function"  # for the person to replace
_ANSWERED = "a dream answers its calls from what was recorded, and it does not run"
_ALLOWED = {
    "allow_hosts": "it is really reached, in every dream; the report counts that",
    "allow_paths": "it is really touched, in every dream",
    "allow_commands": "it really runs, in every dream",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """One line: `[section] key = value`."""

    line: str
    then: str  # what happens once it stands in dreamgym.toml

    def __str__(self) -> str:
        return f"{self.line} ({self.then})"


def format_lines(*advice: Advice) -> str:
    """Give all of them, the safest first: "add to dreamgym.toml: LINE (THEN); or LINE (THEN)"."""
    return f"add to dreamgym.toml: {'; or '.join(map(str, advice))}"


def function_answered(reference: str, effect: str = "write", *, name: str | None = None) -> Advice:
    """Of a function "module:qualname" that acts on the world; `name`: that its calls go by."""
    more = f", name = {_quoted(name)}" if name is not None else ""
    return Advice(f"[functions.{_quoted(reference)}] effect = {_quoted(effect)}{more}", _ANSWERED)


def tool_answered(name: str, effect: str) -> Advice:
    """Of a tool that may not run in a dream."""
    key = name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _quoted(name)
    return Advice(f"[tools.{key}] effect = {_quoted(effect)}", _ANSWERED)


def node_runs(name: str) -> Advice:
    """Of a node that is harmless."""
    return Advice(f'[nodes.{name}] effect = "pure"', "the node really runs, in every dream")


def allowed(setting: str, target: str) -> Advice:
    """Of what the guard refuses; `setting`: the key of `[guard]`."""
    return Advice(f"[guard] {setting} = [{_quoted(target)}]", _ALLOWED[setting])


def model_allowed(host: str) -> Advice:
    """Of the host of a chat model of the agent's."""
    return Advice(f"[guard] allow_hosts = [{_quoted(host)}]", "the model is really asked, in every dream")


def left_out(name: str) -> Advice:
    """Of a tool that the model's provider runs."""
    return Advice(f"leave_out = [{_quoted(name)}]", "in a dream the model is not offered it")


def only_shapes(name: str) -> Advice:
    """Of a schema that no function answers to."""
    return Advice(f"structured_outputs = [{_quoted(name)}]", "its calls are answers, and run nothing")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
