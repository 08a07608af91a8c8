"""What a tool's answers look like, and whether one of them does not.

A schema is declared (a return annotation, an MCP output schema; adapters read those), documented by OpenAPI,
or inferred from recorded answers. A declared one that recordings contradict is not believed. Schemas of
others are data: references that lead outside of them are never followed, their regular expressions never run.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.dream.json_values import without_keywords
from dreamgym_kit.dream.observed import observation
from dreamgym_kit.dream.things import opened
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, ToolSpec

_LEAST = 3  # recorded answers that a form is read from
_SURE_OF_KEYS = 5  # answers without another key, from which on one more is none of the tool's
_MAX_KEYS = 40  # an object with more keys over all answers is a table, not a record
_MAX_DECLARED = 60_000  # characters
_DEEP = 12
_LEFT_OUT = frozenset({"pattern", "patternProperties", "format", "$schema", "$id"})
"""Keywords that are not checked: regular expressions of a server can stall, and names can refer elsewhere."""
_METHODS = frozenset({"get", "post", "put", "patch", "delete"})
_TELLING = ("properties", "items", "$ref", "anyOf", "allOf", "enum")  # a schema without them is a mere type
_REFERENCE = re.compile(r'"#/(?:components/schemas|definitions)/([^"]+)"')


@dataclass(frozen=True, slots=True)
class AnswerSchema:
    """The form of a tool's successful answers.

    Attributes:
        schema: JSON schema of what `form` says.
        form: "value" (the content), "json" (the value that the content is as JSON text), "structured" (an MCP
            tool's structured content), "text" (fields that stand in a text as name=value) or "seen" (the
            observation that rules see).
        also: what recordings say beside a declaration, which may say little ("a dict").
    """

    schema: Mapping[str, JsonValue]
    form: str
    also: "AnswerSchema | None" = None

    @property
    def wants_object(self) -> bool:
        """Whether the content itself is an object or a list, not a text."""
        return (
            self.form in ("value", "seen")
            and self.schema.get("type") in ("object", "array")
            and ("$json" not in (self.schema.get("properties") or {}))
        )

    @property
    def is_text(self) -> bool:
        """Whether the content is a text."""
        return self.form in ("text", "json") or (
            self.form in ("value", "seen") and self.schema.get("type") == "string"
        )

    def breaks(self, answer: Answer) -> str | None:
        """What is wrong with an answer, with its place; None where nothing is, and for failures."""
        if answer.error is not None or answer.update is not None:
            return None
        return self._wrong(answer) or (self.also.breaks(answer) if self.also is not None else None)

    def _wrong(self, answer: Answer) -> str | None:
        if self.form == "text":
            return _missing_names(self.schema, answer.content)
        if self.form == "structured":
            artifact = answer.artifact
            if not isinstance(artifact, dict) or "structured_content" not in artifact:
                return None  # its text alone came: nothing to hold against the schema
            return _first_wrong(self.schema, artifact["structured_content"])
        if self.form == "json":
            return _first_wrong(self.schema, opened(answer.content))
        return _first_wrong(self.schema, answer.content if self.form == "value" else observation(answer))


def schema_for(tool: ToolSpec, recorded: Sequence[Answer]) -> AnswerSchema | None:
    """The form of a tool's answers: declared where no recording breaks it, else as recorded, else None."""
    declared = _declared(tool)
    if declared is not None and any(declared.breaks(answer) for answer in recorded):
        declared = None
    good = [answer for answer in recorded if answer.error is None and answer.update is None]
    if len(good) < _LEAST:
        return declared
    inferred = infer([observation(answer) for answer in good], closed=declared is None)
    as_recorded = AnswerSchema(inferred, "seen")
    return as_recorded if declared is None else replace(declared, also=as_recorded)


def documented(tools: Sequence[ToolSpec], documents: Sequence[Mapping[str, Any]]) -> list[ToolSpec]:
    """Give tools the answer schemas and failures of the OpenAPI operations that they are named after.

    A tool is named after an operation if the letters and digits of its name are those of the operation's
    `operationId`, or of its method and path. A schema that the tool declares holds, unless it is a mere type.
    """
    operations = {
        name: operation for document in reversed(documents) for name, operation in _operations(document)
    }
    return [
        _documented(tool, *operations[name]) if (name := _letters(tool.name)) in operations else tool
        for tool in tools
    ]


def read_document(path: Path) -> Mapping[str, Any]:
    """Read an OpenAPI document, JSON or YAML.

    Raises:
        UserError: it cannot be read, or has no paths.
    """
    try:
        text = path.read_text("utf-8")
        if path.suffix in (".yaml", ".yml"):
            import yaml

            text = json.dumps(yaml.safe_load(text), default=str)
        document = read_json(text)
    except (OSError, ValueError, NotSerializable) as error:
        raise UserError(
            f"{path}: not an OpenAPI document ({error}). Correct `openapi` in the settings"
        ) from None
    if not _at(document, "paths"):
        raise UserError(
            f"{path}: an OpenAPI document has paths, this has none. Correct `openapi` in the settings"
        )
    return _at(document)


def _operations(
    document: Mapping[str, Any],
) -> Iterator[tuple[str, tuple[Mapping[str, Any], Mapping[str, Any]]]]:
    for path, item in _at(document, "paths").items():
        for method in _METHODS & set(item if isinstance(item, Mapping) else ()):
            operation = _at(item, method)
            for name in (f"{method} {path}", str(operation.get("operationId") or "")):
                if _letters(name):
                    yield _letters(name), (operation, document)


def _documented(tool: ToolSpec, operation: Mapping[str, Any], document: Mapping[str, Any]) -> ToolSpec:
    responses = {
        str(code): _answered(response, document) for code, response in _at(operation, "responses").items()
    }
    schemas = [_response_schema(responses[code]) for code in sorted(responses) if code[:1] == "2"]
    schema = next((_with_definitions(declared, document) for declared in schemas if declared), None)
    fails = [
        f"{code} {response.get('description', '')}".strip()
        for code, response in responses.items()
        if code[:1] in "45"
    ]
    if fails:
        tool = replace(tool, description=f"{tool.description}\nFails with: {'; '.join(fails)}".strip())
    if schema is None or any(tool.answer_schema.get(key) for key in _TELLING):
        return tool
    form = "json" if tool.answer_schema.get("type") == "string" else "value"
    return replace(tool, answer_schema=schema, answer_form=form)


def _answered(response: Any, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A response; a reference to one is followed within the document."""
    named = str(_at(response).get("$ref", "")).removeprefix("#/").split("/")
    return _at(document, *named) if len(named) > 1 else _at(response)


def _response_schema(response: Mapping[str, Any]) -> Mapping[str, Any]:
    kinds = [kind for kind in _at(response, "content") if "json" in kind]
    return _at(response, "content", kinds[0], "schema") if kinds else _at(response, "schema")


def _with_definitions(schema: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, JsonValue]:
    """A schema that holds all that it refers to, under `$defs`, with `nullable` as JSON schema spells it."""
    schemas = {**_at(document, "definitions"), **_at(document, "components", "schemas")}
    wanted, definitions = [json.dumps(schema)], dict[str, JsonValue]()
    for text in wanted:
        for name in _REFERENCE.findall(text):
            if name in schemas and name not in definitions:
                definitions[name] = None
                wanted.append(json.dumps(schemas[name]))
                definitions[name] = _in_json_schema(wanted[-1])
    return _in_json_schema(wanted[0]) | ({"$defs": definitions} if definitions else {})


def _in_json_schema(text: str) -> dict[str, JsonValue]:
    def nullable(value: dict[str, Any]) -> dict[str, Any]:
        rest = {name: item for name, item in value.items() if name != "nullable"}
        return {"anyOf": [rest, {"type": "null"}]} if value.get("nullable") is True else value

    read: dict[str, JsonValue] = json.loads(_REFERENCE.sub(r'"#/$defs/\1"', text), object_hook=nullable)
    return read


def _letters(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _at(value: Any, *names: str) -> Mapping[str, Any]:
    """Return the object at a path, or an empty one: a document may have any form."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _declared(tool: ToolSpec) -> AnswerSchema | None:
    if not tool.answer_schema or len(json.dumps(tool.answer_schema, default=str)) > _MAX_DECLARED:
        return None
    schema = without_keywords(tool.answer_schema, _LEFT_OUT)
    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError):
        return None
    return AnswerSchema(schema, tool.answer_form)


def _first_wrong(schema: Mapping[str, JsonValue], value: JsonValue) -> str | None:
    registry: Registry[Any] = Registry()  # one that fetches nothing
    validator = Draft202012Validator(dict(schema), registry=registry)
    try:
        wrong = next(iter(validator.iter_errors(value)), None)
    except (Unresolvable, RecursionError):
        return None  # a schema that cannot be read says nothing
    return None if wrong is None else _describe(wrong)


def _describe(wrong: ValidationError) -> str:
    parts = [str(part) for part in wrong.absolute_path if part not in ("$json", "$answer")]
    return f"{'.'.join(parts) or 'the whole'}: {' '.join(wrong.message.split())[:200]}"


def _missing_names(schema: Mapping[str, JsonValue], content: JsonValue) -> str | None:
    if not isinstance(content, str):
        return f"the whole: a text was expected, not a {type(content).__name__}"
    if schema.get("type") != "object":
        return None
    for name in schema.get("required") or ():
        if not re.search(rf"(?<!\w){re.escape(str(name))}=", content):
            return f"the whole: '{name}=' is missing from the text"
    return None


def infer(values: Sequence[JsonValue], depth: int = _DEEP, *, closed: bool = True) -> dict[str, JsonValue]:
    """A JSON schema that all these values fit; `closed`: records that never had another key have none."""
    kinds = sorted({_kind(value) for value in values})
    if depth == 0 or not kinds:
        return {}
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    schema: dict[str, JsonValue] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    if "object" in kinds:
        schema |= _of_objects([value for value in values if isinstance(value, dict)], depth, closed=closed)
    if "array" in kinds:
        items = [item for value in values if isinstance(value, list) for item in value]
        if items:
            schema["items"] = infer(items, depth - 1, closed=closed)
    return schema


def _of_objects(values: list[dict[str, JsonValue]], depth: int, *, closed: bool) -> dict[str, JsonValue]:
    names = list(dict.fromkeys(name for value in values for name in value))
    in_all = [name for name in names if all(name in value for value in values)]
    if len(names) > _MAX_KEYS or (len(values) >= _LEAST and len(names) > 1 and not in_all):
        every = [item for value in values for item in value.values()]
        return {"additionalProperties": infer(every, depth - 1, closed=closed)}
    properties = {
        name: infer([value[name] for value in values if name in value], depth - 1, closed=closed)
        for name in names
    }
    schema: dict[str, JsonValue] = {"properties": properties, "required": in_all}
    if closed and len(values) >= _SURE_OF_KEYS:
        schema["additionalProperties"] = False
    return schema


def _kind(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"
