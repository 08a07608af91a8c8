"""What one call does, read from its arguments: SQL, an HTTP method, a shell command, or a value in settings.

A reader speaks only where it is sure; else the call has the effect of its tool. So SELECT with a function
that is not known to compute, a substitution or redirection of a shell, and what cannot be parsed stay what
the tool is.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import dropwhile

from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import ArgumentReader, Effect, EffectWhen, ToolSpec

_HARM = {effect: rank for rank, effect in enumerate(Effect)}


def of_call(tool: ToolSpec, args: Mapping[str, JsonValue]) -> ToolSpec:
    """The tool with the effect that a call of it with these arguments has."""
    if not tool.effect_when:
        return tool
    effects = [_read(rule, args.get(name)) for name, rule in tool.effect_when.items()]
    certain = [effect for effect in effects if effect is not None]
    worst = max(certain, key=_HARM.__getitem__, default=tool.effect)
    sure = len(certain) == len(effects)
    effect = worst if sure else max(worst, tool.effect, key=_HARM.__getitem__)
    return tool if effect is tool.effect else replace(tool, effect=effect)


def _read(rule: ArgumentReader | Mapping[str, Effect], value: JsonValue) -> Effect | None:
    if not isinstance(rule, str):
        return rule.get(str(value)) if isinstance(value, (str, int, bool)) else None
    if isinstance(value, list) and value:
        return _worst([_read(rule, item) for item in value])
    return _READERS[rule](value) if isinstance(value, str) else None


def _worst(effects: list[Effect | None]) -> Effect | None:
    certain = [effect for effect in effects if effect is not None]
    return max(certain, key=_HARM.__getitem__) if certain and len(certain) == len(effects) else None


def guess_effect_when(name: str, description: str, schema: Mapping[str, JsonValue]) -> EffectWhen:
    """Guess by which argument a tool's calls differ in effect; {}: none is SQL, a method or a command."""
    fields = schema.get("properties")
    if not isinstance(fields, Mapping):
        return {}
    words = {
        word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", f"{name} {description[:600]}")
    }
    for argument in fields:
        plain = argument.lower()
        if plain in ("sql", "sql_query") or (plain in ("query", "statement") and words & _SQL_WORDS):
            return {argument: ArgumentReader.SQL}
        if plain in ("method", "http_method", "verb") and fields.keys() & {"url", "uri", "path", "endpoint"}:
            return {argument: ArgumentReader.HTTP}
        if plain in ("command", "commands", "cmd") and words & _SHELL_WORDS:
            return {argument: ArgumentReader.SHELL}
    return {}


_SQL_WORDS = {"sql", "sqlite", "postgres", "postgresql", "mysql", "snowflake", "bigquery"}
_SHELL_WORDS = {"shell", "bash", "terminal", "command", "commands", "zsh"}
_SQL_SKIP = re.compile(r"--(?=\s)[^\n]*|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[\w .-]*`")
# Databases differ in where a string or a comment with one of these ends; clients take such lines themselves.
_SQL_DOUBT = re.compile(
    r"[\\#\[\]]|/\*|\$\w*\$|--(?!\s)|\r(?!\n)|(?![ \t\r\n])[\s\0-\x1f]|'{3}|\"{3}|(?i:\bn?q')"
    r"|(?m:^[ \t]*[!@:./])"
)
_SQL_TOKEN = re.compile(r"[^\W\d][\w$]*|;|\(|=|\S")
# between words: a comment of Snowflake, an assignment, a sequence, a table of plans, a lock, an order to FTS5
_SQL_ODD = re.compile(
    r"/ /|: =|\b(next value|explain plan|for (key )?share)\b|\binto (?P<table>\w+) \( [^)]*\b(?P=table)\b"
)
_SQL_READS = {"select", "show", "describe", "desc", "explain", "with", "values"}
_SQL_ADDS = {"insert", "update", "create", "upsert"}
_SQL_DESTROYS = {"delete", "drop", "truncate", "alter"}
_SQL_ACTS = """
    alter attach backup bulk call checkpoint commit conversation copy create dbcc deallocate delete deny
    detach disable do drop enable exec execute go grant handler insert into kill load lock merge nextval
    openquery openrowset outfile overwrite pragma receive reconfigure refresh reindex rename replace restore
    revert revoke rollback set setuser shutdown truncate undrop update updatetext upsert use vacuum waitfor
"""
# what may stand before "(" in a SELECT without doing anything
_SQL_CALLS = """
    abs all and any as avg by case cast ceil ceiling coalesce concat count cume_dist date date_part
    date_trunc datediff datetime dense_rank else except exists extract filter first_value floor from
    group_concat having if ifnull iif in instr intersect is join json_extract julianday lag last_value lead
    left length like limit ln log lower ltrim max min mod month not ntile nullif on or over partition power
    printf rank right round row_number rtrim select sqrt strftime string_agg substr substring sum then time
    to_char total trim trunc union unixepoch upper using values when where with year
"""


def _sql(text: str) -> Effect | None:
    """Of SQL: its statements' worst; None where one is not known to read."""
    if _SQL_DOUBT.search(text):
        return None
    words = [
        token.lower()
        for token in _SQL_TOKEN.findall(
            _SQL_SKIP.sub(lambda match: " " if match[0][0] == "-" else " ~ ", text)
        )
    ]
    statements: list[list[str]] = [[]]
    for word in words:
        statements.append([]) if word == ";" else statements[-1].append(word)
    effects = [_statement(statement) for statement in statements if statement]
    return Effect.DESTRUCTIVE if Effect.DESTRUCTIVE in effects else _worst(effects)


def _statement(words: list[str]) -> Effect | None:
    first = words[0]
    if first in _SQL_DESTROYS:
        return Effect.DESTRUCTIVE
    adds = first in _SQL_ADDS
    # what stands before the first of these declares and computes nothing
    starts = {"select", "set", "values", *("" if words[:2] == ["create", "table"] else "(")}
    run = list(dropwhile(lambda word: word not in starts, words)) if adds else words
    before = zip(["", *run], run, run[1:], strict=False)
    called = {"." if owner == "." else word for owner, word, after in before if after == "("}
    fine = _SQL_ADDS | {"into", "set"} if adds else set()
    odd = {*words} & ({*_SQL_ACTS.split(), *"\"'`"} - fine)
    odd |= called - {*_SQL_CALLS.split(), *"=<>+-*/%,("}
    if odd or _SQL_ODD.search(" ".join(words)):
        return None
    return Effect.WRITE if adds else Effect.READ if first in _SQL_READS else None


def _http(method: str) -> Effect | None:
    """Of an HTTP method."""
    reads, writes = {"GET", "HEAD", "OPTIONS"}, {"PUT", "PATCH"}
    plain = method.strip().upper()
    return Effect.READ if plain in reads else Effect.WRITE if plain in writes else Effect.DESTRUCTIVE


_SHELL_READS = """
    basename cat cd cksum cut df diff dirname du echo find grep head id jq ls md5sum nl ps pwd realpath
    sha256sum stat tail tr uname uptime wc which whoami
"""
_SHELL_WRITES = {"mkdir": Effect.WRITE, "touch": Effect.WRITE}
_SHELL_DANGERS = ("-delete", "-exec", "-ok", "-fls", "-fprint", "--ou", "--ext", "@")
_SHELL_QUOTED = re.compile(r"'[^']*'|(\"[^\"]*\")")
# Shells differ in what ends a line or a string: PowerShell knows more quotes, cmd does not know '.
_SHELL_DOUBT = re.compile(r"[<>`\\\0\u2018-\u201f]|[^\S \t]|\^[\"&|]|%[^%\s]+%")
_SHELL_HIDDEN = re.compile(r"[&|]\s*[\w.:-]+[\s/,;=&]")  # in a string: what cmd could start
_SHELL_GLOB = re.compile(r"(?<!\S)(-\S*)?[*?\[]")  # could be the name of a file that reads as an option
_GIT_READS = {"status", "log", "diff", "show", "blame", "ls-files", "rev-parse"}


def _shell(command: str) -> Effect | None:
    """Of a shell's command line: programs that only print, joined by pipes and `&&`; else not known."""
    live = _SHELL_QUOTED.sub(lambda match: match[1] or "", command)
    if _SHELL_DOUBT.search(command) or re.search(r"[${]|![^\s=]", live):
        return None
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split, lexer.commenters = True, ""
        words = list(lexer)
    except ValueError:
        return None
    commands: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set("|&;"):
            if word not in ("|", "||", "&&", ";"):
                return None
            commands.append([])
        else:
            commands[-1].append(word)
    glob = _SHELL_GLOB.search(re.sub(r'"[^"]*"', "", live))
    odd = (["find"], ["git"]) if glob else ()
    return _worst([None if given[:1] in odd else _program(given) for given in commands])


def _program(words: list[str]) -> Effect | None:
    program = words[0] if words else ""
    if any(word.startswith(_SHELL_DANGERS) or "(" in word or _SHELL_HIDDEN.search(word) for word in words):
        return None
    if program == "git":
        return Effect.READ if words[1:2] and words[1] in _GIT_READS else None
    return Effect.READ if program in _SHELL_READS.split() else _SHELL_WRITES.get(program)


_READERS: Mapping[ArgumentReader, Callable[[str], Effect | None]] = {
    ArgumentReader.SQL: _sql,
    ArgumentReader.HTTP: _http,
    ArgumentReader.SHELL: _shell,
}
