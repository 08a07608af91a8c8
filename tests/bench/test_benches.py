"""The runner's own promises, and each whole-run bench in small: it meets its goal, and it can miss it."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.model import ToolProgram

FOLDER = Path(__file__).parent
RUN = FOLDER / "run.py"
Figures = dict[str, float]
IN_SMALL: dict[str, Callable[[Figures], bool]] = {
    "approval": lambda had: had["unapproved"] == 0 and had["attempts"] > 30 and had["approved"] > 5,
    "contradictions": lambda had: (
        (had["accepted"], had["honest_accepted"]) == (0, 1) and had["classes_scored"] >= 12
    ),
}
AT_NIGHT: dict[str, Callable[[Figures], bool]] = {
    "ablations": lambda had: had["exact_no_history"] < had["exact_whole"],
    "algorithms": lambda had: all(0 <= share <= 1 for share in had.values()),
    "curriculum": lambda had: (
        had["impossible_share"] <= 0.02 < 0.02 + had["impossible_share"] < had["impossible_in_turn"]
    ),
    "experience": lambda had: (
        had["exact_layered"] > had["exact_composed"]
        and had["exact_nano_writes"] > had["exact_composed_writes"]
    ),
    "faults": lambda had: had["faults_met"] > 0,
    "gpu_step": lambda had: min(had["step_s"], had["sampling_rate"], had["update_bf16"]) > 0,
    "learns": lambda had: had["real_calls_in_dream"] == 0 < had["start"] < 1,
    "orchestration": lambda had: min(had["share"], had["share_sync"], had["ideal_share_1s"]) > 0,
    "s2r": lambda had: 0 < had["real_calls"] <= 60 and had["steps"] >= 1,
}


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, RUN, *arguments], capture_output=True, text=True, check=False)


def figures_in_small(bench: ModuleType) -> Figures:
    figures = {name: value for name, value, _ in bench.quick(0)}
    print(figures)
    return figures


def test_list_names_every_bench_on_a_line_of_its_own() -> None:
    done = started("--list")
    named = [line.split()[0] for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert len(set(named)) == len(named) > 40
    sys.path.insert(0, str(FOLDER))
    try:
        assert set(named) == set(importlib.import_module("benchmark_page").PAGE_ORDER)
    finally:
        sys.path.remove(str(FOLDER))
    assert {path.stem for path in FOLDER.glob("*.py")} >= set(named)


@pytest.mark.bench
def test_every_bench_can_be_imported_as_the_runner_does_it() -> None:
    code = (
        "import importlib, runpy, sys; runner = runpy.run_path(sys.argv[1]); runner['find_neighbours']();"
        "[importlib.import_module(name) for name in runner['BENCHES']]"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, RUN], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_unknown_bench_is_named() -> None:
    done = started("leeks")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no bench named leeks; known: leaks, ")


def test_a_bench_without_its_material_is_skipped_with_the_reason(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, RUN, "day_one"],
        env=os.environ | {"SHARED_DATA_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert f"skipped: day_one: the beds are not in {tmp_path}" in done.stderr


@pytest.mark.parametrize("bench", ["run"], indirect=True)
def test_a_row_that_is_not_measured_again_stays(bench: ModuleType) -> None:
    old = bench.Row(
        "overhead", "simulated_ratio", 1.2, "of the bare call", 0, "2026-01-02", "a box; Python 3.11.1"
    )
    new = bench.Row("acks", "lost", 3.0, "transitions", 7, "2026-02-03", "another box; Python 3.12.1")
    page = bench.rendered(bench.rendered("", [old], {"overhead": "| more |"}), [new], {})
    assert (
        "| overhead | simulated_ratio | 1.2 | of the bare call | <= 1.25 | yes | 0 | 2026-01-02 | A |" in page
    )
    assert "| acks | lost | 3 | transitions | = 0 | **no** | 7 | 2026-02-03 | B |" in page
    assert "- A: a box; Python 3.11.1\n- B: another box; Python 3.12.1\n" in page
    assert page.endswith("\n## overhead\n\n| more |\n")
    assert bench.rendered(page, [new], {}) == page
    assert [
        line for line in bench.summary(page).splitlines() if line.endswith("(Machine B, 2026-02-03.)")
    ] == [f"- **acks**: {bench.BENCHES['acks']} `lost` 3 (goal = 0) **missed**. (Machine B, 2026-02-03.)"]


@pytest.mark.parametrize("bench", ["run"], indirect=True)
def test_a_share_of_nothing_is_no_0_and_is_read_back_as_such(bench: ModuleType) -> None:
    shares = importlib.import_module("shares")
    row = bench.Row("truth", "exact", shares.share(0, 0), "share", 0, "2026-11-21", "A machine")
    page = bench.rendered("", [row], {})
    assert "| truth | exact | - | share |" in page
    assert bench.rendered(page, [], {}) == page
    assert (shares.share(0, 4), shares.in_a_cell(shares.share(0, 0))) == (0.0, "-")
    assert shares.worst([1.0, shares.share(0, 0)]) == 0.0


@pytest.mark.parametrize("bench", ["run"], indirect=True)
def test_a_missed_goal_is_code_one_after_all_figures_were_printed(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Bad:
        @staticmethod
        def measure(seed: int) -> list[tuple[str, float, str]]:
            return [("growth_mb", 50.5, "MB"), ("growth_files", 0, "files")]

    monkeypatch.setattr(bench, "TABLE", tmp_path / "figures.md")
    monkeypatch.setattr(bench, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setitem(sys.modules, "soak", Bad)
    assert bench.main(["soak"]) == 1
    said = capsys.readouterr()
    assert said.out == "growth_mb 50.5 MB\ngrowth_files 0 files\n"
    assert "missed: soak growth_mb is 50.5, its goal < 50\n" in said.err
    assert not bench.TABLE.exists()
    assert bench.main(["soak", "--write"]) == 1
    assert "| soak | growth_mb | 50.5 | MB | < 50 | **no** |" in bench.TABLE.read_text("utf-8")


@pytest.mark.parametrize("bench", ["call_path"], indirect=True)
def test_each_function_of_the_kit_is_counted_once_for_each_call_of_it(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resumed() -> Iterator[int]:
        yield from (1, 2, 3)

    monkeypatch.setattr(bench, "ROOT", __file__)
    entered: list[CodeType] = []
    with bench.counting(entered):
        list(resumed())
        list(resumed())
        json.dumps([])  # not the kit's
    assert [code.co_name for code in entered] == ["resumed", "resumed"]


@pytest.mark.parametrize("bench", ["soak"], indirect=True)
def test_growth_is_seen(bench: ModuleType) -> None:
    grown = [bench.Sample(100 + number / 50, 5 + number // 1000, 70, 300) for number in range(5000)]
    assert bench.growth(grown, 1000, left=2) == [
        ("growth_mb", pytest.approx(79.4, abs=2), "MB"),
        ("growth_files", 4, "files"),
        ("growth_threads", 2, "threads and tasks"),
    ]


@pytest.mark.bench
@pytest.mark.parametrize("bench", IN_SMALL, indirect=True)
def test_a_bench_in_small_meets_its_goals(bench: ModuleType) -> None:
    assert IN_SMALL[bench.__name__](figures_in_small(bench))


@pytest.mark.bench
@pytest.mark.nightly
@pytest.mark.parametrize("bench", AT_NIGHT, indirect=True)
def test_a_long_bench_in_small_meets_its_goals(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DREAMGYM_BENCH", raising=False)
    assert AT_NIGHT[bench.__name__](figures_in_small(bench))


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["call_path"], indirect=True)
def test_a_recorded_call_goes_through_few_functions(bench: ModuleType) -> None:
    figures = {name: value for name, value, _ in bench.measure(0)}
    assert 0 < figures["files"] < figures["calls"] <= 90


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["gpu_step"], indirect=True)
def test_a_grown_policy_scores_tokens_as_the_small_one_does(bench: ModuleType) -> None:
    import torch

    from dreamgym_kit.adapters.models.folders import load_model
    from dreamgym_kit.recipes.nano.build import WEIGHTS

    small, growing = load_model(WEIGHTS).eval(), importlib.import_module("grown")
    ids = torch.randint(3, 700, (2, 60), generator=torch.Generator().manual_seed(1))
    large = growing.grown(load_model(WEIGHTS), bench.SMALL, seed=0, device="cpu")
    with torch.no_grad():
        logits, same = small(ids).logits, large(ids).logits
        large.lm_head.weight += 1e-3
        other = large(ids).logits
    assert large.num_parameters() > 2 * small.num_parameters()
    assert float((same - logits).abs().max()) < 1e-3 < float((other - logits).abs().max())


@pytest.mark.browser
@pytest.mark.parametrize("bench", ["page"], indirect=True)
@pytest.mark.nightly
def test_the_page_in_small_grows_little_and_lets_nothing_in_or_out(bench: ModuleType) -> None:
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    figures = figures_in_small(bench)
    assert figures["size_ratio"] <= 1.5
    assert (figures["xss"], figures["requests"]) == (0, 0)
    assert min(figures["open_1000_s"], figures["filter_1000_ms"]) > 0


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["weaviate_buffer"], indirect=True)
def test_a_buffer_on_weaviates_double_in_small_meets_its_goals(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("weaviate_double", reason="weaviate-client is not installed")
    figures = figures_in_small(bench)
    assert figures["faults_wrong"] == figures["double_differs"] == 0
    assert figures["rows_unfindable"] == figures["rows_unfindable_repaired"] == 0
    assert min(figures["overlap_hybrid"], figures["overlap_words"]) >= 0.98
    assert figures["requests_per_exact"] == 1
    assert figures["requests_per_hybrid"] <= 3
    assert figures["rows_read_per_hybrid"] <= 16
    assert figures["pages_per_row"] <= 1.1
    from dreamgym_kit.adapters.stores.weaviate_tenant import Tenant

    monkeypatch.setattr(Tenant, "resend", Tenant.send)  # a row put again as it was enters no index
    with bench._double() as (double, opened):
        assert bench.unfindable(double, opened, 2, repair=False) > 0


@pytest.mark.parametrize("bench", ["parts"], indirect=True)
def test_a_finished_part_is_not_measured_again_until_code_or_data_change(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    row = tmp_path / "data" / "rows.jsonl"
    row.write_text("1")
    monkeypatch.setenv("DREAMGYM_BENCH", str(tmp_path / "kept"))
    measured: list[str] = []

    def figure() -> int:
        measured.append(row.read_text())
        return len(measured)

    def again() -> int:
        bench.digest.cache_clear()
        with bench.kept("x", tmp_path / "data") as folder:
            return int(bench.part(folder, "a", figure))

    assert [again(), again()] == [1, 1]
    row.write_text("2")
    assert [again(), again()] == [2, 2]
    monkeypatch.delenv("DREAMGYM_BENCH")
    assert again() == 3
    assert measured == ["1", "2", "2"]


@pytest.mark.parametrize("bench", ["learns"], indirect=True)
def test_what_was_measured_of_a_seed_is_not_measured_again(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    solved = {"start": 8, "dream": 16, "real": 16, "shuffled": 8}
    for seed in (3, 4):
        for part, count in solved.items():
            place = tmp_path / f"seed-{seed}" / f"part-{part}"
            place.mkdir(parents=True)
            rows = {f"t{at}": [int(at < count), int(at >= count), 0] for at in range(20)}
            result = {"outcomes": rows, "real_calls": 900 if part == "real" else 0, "steps": 40}
            (place / "result.json").write_text(json.dumps(result))
    monkeypatch.setattr(bench, "kept", lambda _: nullcontext(tmp_path))
    figures = {name: value for name, value, _ in bench.figures([3, 4])}
    assert (figures["start"], figures["dream"], figures["real"]) == (0.4, 0.8, 0.8)
    assert figures["gain_points"] == pytest.approx(40)
    assert 0 < figures["gain_low"] < 40
    assert (figures["gain_ratio"], figures["real_calls_in_dream"], figures["shuffled_gain"]) == (1, 0, 0)
    assert "| 4 | 0.400 | 0.800 | 0.800 | 0.400 | +40.0 (" in bench.table()


@pytest.mark.bench
@pytest.mark.nightly
@pytest.mark.parametrize("bench", ["divergence"], indirect=True)
def test_a_tool_that_changed_is_caught_in_small(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from dreamgym_kit.supervision import divergence

    figures = figures_in_small(bench)
    assert figures["caught_after"] <= 20
    assert (figures["writes_after"], figures["false_stops"]) == (0, 0)
    monkeypatch.setattr(divergence, "READS_MOST", 1e300)  # a test that never speaks
    blind = bench.figures(0, bench.CHANGES[4:5], worlds=9, unchanged=0)
    assert blind[0][1] > 1000


@pytest.mark.bench
@pytest.mark.nightly
@pytest.mark.parametrize("bench", ["advice"], indirect=True)
def test_lines_of_advice_do_what_they_foretell_and_a_wrong_one_is_counted(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = figures_in_small(bench)
    assert figures["lines"] >= 4
    assert figures["wrong"] == 0
    for then in bench.CHECKS:
        monkeypatch.setitem(bench.CHECKS, then, bench.reached)
    planted = {name: value for name, value, _ in bench.figures(bench.singles(["model"]))}
    assert planted["wrong"] == planted["lines"] > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of the scorer, which is not ours
@pytest.mark.parametrize("bench", ["beds"], indirect=True)
def test_the_bed_in_this_repository_is_scored_as_a_dry_run_would_answer_it(bench: ModuleType) -> None:
    rows = bench.figures(bench.SMALL, ["workbench"], train=30, splits=["unseen"])
    values = {name: value for name, value, _ in rows}
    assert values["workbench_crawl_coverage"] > values["workbench_unseen_coverage"] > 0
    assert values["workbench_crawl_exact"] >= 0.9
    assert values["wrong_at_80"] == 0


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["probes"], indirect=True)
def test_a_dream_does_not_lie_to_probes_answers_their_twins_and_a_lie_is_counted(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {name: value for name, value, _ in bench.measure(0)}
    assert values["asked"] >= 36
    assert values["wrong"] == 0
    assert values["twins_answered"] >= 0.8
    believed = {"another's loan", "unknown approver", "over the limit"}
    monkeypatch.setattr(bench, "PROBES", [one for one in bench.PROBES if one.kind in believed])
    monkeypatch.setattr(ProgramEpisode, "_breaks_a_law", lambda *_: False)
    monkeypatch.setattr(ToolProgram, "accounts_for", lambda *_: True)
    assert {name: value for name, value, _ in bench.measure(0)}["wrong"] >= 2


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["day_one"], indirect=True)
def test_day_one_is_answered_and_a_model_that_contradicts_itself_is_not(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {name: value for name, value, _ in bench.quick(0)}
    assert figures["answered"] == figures["whole"] == 1
    assert figures["questions_per_decision"] <= 1.05
    assert figures["cached_share"] >= 0.75

    class Contradicting(bench.FictionDouble):
        def __init__(self) -> None:
            super().__init__()
            self.spoil = self._spoilt

        def _spoilt(self, question: Any, reply: dict[str, Any]) -> dict[str, Any]:
            if isinstance(reply.get("answer"), dict):
                reply["answer"] |= {"id": "X1", "level": len(self.questions)}
            return reply

    monkeypatch.setattr(bench, "FictionDouble", Contradicting)
    assert {name: value for name, value, _ in bench.quick(0)}["whole"] < 0.9


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["effects"], indirect=True)
def test_effects_are_guessed_safely_and_a_guess_of_all_or_none_is_caught(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {name: value for name, value, _ in bench.quick(0)}
    assert figures["unsafe"] == 0
    assert max(figures["overcautious"], figures["overcautious_lists"]) <= 0.1
    monkeypatch.setattr(bench, "guess_effect", lambda name, _: (bench.Effect.READ, name))
    assert dict(row[:2] for row in bench.quick(0))["unsafe"] > 50
    monkeypatch.setattr(bench, "guess_effect", lambda name, _: (bench.Effect.DESTRUCTIVE, name))
    assert dict(row[:2] for row in bench.quick(0))["overcautious"] == 1


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["findings_foreign"], indirect=True)
def test_planted_faults_are_found_in_episodes_of_others_and_blind_detectors_find_none(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {name: value for name, value, _ in bench.quick(0)}
    assert figures["found"] >= 0.9
    assert figures["false_alarms"] <= 0.01
    monkeypatch.setattr(bench, "BUILT_IN", {})
    assert dict(row[:2] for row in bench.quick(0))["found"] == 0
    monkeypatch.setattr(bench, "BUILT_IN", {"shouts": lambda case: [bench.Finding("shouts", "x", (1,))]})
    assert dict(row[:2] for row in bench.quick(0))["false_alarms"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("bench", ["replays"], indirect=True)
def test_recordings_of_random_graphs_replay_and_a_changed_world_is_noticed(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {name: value for name, value, _ in bench.quick(0)}
    assert (figures["graphs"], figures["different"]) == (bench.QUICK, 0)
    monkeypatch.setattr(bench.Transition, "writes", property(lambda row: row.effect.changes_environment))
    monkeypatch.setattr(bench.CallLog, "_run", lambda log, turn, call_id: turn)
    # each of these three shows it, where its threads do not happen to take turns as the recording did
    assert dict(row[:2] for row in bench.figures((4, 6, 8), 0))["different"] > 0
