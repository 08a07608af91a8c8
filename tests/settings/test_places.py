"""Where a buffer lies: files and addresses, told apart, spelled alike, and never with a key in them."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit import errors
from dreamgym_kit.adapters.stores import factory
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import MissingExtra, UserError
from dreamgym_kit.settings.buffer_url import SCHEMES, Address, Scheme, buffer_of, place_of
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.schema import Settings

HERE = Path("/project")


@each_row("text", ["dreamgym.db", "sub/b.db", "/abs/b.db", "notes:v2.db", "C:b.db", "a b?.db"])
def test_what_bears_no_scheme_is_a_file_from_the_folder(text: str) -> None:
    assert place_of(text, HERE) == HERE / text


def test_an_address_is_read_into_its_parts() -> None:
    place = place_of("Weaviate://Store.Example:8080?tenant=shop&consistency=quorum", HERE)
    assert isinstance(place, Address)
    assert (place.scheme, place.host, place.port) == ("weaviate", "store.example", 8080)
    assert place.options == {"tenant": "shop", "consistency": "quorum"}
    assert str(place) == "weaviate://store.example:8080?consistency=quorum&tenant=shop"


SHOP = "weaviate://h?tenant=shop"


@each_row(
    ("text", "asked", "same"),
    [
        (SHOP, "weaviate://h?tenant=shop&timeout=3", True),
        (SHOP, "weaviate://h?tenant=shop&consistency=one", True),
        (SHOP, "weaviate://h?tenant=other", False),
        (SHOP, "weaviate://h:8081?tenant=shop", False),
        (SHOP, "weaviate://h:8080?tenant=shop", True),
        (SHOP, "weaviate://h?tenant=shop&grpc=50051", True),
        (SHOP, "weaviate://h/DreamgymTransitions?tenant=shop", True),
        (SHOP, "weaviate://h/Others?tenant=shop", False),
        (SHOP, "weaviates://h?tenant=shop", False),
        (SHOP, "weaviate://h", False),
        ("weaviate://h", "weaviate://h:8080?tenant=default", True),  # said, and meant anyway
        ("weaviates://h", "weaviates://h:443", True),
        ("weaviate+embedded:", "weaviate+embedded:?tenant=default", True),
    ],
)
def test_files_of_a_buffer_are_called_after_which_it_is_not_how_it_is_asked(
    text: str, asked: str, same: bool
) -> None:
    one, other = place_of(text, HERE), place_of(asked, HERE)
    assert isinstance(one, Address)
    assert isinstance(other, Address)
    assert (one.name == other.name) == same


def test_a_folder_in_an_address_starts_where_the_address_stands() -> None:
    place = place_of("weaviate+embedded:data/here", HERE)
    assert isinstance(place, Address)
    assert place.path == "/project/data/here"
    bare = place_of("weaviate+embedded:", HERE)
    assert isinstance(bare, Address)
    assert bare.path == ""


NAMES = st.text("abc-_. é/?&=%:#", min_size=1, max_size=8)


@given(
    st.sampled_from(["weaviate", "weaviates"]),
    st.sampled_from(["localhost", "10.0.0.7", "::1", "store.example"]),
    st.none() | st.integers(1, 65535),
    st.dictionaries(st.sampled_from(["tenant", "grpc", "consistency"]), NAMES, max_size=3),
)
def test_an_address_is_read_as_it_is_spelled(
    scheme: str, host: str, port: int | None, options: dict[str, str]
) -> None:
    address = Address(scheme, host, port, "", options)
    assert place_of(str(address), HERE) == address


@each_row(
    ("text", "said"),
    [
        ("weavate://h", "kind of buffer 'weavate' is not in those there are; did you mean 'weaviate'?"),
        ("postgres://h/db", "kind of buffer 'postgres' is not in those there are"),
        ("weaviate:", "is no address; expected weaviate://HOST[:PORT][?tenant=NAME]"),
        ("weaviate:/h", "is no address"),
        ("weaviate://h:99999", "is no address"),
        ("weaviate://h:port", "is no address"),
        ("weaviate://[h", "is no address"),
        ("weaviate://h?tenant", "is no address"),
        ("weaviate://h#part", "is no address"),
        ("weaviate://h\x1b[2J", "is no address"),
        ("weaviate+embedded://h", "is no address; expected weaviate+embedded:[FOLDER]"),
    ],
)
def test_what_is_no_address_is_named(text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        place_of(text, HERE, source="--buffer")
    assert str(caught.value).startswith(f"--buffer: {said}")
    assert "\x1b" not in str(caught.value)


@each_row(
    "text",
    [
        "weaviate://me:hunter2@h",
        "weaviate://hunter2@h",
        "weaviate://h?api_key=hunter2",
        "weaviates://h?token=hunter2&tenant=a",
        "weaviate://h?tenant=sk-hunter2hunter2hunter2",
    ],
)
def test_an_address_with_a_key_is_refused_without_repeating_it(text: str, tmp_path: Path) -> None:
    for read in (
        lambda: place_of(text, HERE),
        lambda: buffer_of(Settings(buffer=text)),
        lambda: load_settings(tmp_path, environ={"DREAMGYM_BUFFER": text}),
        lambda: _written(tmp_path, text),
    ):
        with pytest.raises(UserError) as caught:
            read()
        assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"


def _written(folder: Path, text: str) -> Settings:
    file = folder / "dreamgym.toml"
    file.write_text(f'buffer = "{text}"\n', "utf-8")
    try:
        return load_settings(file=file, environ={})
    finally:
        file.unlink()


def test_an_address_in_settings_and_environment_stays_one(tmp_path: Path) -> None:
    assert str(buffer_of(_written(tmp_path, "weaviate://h:1?tenant=a"))) == "weaviate://h:1?tenant=a"
    read = load_settings(tmp_path, environ={"DREAMGYM_BUFFER": "weaviate://h:1"})
    assert str(buffer_of(read)) == "weaviate://h:1"


def test_every_scheme_has_an_adapter() -> None:
    for scheme in SCHEMES.values():
        module, function = scheme.opens
        assert callable(getattr(import_module(module), function))


class _StoreDouble(MemoryStore):
    """Stands for the buffer of another kind of server."""


def test_a_new_kind_of_server_needs_one_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = ModuleType("other_stores")
    module.open_other = lambda place, settings, **how: _StoreDouble()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    other = Scheme(opens=(module.__name__, "open_other"), extra="weaviate", port=7000, how=("speed",))
    monkeypatch.setitem(SCHEMES, "other", other)
    place, same = (place_of(f"other://h{rest}", tmp_path) for rest in ("?tenant=a&speed=9", ":7000?tenant=a"))
    assert isinstance(place, Address)
    assert isinstance(same, Address)
    assert place.name == same.name
    assert isinstance(factory.open_store(place, Settings()), _StoreDouble)


def test_an_adapter_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"the buffer weaviate://h needs .*'dreamgym-kit\[weaviate\]'"):
        factory.open_store(Address("weaviate", "h"), Settings())
