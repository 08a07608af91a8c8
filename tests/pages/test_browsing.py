"""The page in a browser: filter, open, link, keys, phone, dark, print; no console line, no request."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pages.blocks import blocks
from pages.conftest import Opener, Shown
from pages.runs import call, double_refund, episode, many, run_directory, small_run

from dreamgym_kit.report.page.writing import page_of
from dreamgym_kit.report.summary import summarize
from dreamgym_kit.report.terminal import render_run
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.types import Effect, UserTurn, Verdict

pytestmark = pytest.mark.browser

TITLE = "INCONCLUSIVE (unfinished) 1 passed, 1 failed, 2 inconclusive, 0 errors, desk 7f3a"
ALL = ["refund-1.1", "where-2.1", "where-2.2", "refund-1.2"]


@pytest.fixture
def small(open_page: Opener) -> Shown:
    return open_page(small_run())


def test_the_verdict_stands_first(small: Shown) -> None:
    assert small.text("h1") == "1 passed, 1 failed, 2 inconclusive, 0 errors"
    assert small.text(".stamp") == "INCONCLUSIVE (unfinished)"
    assert small.ids() == ALL
    assert small.page.title() == TITLE
    small.quiet()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ALL),
        ("where-2", ["where-2.1", "where-2.2"]),
        ("tool:refund_payment", ["refund-1.1"]),
        ("-tool:refund_payment", ["where-2.1", "where-2.2", "refund-1.2"]),
        ("verdict:inconclusive task:where-2", ["where-2.1", "where-2.2"]),
        ("finding:any", ["refund-1.1"]),
        ("finding:repeated", ["refund-1.1"]),
        ("source:unanswered", ["where-2.1", "where-2.2"]),
        ("source:fault", ["refund-1.1"]),
        ("effect:destructive", ["refund-1.1"]),
        ("stop:abstained", ["where-2.1", "where-2.2"]),
        ('"mat arrived"', ["refund-1.1", "refund-1.2"]),  # the words of their task
        ('-"mat arrived"', ["where-2.1", "where-2.2"]),
        ("at_s dur_s", []),  # names of our own fields are no words of the run
        ("no recording of track_parcel", ["where-2.1", "where-2.2"]),  # stands in the packed steps only
        ("nothing:here", []),
        ("__proto__:x constructor:x", []),
        ("MAT ARR", ["refund-1.1", "refund-1.2"]),
    ],
)
def test_a_line_of_words_finds_episodes_and_survives_in_the_link(
    small: Shown, query: str, found: list[str]
) -> None:
    small.page.click("#q")
    small.page.fill("#q", query)
    small.settle()
    assert small.ids() == found
    if not found:
        assert small.text("#counted") == "No episode is like that."
    address = small.url
    small.page.goto("about:blank")
    small.page.goto(address)
    small.settle()
    assert (small.ids(), small.page.input_value("#q")) == (found, query)


def test_buttons_and_menus_filter(small: Shown) -> None:
    small.page.click("button[data-v=inconclusive]")
    assert small.ids() == ["where-2.1", "where-2.2"]
    assert small.page.get_attribute("button[data-v=inconclusive]", "aria-pressed") == "true"
    small.page.click("button[data-v='']")
    small.page.select_option("select[aria-label=Tool]", "get_payment")
    assert small.ids() == ["refund-1.1", "refund-1.2"]
    assert small.url.endswith("#tool=get_payment")


def test_an_episode_opens_with_its_calls_changes_and_siblings(small: Shown) -> None:
    small.page.click("text=refund-1.1 >> nth=-1")
    small.settle()
    text = small.text("#episode")
    for told in (
        "My mat arrived broken.",
        "refunded P1 twice",
        "planned fault: timeout applied",
        "refund_payment P1 called twice",
        "The repeats differ at the first call",
        "rests on 2 recordings",
    ):
        assert told in text
    assert (
        " ".join(small.text("#row-3 .led").split()) == "P1 status captured → refunded refunded 0.00 → 176.00"
    )
    assert small.page.title() == f"refund-1.1, {TITLE}"
    small.quiet()


@pytest.mark.parametrize(
    "text",
    [
        '{"at":"16:38:41","order":12345678901234567890,"price":1.0,"said":"a,b:1 \\"no\\""}',
        json.dumps({"at": "16:38:41", "rows": [{"id": n, "price": n / 7} for n in range(20)], "none": {}}),
    ],
    ids=["short", "long"],
)
def test_an_answer_is_shown_unchanged_but_for_its_lines(open_page: Opener, text: str) -> None:
    given = {"amount": 1.0, "order": 12345678901234567890, "lines": [{"price": 2.50}]}
    shown = open_page([episode("t1", transitions=[call(1, "get_order", given, text)])], hash_="#e=t1.1")
    for value in given.values():
        assert json.dumps(value) in shown.text("#row-1 .kv")
    (said,) = shown.page.locator(".ans pre").all_inner_texts()
    outside = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')
    assert outside.sub(r"\1", said) == outside.sub(r"\1", text)
    shown.quiet()


def test_a_link_opens_its_step(open_page: Opener) -> None:
    shown = open_page(small_run(), hash_="#e=refund-1.1&s=3")
    assert shown.text(".step.cur .tn") == "refund_payment"
    assert shown.ask("document.activeElement.id") == "row-3"
    shown.go("#e=nobody.9")
    assert "No episode has that name" in shown.text("#episode")
    shown.go("#trust")
    assert shown.page.is_visible("#trust")
    shown.quiet()


def test_every_link_of_the_page_leads_somewhere(open_page: Opener) -> None:
    shown = open_page(list(many(60)))
    links = shown.ask("[...new Set([...document.querySelectorAll('a')].map(a => a.getAttribute('href')))]")
    assert len(links) > 60
    for link in links:
        shown.go(link)
    shown.go("#e=task-0002.4&s=3")
    assert shown.text(".step.cur .tn") == "refund_payment"
    for link in links:
        if link.startswith("#e="):
            assert "No episode" not in shown.text("#episode")
    shown.quiet()


def test_keys_walk_the_list_and_the_episode(small: Shown) -> None:
    small.press("j", "j")
    assert small.ask("document.activeElement.textContent") == "where-2.1"
    small.press("Enter")
    assert small.url.endswith("#e=where-2.1")
    small.press("j", "j")
    assert small.url.endswith("#e=where-2.1&s=1")
    small.press("]")
    assert small.url.endswith("#e=where-2.2")
    small.press("[")
    small.press("Escape")
    assert small.page.is_visible("#overview")
    small.press("/")
    small.page.keyboard.type("refund")
    small.settle()
    assert small.ids() == ["refund-1.1", "refund-1.2"]
    small.press("Escape")
    small.press("?")
    assert small.page.is_visible("dialog")
    small.press("Escape")
    small.press("Control+j")
    assert not small.page.is_visible("dialog")
    small.quiet()


def test_back_from_an_episode_is_where_one_was(open_page: Opener) -> None:
    shown = open_page(list(many(200)))
    shown.page.locator(".ep a >> nth=30").scroll_into_view_if_needed()
    before = shown.ask("scrollY")
    shown.page.click(".ep a >> nth=30")
    shown.settle()
    assert shown.ask("scrollY") == 0
    shown.press("Escape")
    shown.settle()
    assert before > 0
    assert abs(shown.ask("scrollY") - before) < 300


def test_the_rest_of_a_tools_calls_is_drawn_when_asked_for(open_page: Opener) -> None:
    shown = open_page(list(many(120)))
    shown.page.evaluate("document.querySelectorAll('details.tool').forEach(d => { d.open = true; })")
    before = shown.page.locator(".fx").count()
    shown.page.click("details.tool button >> nth=0")
    shown.settle()
    assert shown.page.locator(".fx").count() > before + 50
    shown.quiet()


@pytest.mark.parametrize("hash_", ["", "#e=refund-1.1&s=3", "#e=where-2.1", "#episodes"])
def test_a_phone_scrolls_one_way_only(open_page: Opener, hash_: str) -> None:
    shown = open_page(small_run(), hash_=hash_, width=390)
    assert shown.ask("document.documentElement.scrollWidth") <= 390
    shown.quiet()


def test_long_names_do_not_break_the_phone(open_page: Opener) -> None:
    long = "x" * 300
    run = [
        episode(long, transitions=(call(1, long, {long: long}, {"id": long, "n": 1}, effect=Effect.WRITE),))
    ]
    shown = open_page(run, width=390)
    assert shown.ask("document.documentElement.scrollWidth") <= 390
    shown.go(f"#e={long}.1")
    assert shown.ask("document.documentElement.scrollWidth") <= 390


def test_dark_follows_the_system_and_paper_stays_white(open_page: Opener) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    shown = open_page(small_run(), dark=True)
    assert shown.ask(background) == "rgb(20, 22, 26)"
    assert open_page(small_run()).ask(background) == "rgb(251, 250, 247)"
    shown.page.emulate_media(media="print", color_scheme="dark")
    assert shown.ask(background) == "rgb(255, 255, 255)"
    assert not shown.page.is_visible(".filters")
    assert not shown.page.is_visible(".top")


def test_printing_opens_the_effects_and_draws_more_rows(open_page: Opener) -> None:
    shown = open_page(list(many(300)))
    shown.ask("dispatchEvent(new Event('beforeprint'))")
    assert shown.page.locator(".ep").count() == 300
    assert shown.ask("[...document.querySelectorAll('details.tool')].every(d => d.open)")


def test_edge_runs_are_drawn(open_page: Opener) -> None:
    empty = open_page([])
    assert empty.text("h1") == "INCONCLUSIVE (unfinished): 0 passed, 0 failed, 0 inconclusive, 0 errors"
    undecided = open_page([episode("a", verdict=Verdict.INCONCLUSIVE)])
    assert "No episode is conclusive." in undecided.text("#verdict")
    many_steps = open_page(
        [episode("long", transitions=tuple(call(n, "read", {"n": n}) for n in range(1, 201)))],
        hash_="#e=long.1&s=200",
    )
    assert many_steps.text(".step.cur .gut a") == "200"
    spent = open_page([episode("a", tokens=1_234_567)], hash_="#e=a.1")
    assert "1,234,567 tokens" in spent.text(".meta")
    repeats = open_page([episode("t", n) for n in range(1, 65)], hash_="#e=t.40")
    assert repeats.page.locator(".sib").count() == 64
    recorded = open_page([double_refund()], mode="record")
    assert "What it did" in recorded.text("#effects")
    for shown in (empty, undecided, many_steps, repeats, recorded):
        shown.quiet()


def test_data_of_another_schema_is_a_sentence(open_page: Opener, tmp_path: Path) -> None:
    html = page_of(RunDirectory.open(run_directory(tmp_path / "r", small_run())), place="r").html
    (tmp_path / "new.html").write_text(html.replace('{"schema":3,', '{"schema":4,', 1), "utf-8")
    shown = open_page(tmp_path / "new.html")
    assert shown.text("h1") == "This page holds data that it cannot show."
    assert blocks(html)[0]["schema"] == 3


def test_without_javascript_the_page_says_where_the_figures_are(chromium: object, tmp_path: Path) -> None:
    html = page_of(RunDirectory.open(run_directory(tmp_path, small_run())), place="r").html
    (tmp_path / "page.html").write_text(html, "utf-8")
    context = chromium.new_context(java_script_enabled=False)  # type: ignore[attr-defined]
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    assert "prints the same figures in a terminal" in page.inner_text("body")
    context.close()


def test_episodes_that_the_page_has_no_room_for_say_so(
    open_page: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dreamgym_kit.report.page.gathering.MAX_BYTES", 10)
    shown = open_page(small_run(), hash_="#e=refund-1.1")
    assert "not in this page" in shown.text("#episode")
    assert shown.page.locator(".note").count() > 0
    shown.quiet()


def test_interrupts_and_who_answered_stand_in_the_timeline(open_page: Opener) -> None:
    turns = (
        UserTurn("interrupt", "script", 1, 0, {"really": True}, "yes"),
        UserTurn("interrupt", "nobody", 2, 0, "And now?"),
        UserTurn("reply", "persona", 0, 0),
    )
    shown = open_page([replace(episode("a"), user_turns=turns)], hash_="#e=a.1")
    text = shown.text("#episode")
    for said in ("user, a user played by a model", "told by a scripted user", "Nobody answers."):
        assert said in text
    assert text.index('{"really": true}') < text.index("And now?")
    shown.quiet()


@pytest.mark.parametrize("counts", [(7, 1), (3, 5), (399, 1), (1, 399)])
def test_the_page_rounds_as_the_terminal_does(open_page: Opener, counts: tuple[int, int]) -> None:
    """Half to even, and two failures in a thousand are never all of them."""
    good = [episode(f"g{number}") for number in range(counts[0])]
    bad = [episode(f"b{number}", verdict=Verdict.FAILED, reason="no") for number in range(counts[1])]
    summary = summarize([*good, *bad], {"mode": "dream"})
    line = next(line for line in render_run(summary).splitlines() if line.startswith("  Pass rate"))
    rate, low, high = re.findall(r"([0-9]+)% of [0-9]+ tasks .95% CI ([0-9]+)-([0-9]+)%", line)[0]
    shown = open_page([*good, *bad]).text("#verdict").replace("\u2009", " ").replace("\u00a0", " ")
    assert f"{rate}%" in shown
    assert f"95% CI {low}\u2013{high}%" in shown
