"""The shelf: one version in use, the way back, and what a killed process leaves."""

from pathlib import Path

import pytest
from deployment.evaluated_runs import content_of, model_double

from dreamgym_kit.deployment.model_files import model_digest
from dreamgym_kit.deployment.model_registry import (
    HISTORY,
    MERGED,
    ModelRegistry,
    RegistryAction,
    RegistryEvent,
    Version,
    version_in_use,
)
from dreamgym_kit.errors import UserError


def put(shelf: ModelRegistry, content: str, model: Path) -> Version:
    source = model if model.exists() else model_double(model, content)
    version = Version(name=shelf.next_name(), weights=model_digest(source), source=str(source), made_at=1.0)

    def fill(folder: Path) -> None:
        (folder / MERGED).mkdir()
        for path in source.iterdir():
            (folder / MERGED / path.name).write_bytes(path.read_bytes())

    shelf.put(version, fill)
    return version


def note(shelf: ModelRegistry, version: Version, deed: RegistryAction = RegistryAction.PROMOTED) -> None:
    before = shelf.current
    name = before.name if before is not None else ""
    shelf.note(RegistryEvent(at=1.0, deed=deed, version=version.name, before=name, weights=version.weights))


@pytest.fixture
def three(tmp_path: Path) -> Path:
    folder = tmp_path / "deployed"
    with ModelRegistry(folder, make=True) as shelf:
        for content in ("one", "two", "three"):
            note(shelf, put(shelf, content, tmp_path / content))
    return folder


def test_the_last_version_is_in_use_and_each_stays(three: Path) -> None:
    assert content_of(three / "current" / MERGED) == "three"
    assert version_in_use(three) == "v003"
    with ModelRegistry(three) as shelf:
        assert shelf.names() == ["v001", "v002", "v003"]
        assert (shelf.before, shelf.next_name()) == ("v002", "v004")
        assert shelf.verified_folder(shelf.version("v001")) == three / "versions" / "v001" / MERGED


def test_the_way_back_leads_past_what_was_rolled_back(three: Path) -> None:
    with ModelRegistry(three) as shelf:
        for expected in ("v002", "v001"):
            back = shelf.version(shelf.before)
            assert back.name == expected
            note(shelf, back, RegistryAction.ROLLED_BACK)
        assert shelf.before == ""
    assert content_of(three / "current" / MERGED) == "one"


def test_every_cut_of_the_last_line_gives_the_state_before_or_after(three: Path) -> None:
    whole = (three / HISTORY).read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for end in range(start, len(whole) + 1, 7):
        (three / HISTORY).write_bytes(whole[:end])
        with ModelRegistry(three) as shelf:
            assert shelf.current is not None
            assert shelf.current.name == ("v003" if end == len(whole) else "v002")
    (three / HISTORY).write_bytes(whole[: start + 9])
    with ModelRegistry(three) as shelf:
        note(shelf, shelf.version("v001"), RegistryAction.ROLLED_BACK)
    with ModelRegistry(three) as shelf:
        assert [one.version for one in shelf.events] == ["v001", "v002", "v001"]


def test_a_damaged_line_in_the_middle_is_named(three: Path) -> None:
    lines = (three / HISTORY).read_text().splitlines(keepends=True)
    (three / HISTORY).write_text(lines[0] + lines[1].replace("promoted", "promised") + lines[2])
    with pytest.raises(UserError, match=r"history\.jsonl:2: this line is damaged \(deed: 'promised'"):
        ModelRegistry(three)


def test_two_hands_at_once_are_refused(three: Path) -> None:
    with ModelRegistry(three), pytest.raises(UserError, match="in use by process"):
        ModelRegistry(three)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UserError, match="holds something else than deployed versions"):
        ModelRegistry(tmp_path, make=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    with pytest.raises(UserError, match="nothing is deployed there"):
        ModelRegistry(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_what_decides_answers_decides_the_digest(tmp_path: Path) -> None:
    model = model_double(tmp_path / "model", "weights")
    first = model_digest(model)
    (model / "README.md").write_text("told only")
    assert model_digest(model) == first
    (model / "chat_template.jinja").write_text("other words")
    second = model_digest(model)
    assert second != first
    (model / "chat_template.jinja").unlink()
    (model / "chat_template.jinja").symlink_to("/etc/hostname")
    with pytest.raises(UserError, match="is not a plain file"):
        model_digest(model)
