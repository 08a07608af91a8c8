"""Keys lie in variables or files that settings name; what was read as one is masked wherever it is kept."""

import json
import os
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from each_row import each_row

from dreamgym_kit.adapters.models.addresses import read_key
from dreamgym_kit.adapters.models.remote import open_remote
from dreamgym_kit.errors import UserError
from dreamgym_kit.replay.masking import masked, process_masker
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.schema import PolicySettings
from dreamgym_kit.settings.secrets import key_places, open_key_files

KEY = "canaryplainword4fjq"  # of no published form


def header(file: Path) -> str:
    ((_, value),) = read_key(None, file=str(file), source="x").headers().items()
    return value


@each_row("end", ["", "\n", "\r\n", " \n"])
def test_a_key_is_all_that_a_file_holds_but_the_end_of_its_line(tmp_path: Path, end: str) -> None:
    (tmp_path / "key").write_text(f"{KEY}{end}")
    assert header(tmp_path / "key") == f"Bearer {KEY}"


def test_a_mounted_secret_is_a_link_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "key").write_text(KEY)
    (tmp_path / "key").symlink_to("..data/key")
    assert header(tmp_path / "key") == f"Bearer {KEY}"


@each_row(
    ("content", "said"),
    [
        (b"", "holds no key"),
        (b"\n", "holds no key"),
        (b"two words-canary", "holds no key"),
        (b"canary-one\ncanary-two\n", "holds no key"),
        ("canary-\u00e9".encode(), "holds no key"),
        (b"canary" * 1000, "longer than a key"),
    ],
)
def test_a_file_that_holds_no_key_is_refused_without_repeating_it(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(UserError, match=said) as refused:
        read_key(None, file=str(tmp_path / "key"), source="dreamgym.toml:4")
    assert str(refused.value).startswith(f"dreamgym.toml:4: {tmp_path / 'key'} ")
    assert "canary" not in str(refused.value).replace(str(tmp_path), "")


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, said in (
        ("pipe", "no regular file"),
        (".", "cannot be read|no regular"),
        ("none", "cannot be"),
    ):
        with pytest.raises(UserError, match=said):
            read_key(None, file=str(tmp_path / name), source="x")
    with pytest.raises(UserError, match="no regular file"):
        read_key(None, file="/dev/zero", source="x")


def test_one_key_comes_from_one_place(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name one of them"):
        read_key("SOME_KEY", file="key", source="x", environ={"SOME_KEY": KEY})


def settings_file(folder: Path, text: str) -> Path:
    (folder / "dreamgym.toml").write_text(text)
    return folder


def test_a_file_is_named_from_where_the_settings_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = settings_file(tmp_path, '[policy]\nkey_file = "keys/policy"\n')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load_settings(folder, environ={}).policy.key_file == str(tmp_path / "keys" / "policy")
    told = load_settings(folder, environ={"DREAMGYM_POLICY_KEY_FILE": "mine"}).policy.key_file
    assert told == str(tmp_path / "elsewhere" / "mine")


def test_every_section_with_a_key_takes_a_variable_or_a_file(tmp_path: Path) -> None:
    names = ("experience.key", "policy.key", "replay.embedder_key")
    lines = [f'[{name.split(".")[0]}]\n{name.split(".")[1]}_file = "f"\n' for name in names]
    settings = load_settings(settings_file(tmp_path, "".join(lines)), environ={})
    assert sorted(".".join(place.key) for place in key_places(settings)) == sorted(
        f"{one}_file" for one in names
    )


@each_row("section", ["experience.key_env", "policy.key_env", "replay.embedder_key_env"])
def test_a_key_is_masked_whatever_its_variable_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str
) -> None:
    secret = f"canary{section.replace('.', '').replace('_', '')}q7"
    masker = process_masker()
    assert masker.text(secret) == secret
    table, key = section.split(".")
    name = f"PLAIN_{table.upper()}"
    load_settings(settings_file(tmp_path, f'[{table}]\n{key} = "{name}"\n'), environ={})
    monkeypatch.setenv(name, secret)  # as a graph's .env does, after the settings were read
    assert masker.text(f"bad key {secret}") == "bad key <masked>"


def test_a_key_of_a_file_is_masked_from_when_settings_name_it(tmp_path: Path) -> None:
    secret = 'canary/of+a"file\\q9'
    (tmp_path / "key").write_text(f"{secret}\n")
    masker = process_masker()
    assert masker.text(secret) == secret
    load_settings(settings_file(tmp_path, '[experience]\nkey_file = "key"\n'), environ={})
    spelled = [
        secret,
        quote(secret, safe=""),
        re.sub("%..", lambda one: one[0].lower(), quote(secret, safe="")),
        json.dumps(secret)[1:-1],
    ]
    for text in (*spelled, json.dumps(json.dumps(secret))):
        assert "canary" not in masker.text(f"before {text} after")


def test_a_key_that_was_read_is_masked_from_then_on() -> None:
    secret = "canarythatwasread77"
    assert masked(secret) == secret
    said = PolicySettings(model="m", urls=("http://h/v1",), key_env="NAME")
    open_remote(said, source="x", environ={"NAME": secret}).close()
    assert masked(f"no {secret}") == "no <masked>"


def test_a_file_that_everybody_may_read_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    settings = load_settings(settings_file(tmp_path, '[policy]\nkey_file = "key"\n'), environ={})
    (tmp_path / "key").chmod(0o600)
    assert open_key_files(settings) == []
    (tmp_path / "key").chmod(0o644)
    path = tmp_path / "key"
    told = f"policy.key_file: everybody on this machine may read {path}; chmod 600 {path}"
    assert open_key_files(settings) == [told]
