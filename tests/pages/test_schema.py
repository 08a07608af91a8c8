"""Both blocks of data, against a strict model of what the script may read."""

from collections.abc import Iterable
from pathlib import Path

from each_row import each_row
from pages.payloads import HIDDEN, PAYLOADS
from pages.runs import call, double_refund, episode, hostile, many, run_directory, small_run
from pages.schema import DETAILS, Report, blocks, unpacked

from dreamgym_kit.report.page.gathering import Steps, packed
from dreamgym_kit.report.page.writing import page_of
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.types import Episode, Verdict

LONG = "x" * 300


def html_of(root: Path, episodes: Iterable[Episode], **matters: object) -> str:
    return page_of(RunDirectory.open(run_directory(root, episodes, **matters)), place="runs/a-run").html


def sibling_run() -> list[Episode]:
    return [episode("t", number) for number in range(1, 65)]


@each_row(
    "episodes",
    [
        [],
        [double_refund()],
        small_run(),
        [episode("u", verdict=Verdict.INCONCLUSIVE, transitions=())],
        [episode(LONG, transitions=(call(1, LONG, {LONG: LONG}),))],
        [episode("big", transitions=(call(1, "read", {}, "y" * 10_000_000),))],
        [episode("long", transitions=tuple(call(n, "read", {"n": n}) for n in range(1, 201)))],
        sibling_run(),
        list(many(120)),
        list(hostile([*PAYLOADS[:30], HIDDEN])),
    ],
    ids=[
        *("empty", "one", "small", "undecided", "long-ids"),
        *("ten-megabytes", "200-steps", "64-siblings", "many", "hostile"),
    ],
)
def test_every_run_gives_data_of_the_schema(tmp_path: Path, episodes: list[Episode]) -> None:
    html = html_of(tmp_path, episodes)
    report = Report.model_validate(blocks(html)[0])
    details = DETAILS.validate_python(unpacked(html))
    assert [one.id for one in details if one is not None] == [line.id for line in report.episodes]
    assert len(details) == len(episodes)
    assert len(html) < 1_500_000  # what is long is cut


def test_a_recording_run_says_so(tmp_path: Path) -> None:
    report = Report.model_validate(blocks(html_of(tmp_path, small_run(), mode="record"))[0])
    assert report.kind == "record"
    assert ("Side effects", "made: refund_payment 2; 1 of these wrong") in report.verdict.facts


def test_what_a_page_has_no_room_for_is_the_steps_of_dull_successes(tmp_path: Path) -> None:
    episodes = [Steps.of({"id": str(n), "x": str(n) * 50}, dull=n in (1, 3)) for n in range(5)]
    whole = sum(len(one.squeezed) for one in episodes) * 4 / 3
    assert packed(episodes).left_out == 0
    less = packed(episodes, most_bytes=int(whole * 0.7))
    assert less.left_out == 2
    assert packed(episodes, most_bytes=0).left_out == 5


def test_all_steps_stay_in_the_order_of_the_episodes(tmp_path: Path) -> None:
    html = html_of(tmp_path, reversed(list(many(170))))
    assert [one["id"] for one in unpacked(html)] == [one["id"] for one in blocks(html)[0]["episodes"]]
