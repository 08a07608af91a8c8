"""What becomes of 1,000 episodes when a fifth of the model's requests fails in every way of bar R4.

`counted` gives `hung` (episodes that outlived their limit) and `lost` (episodes that are neither
finished nor inconclusive). Episodes are driven as the engine drives them: a session, five calls, a limit.
"""

import asyncio
import json
import time

from bench.faulty_endpoint_double import WAYS, FaultyEndpointDouble, failing_share, serving

from dreamgym_kit.adapters.models.addresses import ApiKey, read_address
from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.errors import CallUnanswered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.schema import ExperienceSettings
from dreamgym_kit.types import Call, Effect, ToolSpec

CALLS = 5
LIMIT_S = 45.0  # more than five calls of three tries each can take
SPECS = {"look": ToolSpec("look", Effect.READ)}
DECISION = json.dumps(
    {"reasoning": "", "outcome": "ok", "like": None, "leaves": [], "answer": "fine", "error": "", "set": []}
    | {"confidence": 1.0}
)


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    units = {"requests": "requests", "failed_requests": "requests", "timeouts": "requests"}
    started = time.perf_counter()
    figures = [(name, value, units.get(name, "episodes")) for name, value in counted(seed).items()]
    return [*figures, ("seconds", time.perf_counter() - started, "s")]


def counted(seed: int, *, episodes: int = 1000, share: float = 0.2, attempts: int = 3) -> dict[str, float]:
    """Run the episodes; see the module."""
    double = FaultyEndpointDouble(content=lambda body: DECISION, way=failing_share(share, seed, WAYS))
    with serving(double):
        given = ExperienceSettings((double.url,), "m", timeout_s=2.0, max_attempts=attempts)  # expires: hangs
        address = read_address(double.url, source="bench")
        endpoint = OpenAIEndpoint((address,), given, ApiKey(""), wait_unit_s=0.005, max_body=2**20)
        try:
            return asyncio.run(_measure(endpoint, episodes))
        finally:
            endpoint.close()


async def _measure(endpoint: OpenAIEndpoint, episodes: int) -> dict[str, float]:
    dream = ReasonedExperience(endpoint)
    slots = asyncio.Semaphore(32)

    async def one(number: int) -> str:
        async with slots:
            try:
                async with asyncio.timeout(LIMIT_S):
                    return await _episode(dream, number)
            except TimeoutError:
                return "hung"
            except Exception as error:
                return f"lost: {error!r}"

    ends = await asyncio.gather(*(one(number) for number in range(episodes)))
    counts = endpoint.counts
    return {
        "hung": float(ends.count("hung")),
        "lost": float(sum(end.startswith("lost") for end in ends)),
        "finished": float(ends.count("finished")),
        "inconclusive": float(ends.count("inconclusive")),
        "requests": float(counts.requests),
        "failed_requests": float(sum(counts.failures.values())),
        "timeouts": float(counts.failures.get("timeout", 0)),
    }


async def _episode(dream: ReasonedExperience, number: int) -> str:
    session = Session(
        CallRouter(Mode.DREAM, SPECS), experience=dream, task=f"t{number}", episode=f"t{number}.1"
    )
    try:
        for step in range(CALLS):
            call = Call("look", {"item": f"{number}-{step}"})
            _, place = session.admit(call)
            await session.drive_async(session.flow(call, place))
    except CallUnanswered:
        return "inconclusive"
    finally:
        session.close()
    return "finished"
