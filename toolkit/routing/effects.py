"""A tool's effect on its environment: declared by its author, known from the framework, or guessed.

A guess is a starting point for the user who edits `dreamgym.toml`. It is never `pure` or `control`: these run
for real in a dream, so the user must declare them. Unknown tools are `destructive`. A declaration belongs to
one object and the code it runs: not to a tool of the same name, nor to a wrapper.
"""

import functools
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dreamgym_kit.types import Effect

_MARK = "__dreamgym_effect__"

T = TypeVar("T")

_READS = frozenset(
    re.findall(
        r"\w+",
        """
    analyse analyze browse calculate check compare compute count crawl describe detect diff display
    estimate examine explain explore fetch filter find get has inspect is list load lookup peek preview
    query read retrieve scrape search show sort status summarise summarize view whoami
    """,
    )
)
_WRITES = frozenset(
    re.findall(
        r"\w+",
        """
    accept activate add adjust append apply archive assign attach authenticate block book cancel change
    click close comment complete configure connect copy create deactivate disable disconnect draft edit
    enable escalate exchange fill follow fork generate import increment insert install invite join label
    leave lock log login logout make mark mention merge mkdir modify move mute navigate open patch pin
    press put reboot record redeem register reject rename reopen replace reply reschedule reserve reset
    resolve restart restore resume revert rotate save schedule set share start stop store submit
    subscribe suspend swap sync tag toggle touch trigger unblock unfollow unlock unsubscribe update
    upload upsert vote withdraw write
    """,
    )
)
_DESTROYS = frozenset(
    re.findall(
        r"\w+",
        """
    approve authorize ban buy call capture charge clear delete deploy destroy dismiss drop email erase
    exec execute issue kill mail message notify order overwrite pay place post publish purchase purge
    push refund release remove request reship return retweet revoke rm rmdir run sell send ship sms
    terminate transfer truncate tweet uninstall wipe wire
    """,
    )
)
# Verbs that are also nouns: the neighboring words decide.
_NOUNS = frozenset(
    re.findall(
        r"\w+",
        """
    block book call capture change charge check comment copy count display draft email estimate exchange
    filter fork import increment invite issue label list load lock log login mail mention merge
    message order patch pin place post press preview purchase push put query record refund release reply
    request return run schedule search set share ship sms sort status store swap tag transfer trigger
    tweet update view vote wire
    """,
    )
)
_MAKES = frozenset({"apply", "create", "initiate", "make", "schedule", "start", "submit"})
_GONE = frozenset(  # created objects that cannot be undone
    {"charge", "email", "mail", "order", "payment", "payments", "purchase", "refund", "refunds", "sms"}
    | {"transfer", "transfers", "wire"}
)
_FACTS = frozenset(  # attributes: "order_status" reads, although "order" is also a verb
    {"balance", "contents", "count", "details", "history", "info", "information", "list", "metadata", "query"}
    | {"results", "schema", "search", "stats", "statistics", "status", "summary"}
)
_JOINS = frozenset({"and", "or", "then"})
_BOTH = (["check", "in"], ["check", "out"])
_QUERIED = frozenset({"cypher", "graphql", "mongodb", "sql", "sqlite", "postgres", "mysql"})
UNCLEAR = "nothing in its name or description says that it is harmless"
_HTTP = {"get": Effect.READ, "head": Effect.READ, "put": Effect.WRITE, "patch": Effect.WRITE}
_ROUTE = re.compile(r"\b(GET|HEAD|POST|PUT|PATCH|DELETE)\b\s+[`'\"]?(?:https?:/)?/")
_PART = re.compile(r"__|[./:\s]+")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ACTS = _WRITES | _DESTROYS
# LangChain's tools whose names and descriptions have no verb
_KNOWN_READS = frozenset(
    re.findall(
        r"\w+",
        """
    Calculator arxiv current_webpage duckduckgo_results_json extract_hyperlinks extract_text
    google_scholar google_serper google_serper_results_json open_weather_map pub_med semanticscholar
    sql_db_list_tables sql_db_query_checker sql_db_schema stack_exchange wikidata wikipedia
    wolfram_alpha yahoo_finance_news youtube_search
    """,
    )
)


def effect(kind: Effect | str) -> Callable[[T], T]:
    """Declare a tool's effect at its definition; settings override it.

    Example:
        @effect("destructive")
        @tool
        def send_mail(to: str, text: str) -> str: ...

    Raises:
        ValueError: `kind` is not an effect.
    """
    declared = Effect(kind)

    def mark(tool: T) -> T:
        declaration = _Mark(declared, what_runs(tool))
        if isinstance(tool, type) or not _is_tool(tool):
            setattr(tool, _MARK, declaration)
        else:
            # a pydantic model: copies keep it without a field
            tool.__dict__[_MARK] = declaration
        if type(tool) is _CACHED:  # lru_cache: mark the wrapped function
            mark(tool.__wrapped__)  # type: ignore[attr-defined]
        for hears in HEARS_MARKS:
            hears(tool)
        return tool

    return mark


HEARS_MARKS: list[Callable[[object], None]] = []
"""Called with each object after `@effect` marked it."""
_CACHED: type = type(functools.lru_cache(lambda: None))


@dataclass(frozen=True, slots=True, eq=False)
class _Mark:
    """The declaration of `@effect` with its objects: a copy on an object with other code is ignored."""

    effect: Effect
    on: tuple[object, ...]


def declared_effect(tool: object) -> Effect | None:
    """Return the effect that `@effect` gave to this tool, function or class, or to a tool's class.

    A wrapper does not inherit the effect of its function, nor a subclass with its own code that of its base.
    """
    holder = tool.__func__ if isinstance(tool, types.MethodType) else tool
    mark = getattr(holder, "__dict__", {}).get(_MARK)
    if isinstance(mark, _Mark):
        return mark.effect if same_objects(mark.on, what_runs(holder)) else None
    kind = holder if isinstance(holder, type) else type(holder)
    for base in kind.__mro__:
        mark = vars(base).get(_MARK)
        if isinstance(mark, _Mark):
            return mark.effect if mark.on == (base,) else None
        if any(_is_code(name, value) for name, value in vars(base).items()):
            return None
    return None


def _is_tool(holder: object) -> bool:
    return hasattr(holder, "args_schema") and hasattr(holder, "metadata")


def what_runs(holder: object) -> tuple[object, ...]:
    """Return a tool's class and the functions in its fields; other objects themselves."""
    if isinstance(holder, type) or not _is_tool(holder):
        return (holder,)
    values = holder.__dict__.values()
    return (type(holder), *(part for part in values if callable(part) and not isinstance(part, type)))


def same_objects(first: tuple[object, ...], second: tuple[object, ...]) -> bool:
    """Return whether two tuples have identical objects."""
    return len(first) == len(second) and all(a is b for a, b in zip(first, second, strict=True))


def _is_code(name: str, value: object) -> bool:
    """Return whether a class's attribute is its author's code; pydantic adds one function to each class."""
    code = (types.FunctionType, classmethod, staticmethod, property)
    return isinstance(value, code) and name != "model_post_init"


def guess_effect(
    name: str, description: str = "", *, annotations: Mapping[str, object] | None = None
) -> tuple[Effect, str]:
    """Guess an effect; return it with the reason, for the user who reviews it.

    Args:
        name: the tool's name; its verb decides, in any position.
        description: its docstring. It can make the guess more harmful; for a name without a verb it decides,
            and it shows whether "order" in "order_status" is a verb.
        annotations: a server's statements about its tool (MCP annotations, metadata), in any spelling and
            nesting; they can only make the guess more harmful.
    """
    guessed, reason = _by_words(name, description)
    hints = _hints(annotations or {})
    if hints.get("destructivehint", False) is not False and guessed is not Effect.DESTRUCTIVE:
        return Effect.DESTRUCTIVE, "MCP annotation destructiveHint"
    if hints.get("readonlyhint", True) is False and guessed is Effect.READ:
        return Effect.WRITE, "MCP annotation readOnlyHint = false"
    return guessed, reason


_NESTED = 3


def _hints(annotations: object, depth: int = 0) -> dict[str, object]:
    """Return hints by lower-case name without `_`; of duplicates the more harmful one."""
    hints: dict[str, object] = {}
    entries = annotations if isinstance(annotations, Mapping) else getattr(annotations, "__dict__", {})
    for name, value in list(entries.items()):
        plain = str(name).replace("_", "").lower()
        if plain == "destructivehint" and value is not None:
            hints[plain] = value is not False or hints.get(plain, False)
        elif plain == "readonlyhint" and value is not None:
            hints[plain] = value is not False and hints.get(plain, True)
        elif depth < _NESTED and (isinstance(value, Mapping) or hasattr(value, "model_fields_set")):
            for hint, harmful in _hints(value, depth + 1).items():
                both = (harmful, hints.get(hint, harmful))
                hints[hint] = any(both) if hint == "destructivehint" else all(both)
    return hints


def names_deed(name: str) -> bool:
    """Return whether a function's name clearly means a destructive action, such as "send_mail"."""
    words = [word.lower() for word in _WORD.findall(name)]
    deeds = _DESTROYS - _NOUNS - {"exec", "execute"}  # graphs execute tools
    return len(words) > 1 and name[:1].islower() and words[0] in deeds


def _by_words(name: str, description: str) -> tuple[Effect, str]:
    """Guess by the name's verb, unless the description is worse; else by the description."""
    described = _effect_in(description)
    parts = [words for part in _PART.split(name) if (words := [word.lower() for word in _WORD.findall(part)])]
    guessed, reason, sure = _by_name(parts, described)
    if described is not None and described[0] is not Effect.READ and guessed in (Effect.READ, None):
        return Effect.DESTRUCTIVE if guessed else described[0], f"its description says '{described[1]}'"
    if guessed is Effect.READ and not sure and described is None:
        return Effect.DESTRUCTIVE, f"{reason}, and no description says that it only reads"
    if guessed is not None:
        return guessed, reason
    if name in _KNOWN_READS and (described is None or described[0] is Effect.READ):
        return Effect.READ, "a tool of LangChain's own"
    return (
        (described[0], f"its description says '{described[1]}'")
        if described
        else (Effect.DESTRUCTIVE, UNCLEAR)
    )


def _by_name(
    parts: Sequence[Sequence[str]], described: tuple[Effect, str] | None
) -> tuple[Effect | None, str, bool]:
    """Return the effect of a name, why, and whether it is certain; None: unknown.

    `parts` are the words between dots and similar separators: the last part is the tool's name, the others
    are its group, of which only a clear action verb counts.
    """
    if not parts:
        return None, "", False
    *groups, words = parts
    plain = [word for group in groups for word in group if word in _ACTS - _NOUNS]
    if plain:
        return _kind(plain[0]), f"its group is named '{plain[0]}'", True
    verbs = [word for word in words if word in _ACTS | _READS]
    acts = [word for word in verbs if word in _ACTS - _NOUNS]
    method = next((word for word in words if word in _HTTP), None)
    if method and not acts and {"http", "request", "requests"} & {*words}:
        return _HTTP[method], f"HTTP {method.upper()}", True
    first = words[0]
    if first in _READS and first != "status":
        return _reads(list(words), acts)
    if first in _ACTS and (first not in _NOUNS or not _is_thing(words, described)):
        return _acts(words)
    if acts:
        return max(map(_kind, acts), key=[*Effect].index), f"name says '{acts[0]}'", True
    reads = [word for word in words[1:] if word in _READS and (word not in _NOUNS or word == words[-1])]
    if reads:
        sure = first not in _ACTS and (reads[0] not in _NOUNS or reads[0] == "search")
        return Effect.READ, f"name says '{reads[0]}'", sure
    if any(word in _ACTS for word in words[1:]) and not _says_read(described):
        return Effect.DESTRUCTIVE, UNCLEAR, True
    return None, "", False


def _reads(words: list[str], acts: list[str]) -> tuple[Effect, str, bool]:
    """Guess for a name that begins with a reading verb, unless an action verb follows."""
    joined = next((at for at, word in enumerate(words) if at and word in _JOINS), None)
    if joined == 1 or (joined is not None and {*words[joined + 1 : joined + 2]} & _ACTS):
        return Effect.DESTRUCTIVE, f"name says more than a read ('{words[joined]}')", True
    if words[:2] in _BOTH:
        return Effect.DESTRUCTIVE, f"name says more than a read ('{' '.join(words[:2])}')", True
    if words[0] == "query" and _QUERIED & {*words}:
        return Effect.DESTRUCTIVE, "it runs the query that it is given", True
    return Effect.READ, f"name begins with '{words[0]}'", not acts or words[0] in ("has", "is")


def _acts(words: Sequence[str]) -> tuple[Effect, str, bool]:
    made = next((word for word in words[1:] if word in _GONE), None) if words[0] in _MAKES else None
    if made:
        return Effect.DESTRUCTIVE, f"name says '{words[0]} {made}'", True
    return _kind(words[0]), f"name begins with '{words[0]}'", True


def _is_thing(words: Sequence[str], described: tuple[Effect, str] | None) -> bool:
    """Return whether the first word, an action verb, is used as a noun."""
    if any(word in (_READS | _ACTS) - _NOUNS for word in words[1:]):
        return True
    return words[-1] in _FACTS and len(words) > 1 and described is not None and described[0] is Effect.READ


def _says_read(described: tuple[Effect, str] | None) -> bool:
    """Return whether a description begins with a reading verb; "return" does not count."""
    return described is not None and described[0] is Effect.READ and described[1] != "returns"


def _kind(verb: str) -> Effect:
    return Effect.DESTRUCTIVE if verb in _DESTROYS else Effect.WRITE if verb in _WRITES else Effect.READ


_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_LABEL = re.compile(
    r"^(?:[\w ]{1,30}:\s+)?(?:(?:this|the|a|an)\s+)?(?:(?:tool|function|method|endpoint|api)\s+)?"
    r"(?:(?:is |can be )?used?\s+)?(?:this\s+)?(?:tool\s+)?"
    r"(?:(?:that|which|to|will|can|allows you to|lets you)\s+)*",
    re.IGNORECASE,
)
_MAX_SENTENCES = 4


def _effect_in(description: str) -> tuple[Effect, str] | None:
    """Return the effect in the first sentence with a verb; action verbs take precedence."""
    if route := _ROUTE.search(description):
        return _HTTP.get(route[1].lower(), Effect.DESTRUCTIVE), f"{route[1]} /"
    described: tuple[Effect, str] | None = None
    parts = [part.strip() for part in _SENTENCE.split(description.strip()) if part.strip()]
    for sentence in parts[:_MAX_SENTENCES]:
        words = [word.lower() for word in re.findall(r"[A-Za-z]+", _LABEL.sub("", sentence, count=1))]
        if not words:
            continue
        verb = "get" if words[0] == "returns" else _verb(words[0])
        if words[0] == "return" or (words[0] == "returns" and sentence is not parts[0]):
            continue  # of goods, or of a value: what comes back says nothing of what is done
        if verb is not None and (described is None or _third(words[0])) and _kind(verb) is not Effect.READ:
            return _kind(verb), words[0]
        if described is None and (acting := _acting_in(words)):
            return _kind(_verb(acting) or ""), acting
        if described is None and verb is not None:
            if _QUERIED & {*words} and verb == "query":
                return Effect.DESTRUCTIVE, words[0]
            described = Effect.READ, words[0]
    return described


def _acting_in(words: Sequence[str]) -> str | None:
    """Return a clear action verb within a sentence: "sends", or "... and cancel"."""
    for before, word in zip(["", *words], words, strict=False):
        verb = _verb(word)
        if verb in _ACTS and verb not in _NOUNS and (_third(word) or (word == verb and before in _JOINS)):
            return word
    return None


def _third(word: str) -> bool:
    """Return whether a verb is in the third person: "deletes"."""
    return word.endswith("s") and word not in _ACTS | _READS


def _verb(word: str) -> str | None:
    """Return the base form of a verb: "fetches", "copies", "fetching"."""
    forms = [word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)]
    forms += [word.removesuffix("ing"), re.sub("ing$", "e", word)]
    return next((form for form in forms if form in _ACTS | _READS), None)
