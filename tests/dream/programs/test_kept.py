"""Mined programs are kept beside the buffer: found again, mined anew where they are damaged."""

import asyncio
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience
from dreamgym_kit.adapters.langgraph.run.run import _watch_mining
from dreamgym_kit.adapters.stores.factory import ProgramFile, open_store
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.programs import experience, mining
from dreamgym_kit.dream.programs.experience import Programs, learn
from dreamgym_kit.rollout.atomic_files import write_sealed
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.settings.buffer_url import place_of
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition, history_digest
from tests.dream.programs.planted_shop import WRITES, crawl, recorded, specs
from tests.dream.programs.test_programs import UNRECORDED, Asked

EPISODES = [*recorded(range(6)), crawl()]


def mined_text(programs: Programs) -> list[Any]:
    """What the programs say of calls on orders that no recording wrote to."""
    said: list[Any] = []
    for key in UNRECORDED[:2]:
        ask = Asked(programs)
        said += [ask("get_order", order_id=key), ask("cancel_order", order_id=key, reason="late")]
        said += [ask("get_order", order_id=key), ask("list_orders", status="open")]
        said += [ask("create_order", user_id="u-003", item="desk", qty=2), ask("list_orders")]
    return said


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each search for programs."""
    searches: list[int] = []
    walk = mining._Miner._walk
    monkeypatch.setattr(
        mining._Miner, "_walk", lambda miner, number: searches.append(1) or walk(miner, number)
    )
    return searches


def test_programs_are_searched_for_once_and_answer_alike_from_the_file(tmp_path: Path, searched) -> None:
    kept = ProgramFile(tmp_path / "b.programs")
    first = learn(EPISODES, specs(), program_store=kept)
    assert len(searched) > 0
    searched.clear()
    again = learn(EPISODES, specs(), program_store=kept)
    assert searched == []
    assert mined_text(again) == mined_text(first) == mined_text(learn(EPISODES, specs()))
    assert again.trust.counts == first.trust.counts


def test_what_was_mined_of_other_recordings_or_tools_or_by_another_version_is_not_used(
    tmp_path: Path, searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ProgramFile(tmp_path / "b.programs")
    learn(EPISODES, specs(), program_store=kept)
    for episodes, tools in ((EPISODES[1:], specs()), (EPISODES, {})):
        searched.clear()
        learn(episodes, tools, program_store=kept)
        assert searched
    monkeypatch.setattr(experience, "MINER", "another version")
    searched.clear()
    learn(EPISODES, specs(), program_store=kept)
    assert searched


@pytest.mark.parametrize("what", ["one letter", "foreign form", "wrong parts"])
def test_a_damaged_or_foreign_file_is_mined_anew_and_replaced(tmp_path: Path, searched, what: str) -> None:
    kept = ProgramFile(tmp_path / "b.programs")
    before = mined_text(learn(EPISODES, specs(), program_store=kept))
    whole = kept.path.read_bytes()
    digest = json.loads(whole.split(b"\n")[1])[0]
    if what in ("foreign form", "wrong parts"):  # with a checksum that fits
        mined = {"os.system": ["touch ran"]} if what == "foreign form" else {"tuple": [{}, {"dict": []}, 0]}
        write_sealed(kept.path, json.dumps([digest, mined]).encode())
    else:
        kept.path.write_bytes(whole.replace(b"open", b"shut", 1))
    searched.clear()
    assert mined_text(learn(EPISODES, specs(), program_store=kept)) == before
    assert searched
    assert kept.path.read_bytes() == whole


def test_a_stopped_mining_keeps_nothing_and_stops_the_run(tmp_path: Path) -> None:
    kept, switch = ProgramFile(tmp_path / "b.programs"), StopSwitch()
    switch.request("SIGINT")
    with pytest.raises(asyncio.CancelledError):
        learn(
            EPISODES,
            specs(),
            program_store=kept,
            watch=lambda share: _watch_mining(_Events(), switch, [0], share, 0),
        )
    assert switch.cancelled
    assert not kept.path.exists()


class _Events:
    """Collects the reported shares."""

    def __init__(self) -> None:
        self.shares: list[float] = []

    def emit(self, kind: str, /, **facts: Any) -> None:
        assert kind == "mining"
        self.shares.append(facts["share"])


def test_progress_is_reported_after_five_seconds_and_only_goes_up() -> None:
    events, shares, said = _Events(), [], [0]
    learn(EPISODES, specs(), watch=shares.append)
    assert shares == sorted(shares)
    assert shares[0] == 0 < shares[-1] < 1
    for share in shares:
        _watch_mining(events, StopSwitch(), said, share, 4.9)
    assert events.shares == []
    for share in shares:
        _watch_mining(events, StopSwitch(), said, share, 5.1)
    assert 3 <= len(events.shares) <= 20


def rows() -> list[Transition]:
    made: list[Transition] = []
    for episode in EPISODES:
        done: list[str] = []
        for number, step in enumerate(episode.steps, 1):
            effect = Effect.WRITE if step.tool in WRITES else Effect.READ
            call, after = Call(step.tool, dict(step.args)), history_digest(done)
            place = Environment("shop")
            made.append(Transition(call, Answer(step.seen), effect, episode.id, number, place, after=after))
            done += [call.key] * (step.tool in WRITES)
    return made


def test_a_weaviate_buffer_gives_the_same_programs_and_keeps_them_too(tmp_path: Path, searched) -> None:
    pytest.importorskip("weaviate")
    from weaviate_double import WeaviateDouble

    settings, said = Settings(path=tmp_path / "dreamgym.toml"), []
    with WeaviateDouble() as double:
        for place in (place_of("b.db", tmp_path), place_of(double.address, tmp_path)):
            with closing(open_store(place, settings, read_only=False)) as store:
                store.put(rows())
                for searches in (True, False):
                    searched.clear()
                    chain = chained_experience(store, settings, specs())
                    assert isinstance(chain, ChainedExperience)
                    said.append(mined_text(chain.programs.programs("default")))
                    assert bool(searched) is searches
    assert all(one == said[0] for one in said)
    assert sum(one is not None for one, _ in said[0]) >= 3
