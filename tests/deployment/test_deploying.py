"""Deploying: only a fit comparison promotes, force is written down, and the card says what was not tested."""

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deployment.evaluated_runs import content_of, evaluated_run, held_out_tasks, model_double

from dreamgym_kit.adapters.langgraph.deploy import Deployed, deploy, roll_back
from dreamgym_kit.deployment.model_files import model_digest
from dreamgym_kit.deployment.model_registry import ModelRegistry, RegistryAction
from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Source, Split

TASKS = held_out_tasks()
POOR, GOOD = dict.fromkeys((task.id for task in TASKS), 1), dict.fromkeys((task.id for task in TASKS), 3)


class Place:
    """Two models, the runs that tried them, and a shelf."""

    def __init__(self, folder: Path) -> None:
        self.shelf = folder / "deployed"
        self.old, self.new = model_double(folder / "old", "old"), model_double(folder / "new", "new")
        self.runs = folder / "runs"
        self.runs.mkdir()
        self.before = self.run("before", POOR, self.old)
        self.after = self.run("after", GOOD, self.new)

    def run(self, name: str, solved: dict[str, int], model: Path | None, **more: object) -> Path:
        weights = model_digest(model) if model is not None else ""
        return evaluated_run(self.runs / name, TASKS, solved, weights=weights, **more)

    def deploy(self, weights: Path, **more: object) -> Deployed:
        told = {"tasks": TASKS, "into": self.shelf, "settings": Settings(graph="agent.py:graph"), **more}
        return deploy(weights, **told)

    def begin(self) -> None:
        self.deploy(self.old, force="the first one")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_is_better_on_the_real_tools_is_promoted_with_a_card(place: Place) -> None:
    place.begin()
    done = place.deploy(place.new, evaluated=place.after, against=place.before)
    assert done.done
    assert done.sentence.startswith(
        "Promoted: v002 is current (replaces v001). It solves 50 points more than"
    )
    current = place.shelf / "current" / "merged"
    assert content_of(current) == "new"
    card = (current / "README.md").read_text()
    assert "Promoted on " in card
    assert f"| weights | {model_digest(place.new)} |" in card
    assert "| in place of | v001 |" in card
    assert "| address | 10 | 25 % | 75 % | +50 (" in card
    assert "- Tools that no episode of the evaluation called: 'look\\_up', 'refund\\_payment'." in card
    assert "- Tools that fail, are slow or answer nonsense: none was made to." in card
    assert "What it learned from is not known to dreamgym-kit" in card
    assert f"    dreamgym-kit serve --from {place.shelf}\n" in card
    assert '    init_chat_model("openai:agent", base_url=' in card


def test_what_is_not_better_is_not_promoted_and_the_history_says_so(place: Place) -> None:
    place.begin()
    same = place.run("same", POOR, place.new)
    done = place.deploy(place.new, evaluated=same, against=place.before)
    assert not done.done
    assert done.sentence.startswith(
        "Not promoted: v001 stays current. No difference can be seen: the candidate"
    )
    assert content_of(place.shelf / "current" / "merged") == "old"
    with ModelRegistry(place.shelf) as shelf:
        assert [event.deed for event in shelf.events] == [RegistryAction.FORCED, RegistryAction.REFUSED]
        assert shelf.looks == (("same", "before"),)


def test_force_is_written_into_the_card_with_what_spoke_against_it(place: Place) -> None:
    place.begin()
    worse = place.run("worse", dict.fromkeys(GOOD, 0), place.new)
    done = place.deploy(place.new, evaluated=worse, against=place.before, force="the <b>board</b> wants it")
    assert done.event.deed is RegistryAction.FORCED
    card = (place.shelf / "current" / "merged" / "README.md").read_text()
    assert "by a person, who said: the \\<b\\>board\\</b\\> wants it\n" in card
    assert "- The candidate solves 25 points less than what is deployed on the same 30 tasks" in card
    with pytest.raises(UserError, match="force: give a reason"):
        place.deploy(place.old, force=" ")


LEARNED = [replace(task, split=Split.TRAIN) if task.id < "t03" else task for task in TASKS]
OTHER_CHECKER = [replace(task, checker="mine:always") for task in TASKS]
OTHER_TASKS = "was made with other tasks than those named here, or with more of them"


@pytest.mark.parametrize(
    ("what", "tasks", "told"),
    [
        ({"mode": "dream"}, TASKS, "was dreamed; only what the real tools say can promote"),
        ({"more": {"seed": 9}}, TASKS, "The two runs were not made alike: "),
        ({"more": {"graph": "easier:graph"}}, TASKS, "were of other graphs (easier:graph and agent:graph)"),
        ({"n": 4, "more": {"n": 9}}, TASKS, "of its episodes were not run; resume it"),
        (
            {"calls": Source.DERIVED},
            TASKS,
            "odd: says that its tools were real, and 120 of its calls no tool",
        ),
        ({}, LEARNED, "3 of the tasks it was tried on is not marked as held out (t00, t01"),
        ({}, TASKS[:15], OTHER_TASKS),  # picked afterwards
        ({}, OTHER_CHECKER, OTHER_TASKS),
    ],
)
def test_a_comparison_that_is_not_fit_promotes_nothing(
    place: Place, what: dict, tasks: list, told: str
) -> None:
    place.begin()
    odd = place.run("odd", GOOD, place.new, **what)
    with pytest.raises(UserError, match="nothing was changed: no comparison shows") as refused:
        place.deploy(place.new, evaluated=odd, against=place.before, tasks=tasks)
    assert told in str(refused.value)
    with ModelRegistry(place.shelf) as shelf:
        assert len(shelf.events) == 1


def test_a_run_of_other_weights_promotes_nothing(place: Place, tmp_path: Path) -> None:
    place.begin()
    third = model_double(tmp_path / "third", "third")
    with pytest.raises(UserError, match="tried other weights than these; evaluate these with --policy DIR"):
        place.deploy(third, evaluated=place.after, against=place.before)
    unnamed = place.run("unnamed", POOR, None)
    with pytest.raises(UserError, match="tried weights that it does not name; evaluate what is in use"):
        place.deploy(place.new, evaluated=place.after, against=unnamed)
    other = place.run("other", POOR, third)
    with pytest.raises(UserError, match="tried other weights than those in use"):
        place.deploy(place.new, evaluated=place.after, against=other)


def test_the_first_one_may_be_held_against_the_agent_as_it_is(place: Place) -> None:
    plain, real = place.run("plain", POOR, None), place.run("real", GOOD, place.new, calls=Source.REAL)
    done = place.deploy(place.new, evaluated=real, against=plain)
    assert done.event.deed is RegistryAction.PROMOTED
    assert done.event.before == ""


def test_the_same_comparison_again_is_no_new_look_and_another_is(place: Place) -> None:
    place.begin()
    for name in ("one", "two"):
        run = place.run(name, POOR, place.new)
        for _ in range(2):
            done = place.deploy(place.new, evaluated=run, against=place.before)
            assert done.promotion is not None
            assert done.promotion.look == ("one", "two").index(name) + 1


def test_weights_that_are_in_use_are_not_deployed_again(place: Place) -> None:
    place.begin()
    done = place.deploy(place.old)
    assert done.already
    assert "Nothing was changed" in done.sentence
    with ModelRegistry(place.shelf) as shelf:
        assert shelf.names() == ["v001"]


def test_back_to_the_version_before_and_only_to_what_it_was(place: Place) -> None:
    place.begin()
    place.deploy(place.new, evaluated=place.after, against=place.before)
    done = roll_back(place.shelf)
    assert done.sentence == "Rolled back: v001 is current again and replaces v002."
    assert content_of(place.shelf / "current" / "merged") == "old"
    with pytest.raises(UserError, match="there is no previous version"):
        roll_back(place.shelf)
    (place.shelf / "versions" / "v002" / "merged" / "model.safetensors").write_text("evil")
    with pytest.raises(UserError, match="not what was deployed as v002"):
        roll_back(place.shelf, to="v002")
    with pytest.raises(UserError, match="has no version 'v009'; known: v001, v002"):
        roll_back(place.shelf, to="v009")


def test_without_any_comparison_nothing_is_deployed(place: Place) -> None:
    with pytest.raises(UserError, match="There is no evaluation of these weights"):
        place.deploy(place.new)
    assert not (place.shelf / "current").exists()
    with pytest.raises(UserError, match="is neither the run directory of a training nor a model directory"):
        place.deploy(place.runs)
    with pytest.raises(UserError, match="is a run of episodes, no training"):
        place.deploy(place.after)


def test_no_secret_and_no_code_gets_into_card_and_lines(place: Place) -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    place.deploy(place.old, force=f"the key is {key}")
    kept = [path for path in place.shelf.rglob("*") if path.is_file()]
    assert len(kept) > 5
    assert not any(key in path.read_text() for path in kept)
    for name in ('x") or evil("', "a b", "", "-x"):
        with pytest.raises(UserError, match="is not a model name"):
            place.deploy(place.new, force="why", name=name)


def test_going_back_and_forth_gives_no_first_look_again(place: Place, tmp_path: Path) -> None:
    place.begin()
    same = place.run("same", POOR, place.new)
    assert place.deploy(place.new, evaluated=same, against=place.before).promotion.look == 1
    third = model_double(tmp_path / "third", "third")
    place.deploy(third, force="to go back from")
    roll_back(place.shelf)
    again = place.run("again", POOR, place.new)
    assert place.deploy(place.new, evaluated=again, against=place.before).promotion.look == 2


@pytest.mark.parametrize(
    ("name", "cut", "told"),
    [
        ("model.safetensors", -3, "no safetensors file, or cut off|no whole safetensors file"),
        ("model.safetensors", 0, "no safetensors file, or cut off|no whole safetensors file"),
        ("config.json", -4, "cannot be read"),
    ],
)
def test_half_a_model_is_not_put_in_use_even_by_force(place: Place, name: str, cut: int, told: str) -> None:
    place.begin()
    data = (place.new / name).read_bytes()
    (place.new / name).write_bytes(data[:cut])
    with pytest.raises(UserError, match=told):
        place.deploy(place.new, force="now")
    assert content_of(place.shelf / "current" / "merged") == "old"


def test_weights_that_are_cut_off_and_shards_that_are_missing_are_named(place: Place) -> None:
    tensor = {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}
    header = json.dumps(tensor).encode()
    whole = len(header).to_bytes(8, "little") + header + bytes(16)
    (place.new / "model.safetensors").write_bytes(whole[:-1])
    with pytest.raises(UserError, match="is cut off, or more than it says"):
        place.deploy(place.new, force="now")
    (place.new / "model.safetensors").write_bytes(whole)
    (place.new / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-2.safetensors"}}')
    with pytest.raises(UserError, match=r"model-2\.safetensors: this shard is missing"):
        place.deploy(place.new, force="now")


def test_a_full_disk_leaves_what_was_in_use_and_no_half_of_the_new(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.begin()

    def full(source: Path, target: Path) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(UserError, match=r"v002: cannot be written \(No space left on device\); nothing was"):
        place.deploy(place.new, evaluated=place.after, against=place.before)
    assert [path.name for path in (place.shelf / "versions").iterdir()] == ["v001"]
    monkeypatch.undo()
    assert place.deploy(place.new, evaluated=place.after, against=place.before).event.version == "v002"


def test_a_record_that_the_history_does_not_know_is_not_used(place: Place) -> None:
    place.begin()
    place.deploy(place.new, evaluated=place.after, against=place.before)
    evil = model_double(place.shelf.parent / "evil", "evil")
    version = place.shelf / "versions" / "v001"
    (version / "merged" / "model.safetensors").write_bytes((evil / "model.safetensors").read_bytes())
    record = version / "version.json"
    record.write_text(record.read_text().replace(model_digest(place.old), model_digest(evil)))
    with pytest.raises(UserError, match=r"version\.json: is not what the history says of v001"):
        roll_back(place.shelf)
    assert content_of(place.shelf / "current" / "merged") == "new"


def test_a_card_that_was_edited_is_known(place: Place) -> None:
    place.begin()
    with ModelRegistry(place.shelf) as shelf:
        version = shelf.version("v001")
        assert shelf.as_written(version)
        card = shelf.merged / "README.md"
        card.write_text(card.read_text().replace("**Forced on", "Promoted on"))
        assert not shelf.as_written(version)
        card.unlink()
        assert not shelf.as_written(version)
