"""Calls of one turn run at once: who was first, nobody knows, so that none of them shows a changed tool."""

import threading
from contextvars import copy_context
from pathlib import Path

import pytest
from langchain_core.tools import tool
from sim_to_real.till import settings_with

from dreamgym_kit.adapters.langgraph.s2r.supervisor import supervised
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.supervision.audit import entries_of
from dreamgym_kit.supervision.limits import RunStopped
from dreamgym_kit.supervision.session import RealWrites
from dreamgym_kit.types import Answer, Call, Source


class SureDouble:
    """An experience model that is sure that every write goes well."""

    waits = False

    async def answer(self, call: Call, situation: Situation) -> Answer:
        content = {"item": call.args["item"], "state": "sold"}
        return Answer(content=content, source=Source.RECORDED, confidence=1.0, cites=("one",))


@pytest.mark.parametrize(("at_once", "likeness"), [(True, "unknown"), (False, "different")])
def test_two_writes_of_one_turn_are_not_held_against_the_dream(
    tmp_path: Path, at_once: bool, likeness: str
) -> None:
    sold: list[str] = []
    inside = threading.Barrier(2, timeout=100) if at_once else None

    @tool
    def set_price(item: str) -> dict[str, str]:
        """Sell it."""
        if inside is not None:
            inside.wait()
        if item in sold:
            raise ValueError(f"{item} is sold")
        sold.append(item)
        return {"item": item, "state": "sold"}

    def sell() -> None:
        try:
            set_price.invoke({"item": "cup"})
        except ValueError:
            failed.append(True)

    failed: list[bool] = []
    audit = tmp_path / "audit.jsonl"
    with supervised(
        stage="live", audit=audit, max_calls=9, settings=settings_with(), experience=SureDouble()
    ):
        if at_once:
            threads = [threading.Thread(target=copy_context().run, args=(sell,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert failed == [True]
        else:
            sell()
            with pytest.raises(RunStopped, match="no longer answers as recorded"):
                set_price.invoke({"item": "cup"})
    assert sold == ["cup"]
    answered = [one.facts for one in entries_of(audit) if one.kind == "answered"]
    assert [one["likeness"] for one in answered if one["failed"]] == [likeness]


def test_a_call_that_began_before_or_amid_a_write_ran_beside_it() -> None:
    writes = RealWrites()
    before = writes.now()
    with writes.under_way(writes=True):
        amid = writes.now()
        assert writes.beside(before, writes=False)
        assert not writes.beside(before, writes=True)  # its own
        with writes.under_way(writes=False):
            assert writes.beside(amid, writes=False)
    after = writes.now()
    with writes.under_way(writes=True):
        assert not writes.beside(after, writes=True)
        with writes.under_way(writes=True):
            assert writes.beside(after, writes=True)
    assert writes.now() == 3


def test_reads_beside_each_other_are_compared() -> None:
    writes = RealWrites()
    since = writes.now()
    with writes.under_way(writes=False), writes.under_way(writes=False):
        assert not writes.beside(since, writes=False)
