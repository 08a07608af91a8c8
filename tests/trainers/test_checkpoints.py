"""What counts as a checkpoint: whole, ours, unchanged."""

import json
from pathlib import Path

import pytest

from dreamgym_kit.adapters.trainers.checkpoints import MANIFEST, Checkpoint, Checkpoints
from dreamgym_kit.errors import UserError

MADE_OF = {"model": "abc"}


def write(checkpoints: Checkpoints, step: int) -> Checkpoint:
    checkpoints.clear_incoming()
    made = checkpoints.incoming / "made"
    made.mkdir()
    (made / "optimizer.pt").write_bytes(b"state %d" % step)
    (made / "model.safetensors").write_bytes(b"weights %d" % step)
    return checkpoints.commit(made, step, MADE_OF)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", keep=2)


def test_without_any_there_is_none(checkpoints: Checkpoints) -> None:
    assert checkpoints.last() == (None, [])


def test_the_last_whole_one_is_taken_and_older_ones_go(checkpoints: Checkpoints) -> None:
    for step in (1, 2, 10):
        made = write(checkpoints, step)
        assert checkpoints.last() == (made, [])
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == ["step-000002", "step-000010"]
    assert made.step == 10
    assert made.made_of == MADE_OF


def test_half_ones_are_passed_by_and_named(checkpoints: Checkpoints) -> None:
    whole = write(checkpoints, 3)
    half = checkpoints.folder / "step-000004"
    half.mkdir()
    (half / "optimizer.pt").write_bytes(b"half")
    (checkpoints.folder / "notes").mkdir()
    assert checkpoints.last() == (whole, [half])


def test_what_a_killed_process_left_behind_is_in_nobodys_way(checkpoints: Checkpoints) -> None:
    checkpoints.clear_incoming()
    (checkpoints.incoming / "made").mkdir()
    assert checkpoints.last() == (None, [])
    assert write(checkpoints, 1).step == 1
    assert not checkpoints.incoming.exists()


@pytest.mark.parametrize(
    ("harm", "file", "what"),
    [
        ("change", "optimizer.pt", "is not what was written there"),
        ("remove", "optimizer.pt", "is missing"),
        ("add", "rng_state.pth", "was added to the checkpoint"),
        ("link", "optimizer.pt", "is not what was written there"),
    ],
)
def test_a_checkpoint_that_is_not_as_it_was_written_is_refused_by_name(
    checkpoints: Checkpoints, tmp_path: Path, harm: str, file: str, what: str
) -> None:
    write(checkpoints, 1)
    last = write(checkpoints, 2).folder
    if harm in ("remove", "link"):
        content = (last / file).read_bytes()
        (last / file).unlink()
        (tmp_path / "elsewhere").write_bytes(content)
    if harm in ("change", "add"):
        (last / file).write_bytes(b"something else")
    if harm == "link":
        (last / file).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError) as refused:
        checkpoints.last()
    assert str(refused.value) == (
        f"{last / file}: {what}; nothing of it was loaded. Remove {last} to go on from the checkpoint before."
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"dreamgym_checkpoint": 1}', "null", "[" * 5000])
def test_a_manifest_that_is_none_is_refused(checkpoints: Checkpoints, text: str) -> None:
    last = write(checkpoints, 1).folder
    (last / MANIFEST).write_text(text)
    with pytest.raises(UserError, match=r"dreamgym-checkpoint\.json: "):
        checkpoints.last()


def test_a_checkpoint_under_another_steps_name_is_refused(checkpoints: Checkpoints) -> None:
    made = write(checkpoints, 1).folder
    made.rename(made.with_name("step-000007"))
    with pytest.raises(UserError, match="is not of this checkpoint"):
        checkpoints.last()


def test_the_manifest_says_what_a_trainer_must_have_in_common(checkpoints: Checkpoints) -> None:
    manifest = json.loads((write(checkpoints, 5).folder / MANIFEST).read_text())
    assert manifest["step"] == 5
    assert manifest["made_of"] == MADE_OF
    assert set(manifest["files"]) == {"optimizer.pt", "model.safetensors"}
