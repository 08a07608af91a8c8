"""What masking finds, what it takes by mistake, and whether a wrong password stays wrong in a dream.

`missed_known`: of the names and forms that were once found in clear, and of the positive examples of
gitleaks, whose rules were taken. `missed_share`: of the positive examples of detect-secrets and Nosey Parker,
whose rules were not (their examples of IP addresses left out); the kit's own forms were written with these at
hand. `false_share`: of all argument and answer values of the beds' episodes and the scanners' negative
examples, those that are masked though no name says that they are secrets.

`wrong_password_reused`: recorded calls with one secret exchanged for another that get the recording's answer
at a confidence of .5 or more, over BFCL and three planted APIs: one refuses wrong passwords, one answers
anyway, one was never seen refusing. `same_password_exact`: the calls as recorded that get their answer.
"""

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from beds import BESIDE, NotHere, Simulated
from secret_scanners import EXAMPLES, RULES

from dreamgym_kit.replay.masking import Masker, process_masker, secrets_in
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.secrets import named_secret, secret_arguments
from dreamgym_kit.types import Environment

Figure = tuple[str, float, str]
_RANDOM = "Zq7vK2pL9xWm4RtY8nB3"
_VARIABLES = """OPENAI_API_KEY OPENAI_KEY AZURE_OPENAI_KEY SUPABASE_KEY ENCRYPTION_KEY MASTER_KEY SIGNING_KEY
    COSMOS_ACCOUNT_KEY DB_PASS SMTP_PASS MYSQL_PWD REDIS_PWD GH_PAT AZURE_DEVOPS_PAT SLACK_WEBHOOK_URL
    AZURE_STORAGE_CONNECTION_STRING SENTRY_DSN JWT SESSION_COOKIE DJANGO_SECRET TWILIO_SID DB_PASSWORD
    PGPASSWORD AWS_SESSION_TOKEN"""
_FIELDS = """password passwd pass pwd secret client_secret clientSecret secretKey secret_key SecretAccessKey
    aws_secret_access_key SessionToken session_token token id_token accessToken refresh_token api_key apiKey
    x-api-key apikey Authorization dbPassword userPassword DB_PASSWORD otp pin cvv card_number privateKey
    PrivateKey connectionString webhook_url cookie Set-Cookie bearer jwt signature sas_token AccountKey"""
_TEXTS = (
    "Set-Cookie: session={v}; HttpOnly",
    "https://x.example/cb?access_token={v}&a=1",
    "https://x.example/?api_key={v}",
    "https://b.blob.core.windows.net/c?sig={v}",
    "password={v}",
    "password: {v}",
    "-H 'X-Api-Key: {v}'",
    "Authorization: Basic {v}",
    "mysql -p{v}",
    "gAAAAABk{v}{v}{v}",
    "SG.{v}.{v}{v}",
    "key-{v}{v}",
    "AC0123456789abcdef0123456789abcdef",
    "npm_{v}Zq7vK2pL9xWm4RtY",
    "dop_v1_a1b2c3d4e5f60718293a4b5c6d7e8f901a2b3c4d5e6f708192a3b4c5d6e7f809",
    "sk-ant-api03-{v}{v}",
    "Bearer {v}",
)


def measure(seed: int) -> list[Figure]:
    """Figures for the bench runner. Nothing is drawn by chance."""
    folder = Path(os.environ.get("SHARED_DATA_FOLDER", BESIDE)) / "beds"
    if not folder.is_dir():
        raise NotHere(f"the beds are not in {folder} (SHARED_DATA_FOLDER names another folder)")
    return [*found(), *_false(folder), *_dreamt(_bfcl(folder), _planted())]


def quick(seed: int) -> list[Figure]:
    """What needs no bed."""
    return [*found(), *_dreamt(_planted())]


def examples() -> dict[str, list[tuple[str, bool, str]]]:
    """Of each scanner: rule, whether it is a secret, text."""
    data = json.loads(gzip.decompress(EXAMPLES.read_bytes()))
    return {name: [tuple(each) for each in of["examples"]] for name, of in data.items()}


def missed() -> tuple[list[str], list[tuple[str, str]], int]:
    """Known secrets that are not masked; the misses of the other scanners, by rule; how many those have."""
    masker, scanners = Masker(), examples()
    known = [name for name in _VARIABLES.split() if not secrets_in({name: _RANDOM})]
    known += [name for name in _FIELDS.split() if masker.plain({name: _RANDOM}) == {name: _RANDOM}]
    texts = [text.format(v=_RANDOM) for text in _TEXTS]
    rules = {rule["id"] for rule in json.loads(RULES.read_bytes())["rules"]}
    texts += [text for rule, secret, text in scanners["gitleaks"] if secret and rule in rules]
    known += [text for text in texts if masker.plain([text, "tail"]) == [text, "tail"]]
    others = [
        (rule, text)
        for scanner in ("detect-secrets", "noseyparker")
        for rule, secret, text in scanners[scanner]
        if secret and rule != "ip_public"
    ]
    return known, [(rule, text) for rule, text in others if masker.text(text) == text], len(others)


def found() -> list[Figure]:
    """What is missed."""
    known, others, of = missed()
    return [
        ("missed_known", len(known), "secrets"),
        ("missed_share", len(others) / of, ""),
        ("examples", of, "secrets"),
    ]


def _false(folder: Path) -> list[Figure]:
    masker, values, wrong = Masker(), 0, 0
    for file in sorted(folder.glob("*/*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            for call in json.loads(line)["calls"]:
                for part in (call["args"], call.get("answer"), call.get("error")):
                    before, after = list(_leaves(part)), list(_leaves(masker.plain(part)))
                    values += len(before)
                    for (name, value), (_, masked) in zip(before, after, strict=True):
                        wrong += masked != value and not named_secret(name, str(value))
    negative = [text for each in examples().values() for _, secret, text in each if not secret]
    taken = sum(masker.text(text) != text for text in negative)
    return [
        ("false_share", (wrong + taken) / (values + len(negative)), ""),
        ("false_in_beds", wrong, "values"),
        ("negatives_masked", taken / len(negative), ""),
    ]


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, name)
    else:
        yield name, value


class _Salted(Simulated):
    """The dream of the beds, with marks that keep identity."""

    def _session(self, mode: Mode, episode: str, what: Mapping[str, Any], **parts: Any) -> Session:
        name, _, number = what["world"].rpartition("-")
        environment = Environment(name, int(number)) if number.isdigit() else Environment(what["world"])
        return Session(
            CallRouter(mode, self._specs),
            episode=episode,
            task=episode,
            environment=environment,
            masker=process_masker(salt=b"of the bench"),
            **parts,
        )


Suite = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # tools, episodes


def _bfcl(folder: Path) -> Suite:
    lines = (folder / "bfcl" / "train.jsonl").read_text("utf-8").splitlines()
    return json.loads((folder / "bfcl" / "tools.json").read_text("utf-8"))["tools"], list(
        map(json.loads, lines)
    )


def _planted() -> Suite:
    """A login that was seen refusing, a vault that answers whatever the key, a bank of unseen refusals."""
    arguments = {
        "login": ("user", "password"),
        "read_vault": ("name", "api_key"),
        "balance": ("account", "pin"),
    }
    tools = [
        {
            "name": name,
            "description": f"{name} of the planted API",
            "args": {
                "type": "object",
                "properties": {key: {"type": "string"} for key in keys},
                "required": list(keys),
            },
        }
        for name, keys in arguments.items()
    ]
    episodes = []
    for n in range(40):
        secret = f"S3cret-{n * 7919:06d}-xQ"
        answers = {
            "login": ({"user": f"user{n}", "password": secret}, {"session": f"opened for user{n}"}),
            "read_vault": ({"name": f"entry{n}", "api_key": "K3y-of-all-entries-77"}, {"text": f"text {n}"}),
            "balance": ({"account": f"A-{n}", "pin": secret}, {"balance": n * 10}),
        }
        calls = [{"tool": tool, "args": args, "answer": answer} for tool, (args, answer) in answers.items()]
        wrong = {"user": f"user{n}", "password": f"wrong-{n:04d}-pW"}
        if n % 2:
            calls.append({"tool": "login", "args": wrong, "answer": {"error": "wrong password"}})
        episodes.append({"id": f"planted{n}", "task": "planted", "world": "planted", "calls": calls})
    return tools, episodes


def _dreamt(*suites: Suite) -> list[Figure]:
    reused = tried = exact = same = 0
    masker = process_masker(salt=b"of the bench")
    for tools, episodes in suites:
        dream = _Salted()
        dream.learn(tools, episodes, [])
        for episode in episodes:
            for place, call in enumerate(episode["calls"]):
                marks = secret_arguments(masker.plain(dict(call["args"])))
                for name in (path for path in marks if path in call["args"]):
                    given = _asked(dream, episode, place, call["args"])
                    same += 1
                    exact += given is not None and given == _recorded(call)
                    other = {**call["args"], name: f"0ther-{call['args'][name]}-9z"}
                    given = _asked(dream, episode, place, other)
                    tried += 1
                    reused += given is not None and given == _recorded(call) and "error" not in call
        dream.close()
    return [
        ("wrong_password_reused", reused, "calls"),
        ("wrong_passwords", tried, "calls"),
        ("same_password_exact", exact / same, ""),
    ]


def _asked(dream: _Salted, episode: Mapping[str, Any], place: int, args: Mapping[str, Any]) -> Any:
    """What the dream answers to a call at a place of an episode, at the confidence that answers need."""
    dream.start(episode["world"], episode["task"])
    for call in episode["calls"][:place]:
        if dream.answer(call["tool"], call["args"]) is None:
            dream.told(call["tool"], call["args"], _recorded(call))
    answered = len(dream.answers)
    outcome = dream.answer(episode["calls"][place]["tool"], args)
    return outcome if outcome is not None and dream.answers[answered] >= 0.5 else None


def _recorded(call: Mapping[str, Any]) -> tuple[str, Any]:
    masked = process_masker(salt=b"of the bench").plain
    return ("error", masked(call["error"])) if "error" in call else ("ok", masked(call["answer"]))
