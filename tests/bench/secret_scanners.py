"""Takes the rules of gitleaks into the kit, and examples of public scanners into the bench `secrets`.

`python tests/bench/secret_scanners.py GITLEAKS DETECT_SECRETS NOSEYPARKER`: three git directories. Writes
`toolkit/replay/secret_rules.json` (Go's patterns as Python's) and `secret_examples.json.gz` beside this file
(packed, so that no scanner of this repository takes them for leaks). What cannot be taken is printed.
"""

import ast
import base64
import gzip
import itertools
import json
import random
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import yaml

RULES = Path(__file__).parents[2] / "toolkit" / "replay" / "secret_rules.json"
EXAMPLES = Path(__file__).with_name("secret_examples.json.gz")
# `.*` of a command line is bounded, and nothing is looked for before the name: both only cost time.
_SPELLINGS = (
    ("[\\w.-]{0,50}?", ""),
    ("[[:alnum:]]", "[a-zA-Z0-9]"),
    ("[:alnum:]", "a-zA-Z0-9"),
    (r"\bcurl\b(?:.*?|.*?(?:[\r\n]{1,2}.*?){1,5})", r"\bcurl\b(?:.{0,200}?(?:[\r\n]{1,2}.{0,200}?){0,5})"),
    (r"\bcurl\b(?:.*|.*(?:[\r\n]{1,2}.*){1,5})", r"\bcurl\b(?:.{0,200}?(?:[\r\n]{1,2}.{0,200}?){0,5})"),
    (r"\z", r"\Z"),
)


def as_python(pattern: str) -> str:
    """A pattern of Go's RE2 in Python's spelling: a flag inside a group holds to the group's end."""
    for theirs, ours in _SPELLINGS:
        pattern = pattern.replace(theirs, ours)
    made, stack, place, in_class = [], [0], 0, False  # stack: flag groups to close, by open group
    while place < len(pattern):
        character = pattern[place]
        if character == "\\":
            made.append(pattern[place : place + 2])
            place += 2
            continue
        if in_class:
            in_class = character != "]" or pattern[place - 1] == "["
            made.append("\\[" if character == "[" else character)
        elif character == "[":
            in_class = True
            made.append(character)
        elif pattern.startswith("(?i)", place):
            made.append("(?i:")
            stack[-1] += 1
            place += 4
            continue
        elif character == "(":
            stack.append(0)
            made.append(character)
        elif character == ")":
            made.append(")" * stack.pop() + ")")
        elif character == "|" and stack[-1]:
            made.append(")" * stack[-1] + "|" + "(?i:" * stack[-1])
        else:
            made.append(character)
        place += 1
    return "".join(made) + ")" * stack[0]


def rules_of(toml: str) -> Iterator[dict[str, Any]]:
    """The rules that go by text alone, by what their secrets must and must not be."""
    for rule in tomllib.loads(toml)["rules"]:
        if "path" in rule or "regex" not in rule:
            print(f"left out, goes by the name of a file: {rule['id']}")
            continue
        taken = {
            "id": rule["id"],
            "pattern": as_python(rule["regex"]),
            "keywords": [word.lower() for word in rule["keywords"]],
            "entropy": rule.get("entropy", 0),
            "group": rule.get("secretGroup", 0),
        }
        allowed = [
            {
                "target": each.get("regexTarget", "secret"),
                "patterns": [as_python(pattern) for pattern in each.get("regexes", ())],
                "stopwords": [word.lower() for word in each.get("stopwords", ())],
                "all": each.get("condition", "OR").upper() == "AND",
            }
            for each in rule.get("allowlists", ())
            if "paths" not in each or each.get("condition", "OR").upper() != "AND"
        ]
        yield {**taken, **({"allowed": allowed} if allowed else {})}


def drawn(pattern: str, chance: random.Random) -> str:
    """A text that a pattern matches."""

    def of(tree: Any) -> str:
        return "".join(map(each, tree))

    def each(node: Any) -> str:
        kind, what = node
        if kind is ops.LITERAL:
            return chr(what)
        if kind is ops.IN:
            return chance.choice(sorted(set(members(what))))
        if kind in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            low, high, inner = what
            return "".join(of(inner) for _ in range(chance.randint(low, min(int(high), low + 8))))
        if kind is ops.SUBPATTERN:
            return of(what[3])
        if kind is ops.BRANCH:
            return of(chance.choice(what[1]))
        if kind is ops.AT:
            return ""
        if kind is ops.ANY:
            return "x"
        raise ValueError(f"{kind} in {pattern}")

    def members(items: Any) -> Iterator[str]:
        for kind, what in items:
            if kind is ops.LITERAL:
                yield chr(what)
            elif kind is ops.RANGE:
                yield from map(chr, range(what[0], what[1] + 1))
            elif kind is ops.CATEGORY and what is ops.CATEGORY_WORD:
                yield from "abcxyzABCXYZ0189_"
            elif kind is ops.CATEGORY and what is ops.CATEGORY_DIGIT:
                yield from "0123456789"
            else:
                raise ValueError(f"{kind} {what} in {pattern}")

    return of(parser.parse(as_python(pattern)))


_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|`[^`]*`|"(?:[^"\\\n]|\\.)*"|[A-Za-z_][\w.]*|:=|[^\s\w]|\d+', re.DOTALL
)
_SIZES = {
    "utils.Numeric": "[0-9]{%s}",
    "utils.Hex": "[a-f0-9]{%s}",
    "utils.AlphaNumeric": "[a-z0-9]{%s}",
    "utils.AlphaNumericExtendedShort": "[a-z0-9_-]{%s}",
    "utils.AlphaNumericExtended": r"[a-z0-9=_\-]{%s}",
    "utils.AlphaNumericExtendedLong": r"[a-z0-9\/=_\+\-]{%s}",
}
_HEX = "[0-9a-f]"
_SHAPES = {"utils.Hex8_4_4_4_12": f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"}
_SAMPLES = (
    '{i}Token="{s}"',
    "{i}Token = {s}",
    '{{\n    "{i}_token": "{s}"\n}}',
    '{{"config.ini": "{I}_TOKEN={s}\\nBACKUP_ENABLED=true"}}',
    "<{i}Token>\n    {s}\n</{i}Token>",
    "{i}_token: {s}",
    "{i}_token: '{s}'",
    'string {i}Token = "{s}";',
    "{i}Token := `{s}`",
    'System.setProperty("{I}_TOKEN", "{s}")',
    '  "{i}Token" => "{s}"',
    '{I}_TOKEN ?= "{s}"',
)


class GoTexts:
    """Evaluates the lists of texts in one Go file of gitleaks' rules."""

    def __init__(self, source: str, chance: random.Random) -> None:
        self.tokens = [token for token in _TOKEN.findall(source) if not token.startswith(("//", "/*"))]
        self.place, self.chance, self.names, self.rule = 0, chance, {}, ""  # type: ignore[var-annotated]
        self.skipped = 0

    def examples(self) -> Iterator[tuple[str, str, str]]:
        """Each example: the rule, "tps" or "fps", and the text."""
        tokens = self.tokens
        for at, token in enumerate(tokens):
            if token == "RuleID" and tokens[at + 1] == ":":
                self.rule = tokens[at + 2].strip('"`')
                self.names = {}
            assigned = at + 2 < len(tokens) and tokens[at + 1] in (":=", "=") and re.match("[a-z]", token)
            if not assigned or token == "r":
                continue
            self.place = at + 2
            try:
                texts = self._value()
            except (ValueError, IndexError):
                self.skipped += token in ("tps", "fps")
                continue
            if token in ("tps", "fps"):
                texts = texts if isinstance(texts, list) else [texts]
                yield from ((self.rule, token, text) for text in texts)
            self.names[token] = texts

    def _next(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1]

    def _value(self) -> Any:
        made = self._atom()
        while self.place < len(self.tokens) and self.tokens[self.place] == "+":
            self.place += 1
            made = made + self._atom()
        return made

    def _atom(self) -> Any:
        token = self._next()
        if token[0] == "`":
            return token[1:-1]
        if token[0] == '"':
            return ast.literal_eval(token)
        if token == "[":
            head = [self._next() for _ in range(3)]  # ] string {
            if head != ["]", "string", "{"]:
                raise ValueError(token)
            return self._items("}")
        if token == "map":
            head = [self._next() for _ in range(5)]  # [ string ] string {
            items = []
            while self.tokens[self.place] != "}":
                self._value()
                if self._next() != ":":
                    raise ValueError("map")
                items.append(self._value())
                if self.tokens[self.place] == ",":
                    self.place += 1
            return items
        if self.tokens[self.place] == "(":
            self.place += 1
            return self._called(token, self._items(")"))
        if token in self.names:
            return self.names[token]
        raise ValueError(token)

    def _items(self, end: str) -> list[Any]:
        items: list[Any] = []
        while self.tokens[self.place] != end:
            try:
                value = self._value()
                if self.tokens[self.place] == ".":
                    while self.tokens[self.place] == ".":
                        self.place += 1
                        items += value if isinstance(value, list) else []
                        value = None
                if value is not None:
                    items.append(value)
            except (ValueError, TypeError):
                if end == ")":
                    raise
                self.skipped += 1
                depth = 0
                while depth or self.tokens[self.place] not in (",", end):
                    depth += (self.tokens[self.place] in "([{") - (self.tokens[self.place] in ")]}")
                    self.place += 1
            if self.tokens[self.place] == ",":
                self.place += 1
        self.place += 1
        return items

    def _called(self, name: str, given: list[Any]) -> Any:
        if name in _SIZES:
            return _SIZES[name] % given[0]
        if name in _SHAPES:
            return _SHAPES[name]
        if name == "secrets.NewSecret":
            return drawn(given[0], self.chance)
        if name == "utils.GenerateSampleSecret":
            return f'{given[0]}_api_token = "{given[1]}"'
        if name == "utils.GenerateSampleSecrets":
            return [form.format(i=given[0], I=given[0].upper(), s=given[1]) for form in _SAMPLES]
        if name == "append":
            return [
                *given[0],
                *itertools.chain(*(each if isinstance(each, list) else [each] for each in given[1:])),
            ]
        if name.endswith("EncodeToString") and isinstance(given[0], str):
            coded = base64.urlsafe_b64encode if "URL" in name else base64.b64encode
            text = coded(given[0].encode()).decode()
            return text.rstrip("=") if "Raw" in name else text
        if name == "byte":
            return given[0]
        if name == "fmt.Sprintf":
            return re.sub("%[sv]", lambda _: given.pop(1), given[0])
        raise ValueError(name)


class Repository:
    """The newest commit of a git directory."""

    def __init__(self, path: str) -> None:
        self._path = path

    def git(self, *words: str) -> str:
        """What git says."""
        return subprocess.run(
            ["git", "--git-dir", self._path, *words], capture_output=True, text=True, check=True
        ).stdout

    def texts(self, pattern: str) -> Iterator[tuple[str, str]]:
        """Files whose path matches, by path."""
        for path in self.git("ls-tree", "-r", "HEAD", "--name-only").splitlines():
            if re.search(pattern, path):
                yield path, self.git("show", f"HEAD:{path}")

    def commit(self) -> str:
        """Its name."""
        return self.git("rev-parse", "HEAD").strip()


def gitleaks_examples(repository: Repository) -> Iterator[tuple[str, bool, str]]:
    """Rule, whether it is a secret, text."""
    chance, skipped = random.Random(0), 0
    for _, source in repository.texts(r"^cmd/generate/config/rules/[\w-]+\.go$"):
        texts = GoTexts(source, chance)
        yield from ((rule, kind == "tps", text) for rule, kind, text in texts.examples())
        skipped += texts.skipped
    print(f"gitleaks: {skipped} texts or lists could not be evaluated")


def detect_secrets_examples(repository: Repository) -> Iterator[tuple[str, bool, str]]:
    """The tables of its tests: a text, and whether a plug-in flags it."""
    for path, source in repository.texts(r"^tests/plugins/\w+_test\.py$"):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Tuple | ast.List) and len(node.elts) == 2:
                try:
                    text, flagged = ast.literal_eval(node)
                except (ValueError, TypeError):
                    continue
                if isinstance(text, str) and isinstance(flagged, bool):
                    yield Path(path).stem.removesuffix("_test"), flagged, text


def noseyparker_examples(repository: Repository) -> Iterator[tuple[str, bool, str]]:
    """The examples beside its rules; those of rules that name identifiers and hashes are none of secrets."""
    for _, source in repository.texts(r"builtin/rules/[\w.]+\.yml$"):
        for rule in yaml.safe_load(source)["rules"]:
            secret = "secret" in rule.get("categories", ())
            yield from ((rule["id"], True, text) for text in rule.get("examples") or () if secret)
            yield from ((rule["id"], False, text) for text in rule.get("negative_examples") or ())


def main(paths: Sequence[str]) -> None:
    """Write both files."""
    gitleaks, detect, nosey = map(Repository, paths)
    RULES.write_text(
        json.dumps(
            {
                "source": "https://github.com/gitleaks/gitleaks, config/gitleaks.toml",
                "commit": gitleaks.commit(),
                "license": gitleaks.git("show", "HEAD:LICENSE"),
                "rules": list(rules_of(gitleaks.git("show", "HEAD:config/gitleaks.toml"))),
            },
            indent=1,
        )
        + "\n",
        "utf-8",
    )
    examples = {
        "gitleaks": ("MIT", gitleaks, gitleaks_examples),
        "detect-secrets": ("Apache-2.0", detect, detect_secrets_examples),
        "noseyparker": ("Apache-2.0", nosey, noseyparker_examples),
    }
    made = {
        name: {"license": licence, "commit": repository.commit(), "examples": sorted(set(taken(repository)))}
        for name, (licence, repository, taken) in examples.items()
    }
    EXAMPLES.write_bytes(gzip.compress(json.dumps(made).encode(), mtime=0))
    for name, each in made.items():
        positive = sum(secret for _, secret, _ in each["examples"])
        print(f"{name}: {positive} secrets, {len(each['examples']) - positive} that are none")


if __name__ == "__main__":
    main(sys.argv[1:])
