"""Bar R4: a bad endpoint ends episodes as inconclusive at worst; none hangs, none is lost."""

import pytest
from bench import endpoint_faults
from bench.endpoint_faults import DECISION, counted
from bench.faulty_endpoint_double import WAYS, FaultyEndpointDouble, serving
from each_row import each_row

from dreamgym_kit.adapters.models.addresses import ApiKey, read_address
from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.errors import CallUnanswered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.schema import ExperienceSettings
from dreamgym_kit.types import Call, Effect, Source, ToolSpec

SPECS = {"look": ToolSpec("look", Effect.READ)}


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No episode is given up on for the time it takes: one that hangs hangs the test."""
    monkeypatch.setattr(endpoint_faults, "LIMIT_S", None)


@each_row("sync", [True, False], ids=["sync", "async"])
@each_row("way", WAYS)
async def test_each_way_of_failing_is_inconclusive_with_its_reason(way: str, sync: bool) -> None:
    with serving(FaultyEndpointDouble(content=lambda body: DECISION, way=lambda number: way)) as double:
        patience_s = 0.3 if way in ("hang", "drip") else 60.0  # what is answered may take its time
        settings = ExperienceSettings(urls=(double.url,), model="m", timeout_s=patience_s, max_attempts=2)
        address = read_address(double.url, source="test")
        endpoint = OpenAIEndpoint((address,), settings, ApiKey(""), wait_unit_s=0.001)
        session = Session(CallRouter(Mode.DREAM, SPECS), experience=ReasonedExperience(endpoint))
        call = Call("look", {})
        _, place = session.admit(call)
        try:
            with pytest.raises(CallUnanswered, match=r"gave no answer|could not be used"):
                session.drive(session.flow(call, place)) if sync else await session.drive_async(
                    session.flow(call, place)
                )
        finally:
            endpoint.close()
    assert len(double.requests) <= 2
    (kept,) = session.ledger.transitions()
    assert kept.answer.source is Source.UNANSWERED


@pytest.mark.slow
@pytest.mark.usefixtures("unhurried")
def test_episodes_at_a_fifth_of_faults_all_end() -> None:
    told = counted(seed=1, episodes=100)
    print(told)
    assert told["lost"] == 0
    assert told["finished"] + told["inconclusive"] == 100
    assert told["failed_requests"] > 50


@pytest.mark.slow
@pytest.mark.usefixtures("unhurried")
def test_without_another_try_many_more_are_inconclusive() -> None:
    """The mutant of this bar: the figure moves when retries are taken out."""
    assert counted(1, episodes=60, attempts=1)["inconclusive"] > counted(1, episodes=60)["inconclusive"]
