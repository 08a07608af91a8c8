"""The runner's own promises, and each whole-run bench in small: it meets its goal, and it can miss it."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.model import ToolProgram

FOLDER = Path(__file__).parent
RUN = FOLDER / "run.py"


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, RUN, *arguments], capture_output=True, text=True, check=False)


def test_list_names_every_bench_on_a_line_of_its_own() -> None:
    done = started("--list")
    named = [line.split()[0] for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert len(set(named)) == len(named) > 50
    sys.path.insert(0, str(FOLDER))
    try:
        assert set(named) == set(importlib.import_module("benchmark_page").PAGE_ORDER)
    finally:
        sys.path.remove(str(FOLDER))
    assert {path.stem for path in FOLDER.glob("*.py")} >= set(named)


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
        [sys.executable, RUN, "foreign_tools"],
        env=os.environ | {"DREAMGYM_BFCL": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert f"skipped: foreign_tools: DREAMGYM_BFCL={tmp_path} holds no bfcl_eval/data/" in done.stderr


@pytest.mark.parametrize("bench", ["run"], indirect=True)
def test_a_row_that_is_not_measured_again_stays(bench: ModuleType) -> None:
    old = bench.Row(
        "help", "typer_ratio", 1.25, "of a bare typer app", 0, "2026-01-02", "a box; Python 3.11.1"
    )
    new = bench.Row("acks", "lost", 3.0, "transitions", 7, "2026-02-03", "another box; Python 3.12.1")
    page = bench.rendered(bench.rendered("", [old], {"help": "| more |"}), [new], {})
    assert "| help | typer_ratio | 1.25 | of a bare typer app | <= 1.5 | yes | 0 | 2026-01-02 | A |" in page
    assert "| acks | lost | 3 | transitions | = 0 | **no** | 7 | 2026-02-03 | B |" in page
    assert "- A: a box; Python 3.11.1\n- B: another box; Python 3.12.1\n" in page
    assert page.endswith("\n## help\n\n| more |\n")
    assert bench.rendered(page, [new], {}) == page
    assert [
        line for line in bench.summary(page).splitlines() if line.endswith("(Machine B, 2026-02-03.)")
    ] == [f"- **acks**: {bench.BENCHES['acks']} `lost` 3 (goal = 0) **missed**. (Machine B, 2026-02-03.)"]


@pytest.mark.parametrize("bench", ["run"], indirect=True)
def test_a_share_of_nothing_is_no_0_and_is_read_back_as_such(bench: ModuleType) -> None:
    shares = importlib.import_module("shares")
    row = bench.Row("crawl", "exact", shares.share(0, 0), "share", 0, "2026-11-21", "A machine")
    page = bench.rendered("", [row], {})
    assert "| crawl | exact | - | share |" in page
    assert bench.rendered(page, [], {}) == page
    assert (shares.share(0, 4), shares.in_a_cell(shares.share(0, 0))) == (0.0, "-")
    assert shares.worst([1.0, shares.share(0, 0)]) == 0.0


@pytest.mark.parametrize("bench", ["run"], indirect=True)
def test_a_tiny_figure_is_told_from_none(bench: ModuleType) -> None:
    tiny = bench.Row("update_exact", "max_abs_diff", 7e-9, "", 0, "2026-01-02", "a box; Python 3.11.1")
    page = bench.rendered("", [tiny], {})
    assert "| update_exact | max_abs_diff | 7e-09 |  | <= 1e-07 | yes | 0 | 2026-01-02 | A |" in page
    other = bench.Row("acks", "lost", 0.0, "transitions", 7, "2026-01-02", "a box; Python 3.11.1")
    assert "| 7e-09 |" in bench.rendered(page, [other], {})


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


@pytest.mark.parametrize("bench", ["help"], indirect=True)
def test_a_package_that_help_imports_is_seen(bench: ModuleType, tmp_path: Path) -> None:
    (script := tmp_path / "heavy.py").write_text("import pydantic\n")
    assert "pydantic" in bench.imported(script)


@pytest.mark.parametrize("bench", ["call_path"], indirect=True)
def test_each_function_of_the_kit_is_counted_once_for_each_call_of_it(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resumed() -> Iterator[int]:
        yield from (1, 2, 3)

    monkeypatch.setattr(bench, "ROOT", __file__)
    with (counter := bench.CallCounter()):
        list(resumed())
        list(resumed())
        json.dumps([])  # not the kit's
    assert [code.co_name for code in counter.entered] == ["resumed", "resumed"]


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["call_path"], indirect=True)
def test_a_recorded_call_goes_through_few_functions(bench: ModuleType) -> None:
    figures = {name: value for name, value, _ in bench.measure(0)}
    print(figures)
    assert 0 < figures["files"] < figures["calls"] <= 90


@pytest.mark.parametrize("bench", ["soak"], indirect=True)
def test_growth_is_seen(bench: ModuleType) -> None:
    grown = [bench.Sample(100 + number / 50, 5 + number // 1000, 70, 300) for number in range(5000)]
    assert bench.growth(grown, 1000, left=2) == [
        ("growth_mb", pytest.approx(79.4, abs=2), "MB"),
        ("growth_files", 4, "files"),
        ("growth_threads", 2, "threads and tasks"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("bench", ["capture"], indirect=True)
def test_a_token_that_is_lost_or_foreign_is_seen(bench: ModuleType) -> None:
    from dreamgym_kit.chat import SampledTokens
    from dreamgym_kit.turns import Sample

    said = [
        SampledTokens((1, 2), (7, 8), (-0.1, -0.2), "w"),
        SampledTokens((1, 2, 7, 8, 3), (9,), (-0.3,), "w"),
    ]
    whole = Sample("e", (1, 2, 7, 8, 3, 9), 2, (1, 1, 0, 1), (-0.1, -0.2, 0.0, -0.3), (0, 1), ("w",))
    assert bench.held_against([whole], said) == (0, 0)
    assert bench.held_against([], said) == (3, 0)
    assert bench.held_against([whole, whole], said) == (0, 3)
    unmasked = replace(whole, mask=(1, 1, 1, 1), logprobs=(-0.1, -0.2, -0.5, -0.3))
    assert bench.held_against([unmasked], said) == (3, 4)
    assert bench.held_against([replace(whole, logprobs=(-0.1, -0.9, 0.0, -0.3))], said) == (2, 2)


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["contradictions"], indirect=True)
def test_no_lie_is_accepted_and_without_the_check_the_scorer_sees_most(bench: ModuleType) -> None:
    figures = {name: value for name, value, _ in bench.quick(0)}
    assert figures["accepted"] == 0
    assert figures["honest_accepted"] == 1
    assert figures["classes_scored"] >= 12


@pytest.mark.bench
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["resume", "capture"])
def test_a_bench_in_small_meets_its_goal(name: str) -> None:
    done = started(name, "--quick")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


TIMED = {  # what they measure depends on the machine: here they only have to work
    "help": {"typer_ratio"},
    "orchestration": {"share", "share_sync", "ideal_share_1s"},
    "tokens": {"at_1", "hf_at_1", "at_8", "hf_at_8"},
    "step_cost": {"update_ratio", "update_cpu"},
    "gpu_step": {
        "step_s",
        "generation_share",
        "sampling_rate",
        "success_first",
        "update_fp32",
        "update_bf16",
    },
    "dos": {"worst_s", "checks"},
    "page": {"open_1000_s", "open_10000_s", "filter_1000_ms", "filter_10000_ms"},
}


@pytest.mark.bench
@pytest.mark.parametrize(
    ("bench", "smaller"),
    [
        ("help", {"rounds": 1}),
        ("dos", None),
        pytest.param("orchestration", {"episodes": 16, "rounds": 1, "waves": 1}, marks=pytest.mark.nightly),
        pytest.param("tokens", None, marks=pytest.mark.nightly),
        pytest.param("step_cost", None, marks=pytest.mark.nightly),
        pytest.param("gpu_step", None, marks=pytest.mark.nightly),
    ],
    indirect=["bench"],
)
def test_a_timed_bench_in_small_gives_its_figures(bench: ModuleType, smaller: dict[str, int] | None) -> None:
    measured = bench.quick(0) if smaller is None else bench.figures(**smaller)
    figures = {name: value for name, value, _ in measured}
    print(figures)
    assert all(figures[name] > 0 for name in TIMED[bench.__name__])  # a difference may be below 0


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
    figures = {name: value for name, value, _ in bench.quick(0)}
    print(figures)
    assert figures["size_ratio"] <= 1.5
    assert (figures["xss"], figures["requests"]) == (0, 0)
    assert figures.keys() >= TIMED["page"]


@pytest.mark.bench
@pytest.mark.nightly
@pytest.mark.parametrize("bench", ["crawl"], indirect=True)
def test_a_crawl_in_small_adds_to_the_dream(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WORLDS", 8)
    monkeypatch.setattr(bench, "DREAMED", 3)
    figures = {name: value for name, value, _ in bench.measure(0)}
    print(figures)
    assert figures["coverage_tasks_crawled"] > figures["coverage_tasks_unseen"] + 0.2
    assert figures["calls_per_world"] < 60


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["logprobs"], indirect=True)
def test_sampled_logprobs_in_small_are_those_recomputed(bench: ModuleType) -> None:
    figures = {name: value for name, value, _ in bench.quick(0)}
    print(figures)
    assert figures["max_abs_diff"] <= 1e-4
    assert min(figures["forks"], figures["merged"]) > 0


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["disconnects"], indirect=True)
@pytest.mark.nightly
def test_disconnects_in_small_lose_nothing_and_a_lost_spool_is_seen(bench: ModuleType) -> None:
    pytest.importorskip("weaviate_double", reason="weaviate-client is not installed")
    trial = bench.run_trial(0, 5)
    print(trial)
    assert (trial.disconnects, trial.kills, trial.lost, trial.doubled) == (5, 2, 0, 0)
    assert min(trial.acknowledged, trial.waited) > 0
    assert bench.run_trial(0, 1, store="ForgetsDouble").lost > 0


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["disconnects"], indirect=True)
def test_killed_deliveries_in_small_lose_and_double_nothing(bench: ModuleType) -> None:
    trial = bench.kill_flushes(0, 3)
    print(trial)
    assert (trial.kills, trial.acknowledged, trial.lost, trial.doubled) == (3, 900, 0, 0)


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["weaviate_buffer"], indirect=True)
def test_a_buffer_on_weaviates_double_in_small_meets_its_goals(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("weaviate_double", reason="weaviate-client is not installed")
    figures = {name: value for name, value, _ in bench.quick(0)}
    print(figures)
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


@pytest.mark.bench
@pytest.mark.nightly
@pytest.mark.parametrize("bench", ["update_exact"], indirect=True)
def test_updates_in_small_are_exact(bench: ModuleType) -> None:
    figures = {name: value for name, value, _ in bench.quick(0)}
    print(figures)
    assert figures["max_abs_diff"] <= 1e-7
    assert figures["sgd_change"] > 1e-3


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


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["learns"], indirect=True)
@pytest.mark.nightly
def test_learning_in_small_calls_no_real_tool(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DREAMGYM_BENCH", raising=False)
    figures = {name: value for name, value, _ in bench.quick(0)}
    print(figures)
    assert figures["real_calls_in_dream"] == 0
    assert 0 < figures["start"] < 1


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


@pytest.mark.parametrize("bench", ["promotion"], indirect=True)
def test_a_rule_that_promotes_by_a_bare_difference_is_caught(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    import random

    from dreamgym_kit.trust.comparison import Promotion, promotion

    draw = random.Random(3)
    worlds = range(997, 997 + 27)
    even = {world: [draw.random() < 0.5 for _ in range(12)] for world in worlds}
    monkeypatch.setattr(bench, "family_of", lambda world: "one")
    monkeypatch.setattr(
        bench, "pool", lambda noise, seed, size: even if not noise else dict.fromkeys(even, [False] * 12)
    )
    size = replace(bench.SMALL, comparisons=20, retried=1)
    figures = {name: value for name, value, _ in bench.figures(0, size)}
    assert figures["null_promoted"] <= 5
    assert figures["regressions_promoted"] == 0
    assert figures["improvements_promoted"] == 100

    class Bare(Promotion):
        allowed = property(lambda self: self.whole.change > 0)

    def bare(*sides: object, look: int = 1) -> Promotion:
        found = promotion(*sides, look=look)
        return Bare(found.whole, found.strict, found.families, look)

    monkeypatch.setattr(bench, "promotion", bare)
    assert {name: value for name, value, _ in bench.figures(0, size)}["null_promoted"] > 20


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["promotion"], indirect=True)
@pytest.mark.nightly
def test_real_work_in_small_promotes_nothing_by_chance(bench: ModuleType) -> None:
    figures = {name: value for name, value, _ in bench.quick(0)}
    print(figures)
    assert figures["null_promoted"] <= 5  # of 20: not even one
    assert figures["regressions_promoted"] <= 1  # of few tasks
    assert figures["regression_22"] < 0


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["experience"], indirect=True)
@pytest.mark.nightly
def test_the_learned_model_in_small_adds_to_what_was_mined(bench: ModuleType) -> None:
    figures = {name: value for name, value, _ in bench.quick(0)}
    print(figures)
    assert figures["exact_layered"] > figures["exact_composed"] > figures["exact_recorded"]
    assert figures["exact_nano_writes"] > figures["exact_composed_writes"]


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["s2r"], indirect=True)
@pytest.mark.nightly
def test_the_way_to_the_real_tools_in_small_keeps_its_budget(bench: ModuleType) -> None:
    figures = {name: value for name, value, _ in bench.quick(0)}
    print(figures)
    assert 0 < figures["real_calls"] <= 60
    assert figures["steps"] >= 1


@pytest.mark.parametrize("bench", ["s2r"], indirect=True)
def test_ratios_to_real_learning_come_from_what_was_kept(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    solved = {"start": 8, "dream": 15, "long": 16, "real": 16, "s2r": 18, "real_small": 9}
    calls = {"real": 1000, "s2r": 59, "real_small": 60}
    for part, count in solved.items():
        place = bench.learns._place(tmp_path / "seed-3", part)
        (place / "training" / "weights" / "step-000040").mkdir(parents=True)
        rows = {f"t{at}": [int(at < count), int(at >= count), 0] for at in range(20)}
        result = {"outcomes": rows, "real_calls": calls.get(part, 0), "steps": 40}
        (place / "result.json").write_text(json.dumps(result))
    (tmp_path / "seed-3" / "model.txt").write_text("a model")
    monkeypatch.setattr(bench, "kept", lambda _: nullcontext(tmp_path))
    figures = {name: value for name, value, _ in bench.figures([3])}
    assert figures["ratio_at_6_percent"] == pytest.approx(18 / 16)
    assert figures["ratio_at_equal_calls"] == pytest.approx(2)
    assert figures["real_calls"] == pytest.approx(0.059)


@pytest.mark.bench
@pytest.mark.nightly
@pytest.mark.parametrize("bench", ["divergence"], indirect=True)
def test_a_tool_that_changed_is_caught_in_small(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from dreamgym_kit.supervision import divergence

    figures = {name: value for name, value, _ in bench.quick(0)}
    print(figures)
    assert figures["caught_after"] <= 20
    assert (figures["writes_after"], figures["false_stops"]) == (0, 0)
    monkeypatch.setattr(divergence, "READS_MOST", 1e300)  # a test that never speaks
    blind = bench.figures(0, bench.CHANGES[4:5], worlds=9, unchanged=0)
    assert blind[0][1] > 1000


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["approval"], indirect=True)
def test_no_way_gets_a_write_past_its_approval(bench: ModuleType) -> None:
    figures = {name: value for name, value, _ in bench.quick(0)}
    print(figures)
    assert figures["unapproved"] == 0
    assert figures["attempts"] > 30
    assert figures["approved"] > 5


@pytest.mark.ray
@pytest.mark.parametrize("bench", ["ray_kill"], indirect=True)
@pytest.mark.nightly
def test_killed_workers_lose_no_episode_and_double_none(bench: ModuleType) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    trial = bench.run_trial(0, kills=1)
    assert (trial.kills, trial.lost, trial.doubled) == (1, 0, 0)
    assert trial.again > 0
    planted = bench.run_trial(0, kills=1, repeatable=False)
    assert planted.lost > 0


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["verdict_words"], indirect=True)
def test_planted_runs_have_the_right_verdicts_and_a_wrong_one_is_counted(bench: ModuleType) -> None:
    figures = {name: value for name, value, _ in bench.quick(0)}
    print(figures)
    assert figures["runs"] >= 8
    assert figures["wrong"] == 0
    (passes,) = [case for case in bench.CASES if case.name == "passes"]
    planted = replace(passes, verdict="failed", faces=("python",))
    assert [value for name, value, _ in bench.figures([planted], signals=False) if name == "wrong"] == [1]


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["advice"], indirect=True)
def test_lines_of_advice_do_what_they_foretell_and_a_wrong_one_is_counted(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {name: value for name, value, _ in bench.quick(0)}
    print(figures)
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
            if question != "entities" and isinstance(reply["answer"], dict):
                reply["answer"] |= {"id": "X1", "level": len(self.questions)}
            return reply

    monkeypatch.setattr(bench, "FictionDouble", Contradicting)
    assert {name: value for name, value, _ in bench.quick(0)}["whole"] < 0.9


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
    assert dict(row[:2] for row in bench.quick(0))["different"] > 2
