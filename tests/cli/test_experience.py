"""`dreamgym-kit experience`: what each command says, writes and refuses."""

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from bench.faulty_endpoint_double import FaultyEndpointDouble, serving
from distil.shop_recordings import shop
from each_row import each_row
from typer.testing import CliRunner

from dreamgym_kit.adapters.distilling.material import outcomes_of
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.cli.main import app
from dreamgym_kit.training.annotation import ANNOTATIONS


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a shop's recordings, and no graph."""
    with closing(SqliteStore(tmp_path / "dreamgym.db")) as store:
        store.put(shop(8, 2))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(*arguments: str, code: int = 0) -> tuple[str, str]:
    done = CliRunner().invoke(app, ["experience", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return "", str(done.exception)
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


def test_annotating_again_does_nothing_twice(here: Path) -> None:
    told = json.loads(ran("annotate", "out", "--json")[0])
    assert (told["annotated"], told["made"], told["groups"]) == (told["episodes"], told["episodes"], 8)
    assert told["episodes"] + told["held_out"] == 16
    assert json.loads(ran("annotate", "out", "--json")[0])["made"] == 0
    assert len((here / "out" / ANNOTATIONS).read_text().splitlines()) == told["episodes"]
    said, warned = ran("annotate", "out")
    assert f"{told['episodes']} of {told['episodes']} episodes annotated, 0 of them now" in said
    assert "Train    dreamgym-kit experience train out --model DIR" in said
    assert "no graph is named, so tools are known by their recordings alone" in warned


@each_row(
    ("arguments", "says"),
    [
        (("annotate", "out", "--by", "rule"), "did you mean 'rules'?"),
        (
            ("annotate", "out", "--by", "teacher"),
            'names no server: [experience] urls = ["http://localhost:8000/v1"]',
        ),
        (("annotate", "out", "--split", "environments"), "did you mean 'environment'?"),
        (("annotate", "out", "--buffer", "none.db"), "none.db"),
        (("annotate", "out", "--tenant", "nobody"), "the buffer holds no real answers of tenant 'nobody'"),
        (("annotate", "out", "--outcomes", "none"), "none"),
        (("annotate", "dreamgym.db"), "dreamgym.db"),
        (
            ("train", "out", "--model", "m"),
            "no distillation was begun there; begin one: dreamgym-kit experience",
        ),
        (("eval", "out"), "no distillation was begun there"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_way_out(
    here: Path, arguments: tuple[str, ...], says: str
) -> None:
    shutil.rmtree(here / "out", ignore_errors=True)
    assert says in ran(*arguments)[1]
    assert not (here / "out" / ANNOTATIONS).exists()


def test_another_split_in_the_same_folder_is_refused(here: Path) -> None:
    ran("annotate", "out")
    before = (here / "out" / "distil.json").read_bytes()
    told = ran("annotate", "out", "--split", "task")[1]
    assert "was begun with by environment, not task: its held-out recordings must stay held out" in told
    assert (here / "out" / "distil.json").read_bytes() == before


def annotation(body: dict) -> str:
    """As many steps as the schema asks for; "ready" for the first question."""
    form = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    steps = form.get("properties", {}).get("state_transitions", {}).get("minItems", 0)
    tutorial = {"overall_plan": "p", "success_mode": "s", "failure_mode": "f"}
    plans = [{"step_id": step, "transition_plan": f"plan {step}"} for step in range(1, steps + 1)]
    return json.dumps({"task_tutorial": tutorial, "state_transitions": plans}) if steps else "ready"


def test_a_teacher_is_asked_once_for_each_episode(here: Path) -> None:
    with serving(FaultyEndpointDouble(content=annotation)) as server:
        (here / "dreamgym.toml").write_text(f'[experience]\nurls = ["{server.url}"]\nmodel = "big"\n')
        told = json.loads(ran("annotate", "out", "--by", "teacher", "--json")[0])
        assert told["made"] == told["episodes"] == len(server.requests) - 1
        asked = len(server.requests)
        assert json.loads(ran("annotate", "out", "--by", "teacher", "--json")[0])["made"] == 0
        assert len(server.requests) == asked + 1  # whether it answers at all
    lines = [json.loads(line) for line in (here / "out" / ANNOTATIONS).read_text().splitlines()]
    assert {line["by"] for line in lines} == {"teacher big"}
    assert [note["reasoning"] for note in lines[0]["notes"]] == ["plan 1", "plan 2", "plan 3"]


def test_what_a_teacher_cost_is_counted_over_all_legs_and_ends_at_the_budget(here: Path) -> None:
    """What was paid for answers of no use is counted as well."""

    def every_other(body: dict) -> str:
        return annotation(body) if len(server.requests) % 2 else "no JSON"  # the first is "ready"

    settings = '[experience]\nurls = ["{}"]\nmodel = "big"\nusd_per_million_output = 1000.0\n'
    settings += "[budget]\nmax_usd = 0.05\n[simulate]\nconcurrency = 1\n"
    with serving(FaultyEndpointDouble(content=every_other)) as server:
        (here / "dreamgym.toml").write_text(settings.format(server.url))
        first = json.loads(ran("annotate", "out", "--by", "teacher", "--json", code=1)[0])
        assert "spend in USD" in first["stopped"]
        assert first["spend"]["answers"] == len(server.requests) - 1
        assert first["spend"]["usd"] >= 0.05
        asked = len(server.requests)
        again = json.loads(ran("annotate", "out", "--by", "teacher", "--json", code=1)[0])
    assert again["made"] <= 1  # what the last half-made annotation cost was never kept
    assert len(server.requests) - asked <= 3  # whether it answers at all, and that one
    assert again["spend"]["usd"] >= 0.05


CANNOT_TELL = {
    "reasoning": "r",
    "outcome": "unknown",
    "like": None,
    "leaves": [],
    "answer": None,
    "error": "",
}


def test_a_server_is_tried_too_and_its_gate_lies_in_the_folder(here: Path) -> None:
    ran("annotate", "out")
    said = json.dumps({**CANNOT_TELL, "set": [], "confidence": 0})
    with serving(FaultyEndpointDouble(content=lambda body: said)) as server:
        (here / "dreamgym.toml").write_text(f'[experience]\nurls = ["{server.url}"]\nmodel = "big"\n')
        found = json.loads(ran("eval", "out", "--endpoint", "--json")[0])
        assert found["calls"] == len(server.requests) - 1
    assert (found["exact_model"], found["calibration_error"]) == (0, None)
    assert 0 < found["exact_composed"] == found["exact_layered"]
    assert json.loads((here / "out" / "acceptance.json").read_text())["weights"] == ""
    assert set(found["gate"].values()) == {"watch"}
    assert "name one of them" in ran("eval", "out", "--endpoint", "--model", "m")[1]


@pytest.mark.slow
def test_a_model_is_trained_tried_and_judged(here: Path) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed", exc_type=ImportError)
    from nano_double import write_double

    write_double(here / "base", context=16_384)
    ran("annotate", "out")
    trained = ("train", "out", "--model", "base", "--steps", "1", "--set", "distill.batch_size=2")
    (here / "dreamgym.toml").write_text("[distill]\nmicro_batches = 1\nmax_tokens = 64\n")
    assert "lessons are longer than it reads, or than distill.max_tokens" in ran(*trained)[1]
    (here / "dreamgym.toml").write_text("[distill]\nmicro_batches = 1\nmax_tokens = 16_384\n")
    told = json.loads(ran(*trained, "--set", "distill.leave_out=1", "--set", "tenant=nobody", "--json")[0])
    assert told["lessons"] > 20
    found = json.loads(ran("eval", "out", "--most", "4", "--json")[0])
    assert found["calls"] == 4
    assert 0 < found["exact_composed"] == found["exact_layered"]
    assert set(found["gate"].values()) <= {"watch", "never"}
    assert json.loads((here / "out" / "model" / "acceptance.json").read_text())["figures"]["calls"] == 4


@pytest.mark.slow
def test_runs_tell_who_succeeded_and_what_was_asked(recordings: Path) -> None:
    (run,) = (recordings.parent / "runs").iterdir()
    texts, successes = outcomes_of([run])
    with closing(SqliteStore(recordings, read_only=True)) as store:
        episodes = {row.episode for row in store.scan()}
    assert set(texts) == episodes
    assert sorted(texts.values()) == ["Please refund A-1", "Please refund A-2"]
    assert set(successes.values()) == {False}  # the double refunds twice
