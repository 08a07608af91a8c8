"""New weights for a policy behind servers: brought to every replica, proven on each, all or none."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra train is not installed")

from models.adapted import adapted, moved, small
from vllm_double import VllmDouble
from waiting import wait_until_async

from dreamgym_kit.adapters.models import endpoint
from dreamgym_kit.adapters.models.remote import RemotePolicy, open_remote
from dreamgym_kit.adapters.models.vllm.weights import compute_expected
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.settings.schema import PolicySettings

pytestmark = pytest.mark.slow

ASK = ChatRequest([ChatMessage("user", "hm")], temperature=1.0, max_tokens=8, seed=1, exact=True)
NAME = "/update_weight_version"
WHOLE = ["/pause?mode=wait", NAME, "/collective_rpc", "/reset_prefix_cache", "/resume", NAME]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("whole")
    return [moved(base, folder / str(seed), seed=seed) for seed in range(2)]


@pytest.fixture(scope="module")
def with_adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return [adapted(base, folder / str(seed), seed=seed) for seed in range(2)]


MADE: list[Any] = []


@pytest.fixture(autouse=True)
def all_closed() -> Iterator[None]:
    """Close what a test made, the last one first."""
    yield
    while MADE:
        MADE.pop().close()


@pytest.fixture
def servers(base: Path) -> list[VllmDouble]:
    return [served(base), served(base)]


@pytest.fixture
def policy(servers: list[VllmDouble]) -> RemotePolicy:
    return opened(*servers)


def served(folder: Path, **how: Any) -> VllmDouble:
    MADE.append(VllmDouble(folder, **how))
    return MADE[-1]


def opened(*servers: VllmDouble, replicas: tuple[str, ...] = (), **more: Any) -> RemotePolicy:
    urls = tuple(server.url for server in servers)
    settings = PolicySettings(model="policy-v0", urls=urls, replicas=replicas)
    MADE.append(open_remote(settings, source="dreamgym.toml:3", **more))
    return MADE[-1]


def whole_only(base: Path, **how: Any) -> VllmDouble:
    server = served(base, **how)
    server.off = {"lora"}
    return server


def managed(server: VllmDouble) -> list[str]:
    routes = [path for path, _ in server.managed if path in WHOLE]
    server.managed.clear()
    return routes


async def answers(policy: RemotePolicy, folder: Path) -> None:
    """Both replicas answer with the weights of the folder."""
    rows = [[(7 * row + place) % 250 for place in range(40)] for row in range(4)]
    served, expected = await policy.score(rows), compute_expected(folder, rows)
    for one, other in zip(served, expected.scores, strict=True):
        assert one == pytest.approx(other, abs=1e-4)


async def test_a_whole_model_goes_to_every_replica_paused_and_with_its_cache_dropped(
    policy: RemotePolicy, servers: list[VllmDouble], whole: list[Path]
) -> None:
    for version, folder in enumerate(whole):
        await policy.load(folder, f"step-{version:06d}")
        assert [managed(server) for server in servers] == [WHOLE, WHOLE]
        assert {server.weight_version for server in servers} == {f"step-{version:06d}"}
        await answers(policy, folder)
        assert (await policy.chat(ASK)).tokens.version == policy.version == f"step-{version:06d}"


async def test_each_adapter_has_a_name_of_its_own_and_the_old_one_is_unloaded(
    policy: RemotePolicy, servers: list[VllmDouble], with_adapter: list[Path]
) -> None:
    names = set()
    for version, folder in enumerate([*with_adapter, with_adapter[0]]):
        await policy.load(folder, f"step-{version:06d}")
        reply = await policy.chat(ASK)
        assert (policy.version, reply.tokens.version) == (f"step-{version:06d}",) * 2
        assert [set(server.adapters) for server in servers] == [{reply.model}] * 2
        names.add(reply.model)
        await answers(policy, folder)
    assert len(names) == 3
    assert [managed(server) for server in servers] == [[], []]


async def test_without_adapter_routes_the_whole_model_is_loaded(
    policy: RemotePolicy, servers: list[VllmDouble], with_adapter: list[Path]
) -> None:
    servers[1].off = {"lora"}
    await policy.load(with_adapter[0], "step-000001")
    assert [managed(server) for server in servers] == [WHOLE, WHOLE]
    await answers(policy, with_adapter[0])


async def test_a_directory_that_is_not_whole_is_sent_to_nobody(
    policy: RemotePolicy, servers: list[VllmDouble], whole: list[Path], tmp_path: Path
) -> None:
    await policy.load(whole[0], "step-000001")
    before = (await policy.chat(ASK)).tokens
    torn = moved(whole[0], tmp_path / "torn", seed=9)
    weights = torn / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    other = small(tmp_path / "other", vocab=300)
    for server in servers:
        server.managed.clear()
    for folder in (torn, other, tmp_path / "none"):
        with pytest.raises(UserError, match=str(folder)):
            await policy.load(folder, "step-000002")
    assert [managed(server) for server in servers] == [[], []]
    assert (await policy.chat(ASK)).tokens == before


@pytest.mark.parametrize("fault", ["drops", "swaps"])
async def test_one_replica_with_other_weights_stops_the_policy_until_a_load_succeeds(
    policy: RemotePolicy, servers: list[VllmDouble], whole: list[Path], base: Path, fault: str
) -> None:
    await policy.load(whole[0], "step-000001")
    if fault == "drops":
        servers[1].drops = {"/collective_rpc"}
    else:
        servers[1].swaps = base
    with pytest.raises(EndpointError, match=r"step-000002 is not served everywhere") as failed:
        await policy.load(whole[1], "step-000002")
    assert failed.value.kind == "stale_weights"
    assert servers[1].url in str(failed.value)
    assert servers[0].url not in str(failed.value)
    for server in servers:
        server.asked.clear()
    with pytest.raises(EndpointError, match="nothing is answered until a load succeeds"):
        await policy.chat(ASK)
    assert [server.asked for server in servers] == [[], []]
    servers[1].drops, servers[1].swaps = set(), None
    await policy.load(whole[1], "step-000002")
    await answers(policy, whole[1])


async def test_an_adapter_that_did_not_arrive_everywhere_leaves_the_version_before(
    policy: RemotePolicy, servers: list[VllmDouble], with_adapter: list[Path]
) -> None:
    await policy.load(with_adapter[0], "step-000001")
    servers[1].swaps = with_adapter[0] / "adapter"
    with pytest.raises(EndpointError, match="the version before goes on"):
        await policy.load(with_adapter[1], "step-000002")
    reply = await policy.chat(ASK)
    assert (policy.version, reply.tokens.version) == ("step-000001",) * 2
    assert [set(server.adapters) for server in servers] == [{reply.model}] * 2


async def test_another_models_answer_is_no_answer_of_the_adapter(
    policy: RemotePolicy, servers: list[VllmDouble], with_adapter: list[Path]
) -> None:
    await policy.load(with_adapter[0], "step-000001")
    for server in servers:
        server.spoil = lambda body: body.update(model="policy-v0")
    with pytest.raises(EndpointError, match="'policy-v0' answered where"):
        await policy.chat(ASK)


@pytest.mark.parametrize("kind", ["whole", "with_adapter"])
async def test_a_replica_that_comes_back_with_old_weights_is_given_the_present_ones_first(
    base: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_REST_S", 0.0)
    folders: list[Path] = request.getfixturevalue(kind)
    servers = [served(base), served(base)]
    policy = opened(*servers)
    await policy.load(folders[0], "step-000001")
    port = servers[1].server_port
    servers[1].close()
    await policy.load(folders[1], "step-000002")  # one is gone: taken out
    await answers(policy, folders[1])
    servers[1] = served(base, port=port)
    await answers(policy, folders[1])
    wanted = (await policy.chat(ASK)).model
    scored = [one for one in servers[1].asked if one.get("prompt_logprobs") is not None]
    assert [one["model"] for one in scored[-2:]] == [wanted] * 2  # it answers again, for two of four rows


@pytest.mark.parametrize("kind", ["whole", "with_adapter", "whole, no adapters"])
async def test_another_process_asks_for_the_same_weights_and_leaves_out_who_has_others(
    base: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_REST_S", 0.0)
    folders: list[Path] = request.getfixturevalue(kind.partition(",")[0])

    def started(port: int = 0) -> VllmDouble:
        server = served(base, port=port)
        server.off = {"lora"} if "no adapters" in kind else set()
        return server

    async def chats() -> set[str]:
        asked = [replace(ASK, group=str(number)) for number in range(6)]
        return {(await follower.chat(one)).tokens.version for one in asked}

    servers = [started(), started()]
    driver, follower = opened(*servers), opened(*servers)
    await driver.load(folders[0], "step-000001")
    said = json.loads(json.dumps(driver.spec()))
    await follower.follow(said)
    assert await chats() == {"step-000001"} == {follower.version}
    assert all(chats_of(server) for server in servers)
    servers[1].close()
    servers[1] = started(servers[1].server_port)  # with the weights that it began with
    await follower.follow(said)
    assert await chats() == {"step-000001"}
    assert (chats_of(servers[1]), managed(servers[1])) == (0, [])
    await driver.load(folders[1], "step-000002")
    await follower.follow(json.loads(json.dumps(driver.spec())))
    assert await chats() == {"step-000002"}
    assert chats_of(servers[1]) > 0


def chats_of(server: VllmDouble) -> int:
    return sum("messages" in one and one["max_tokens"] > 1 for one in server.asked)


async def test_all_that_wait_for_a_replica_let_it_prove_itself_once(
    policy: RemotePolicy, servers: list[VllmDouble], whole: list[Path]
) -> None:
    follower = opened(*servers)
    await policy.load(whole[0], "step-000001")
    await follower.follow(policy.spec())
    before = [len(server.asked) for server in servers]
    await asyncio.gather(*[follower.chat(replace(ASK, group=str(number))) for number in range(16)])
    asked = sum(len(server.asked) for server in servers) - sum(before)
    assert asked - sum(map(chats_of, servers)) == 2 * 4  # canaries: their drawn tokens, of each server


async def test_a_replica_with_the_weights_of_the_step_before_is_told_by_their_name(
    base: Path, whole: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where canaries cannot tell: what servers in 16 bits are off by is more than a step changes."""
    monkeypatch.setattr(endpoint, "_REST_S", 0.0)
    servers = [served(base), served(base)]
    driver, follower = opened(*servers, most=1e9), opened(*servers, most=1e9)
    await driver.load(whole[0], "step-000001")
    port = servers[1].server_port
    servers[1].close()
    await driver.load(whole[1], "step-000002")
    servers[1] = served(whole[0], port=port)
    servers[1].weight_version = "step-000001"
    await follower.follow(driver.spec())
    for number in range(6):
        await follower.chat(replace(ASK, group=str(number)))
    assert (chats_of(servers[1]), managed(servers[1])) == (0, [])
    for number in range(6):
        await driver.chat(replace(ASK, group=str(number)))
    assert managed(servers[1]) == WHOLE  # it is given the present ones first
    assert chats_of(servers[1]) > 0


@pytest.mark.parametrize("keeps_connections", [True, False])
async def test_a_server_started_anew_while_nobody_asks_it_answers_nothing_before_it_has_the_present_weights(
    base: Path, whole: list[Path], keeps_connections: bool
) -> None:
    server = whole_only(base, keeps_connections=keeps_connections)
    driver, follower = opened(server), opened(server)
    await driver.load(whole[0], "step-000001")
    await follower.follow(driver.spec())
    assert (await driver.chat(ASK)).tokens == (await follower.chat(ASK)).tokens
    server.close()
    server = whole_only(base, port=server.server_port, keeps_connections=keeps_connections)
    with pytest.raises(EndpointError) as refused:
        await follower.chat(ASK)
    assert refused.value.kind == "stale_weights"
    assert managed(server) == []
    reply = await driver.chat(ASK)
    assert managed(server) == WHOLE
    assert (reply.tokens.version, reply.attempts) == ("step-000001", 2)
    await answers(driver, whole[0])
    assert (await follower.chat(ASK)).tokens == reply.tokens


async def test_many_answers_over_kept_connections_ask_for_the_name_once(
    base: Path, whole: list[Path]
) -> None:
    server = whole_only(base, keeps_connections=True)
    policy = opened(server)
    await policy.load(whole[0], "step-000001")
    server.unpaused.clear()
    first = asyncio.gather(*[policy.chat(replace(ASK, seed=number)) for number in range(8)])
    # each has a connection, as each may want one later
    await wait_until_async(lambda: len(server.open) == 8, "eight connections")
    server.unpaused.set()
    await first
    asked = len(server.managed)
    await asyncio.gather(*[policy.chat(replace(ASK, seed=number)) for number in range(8)])
    assert [path for path, _ in server.managed[asked:]] == []


async def test_other_weights_than_those_that_were_read_never_bear_their_name(
    base: Path, whole: list[Path]
) -> None:
    """A process that only goes by the name asks a server that is being put right, and was not."""
    server = whole_only(base)
    driver, follower = opened(server), opened(server)
    await driver.load(whole[0], "step-000001")
    await follower.follow(driver.spec())
    await follower.chat(ASK)
    server.close()
    server = whole_only(base, port=server.server_port)
    server.swaps = base  # says 200, and stays as it was
    for policy in (driver, follower, driver, follower):
        with pytest.raises(EndpointError) as refused:
            await policy.chat(ASK)
        assert refused.value.kind == "stale_weights"
    assert server.weight_version == "dreamgym-unproven"


async def test_a_server_that_says_no_name_takes_no_whole_model(base: Path, whole: list[Path]) -> None:
    server = whole_only(base)
    server.off |= {"weight_info"}
    policy = opened(server)
    with pytest.raises(EndpointError, match="does not report the name of its weights"):
        await policy.load(whole[0], "step-000001")


async def test_a_server_started_anew_is_given_its_adapter_again(base: Path, with_adapter: list[Path]) -> None:
    server = served(base)
    policy = opened(server)
    await policy.load(with_adapter[0], "step-000001")
    before = await policy.chat(ASK)
    server.close()
    server = served(base, port=server.server_port)
    after = await policy.chat(ASK)
    assert (after.tokens, after.attempts) == (before.tokens, 2)


async def test_a_lost_replica_is_asked_again_when_it_serves_what_all_were_started_with(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_REST_S", 0.0)
    servers = [served(base), served(base)]
    for server in servers:
        server.off = {"lora"}
    policy = opened(*servers)
    await asyncio.to_thread(policy.check)
    for weights, asked_again in ((moved(base, tmp_path / "other", seed=1), False), (base, True)):
        port = servers[1].server_port
        servers[1].close()
        for number in range(6):
            await policy.chat(replace(ASK, group=str(number)))
        servers[1] = served(weights, port=port)
        servers[1].off = {"lora"}
        for number in range(6):
            await policy.chat(replace(ASK, group=str(number)))
        assert (chats_of(servers[1]) > 0) == asked_again


async def test_behind_a_router_a_lost_replica_ends_it(base: Path, whole: list[Path]) -> None:
    servers = [served(base) for _ in range(3)]  # the first stands for the router
    policy = opened(servers[0], replicas=tuple(server.url for server in servers[1:]))
    await policy.load(whole[0], "step-000001")
    assert [managed(server) for server in servers] == [[], WHOLE, WHOLE]
    servers[2].close()
    with pytest.raises(EndpointError, match="step-000002 is not served everywhere"):
        await policy.load(whole[1], "step-000002")


def test_replicas_with_different_weights_are_found_at_the_start(base: Path, tmp_path: Path) -> None:
    servers = [served(base), served(small(tmp_path / "other", seed=4))]
    policy = opened(*servers)
    with pytest.raises(UserError, match="serve 'policy-v0' with different weights"):
        policy.check()


async def test_answers_under_way_end_with_the_weights_that_they_began_with(
    policy: RemotePolicy, servers: list[VllmDouble], whole: list[Path]
) -> None:
    await policy.load(whole[0], "step-000001")
    first = [asyncio.create_task(policy.chat(ASK)) for _ in range(4)]
    await asyncio.sleep(0)
    loading = asyncio.create_task(policy.load(whole[1], "step-000002"))
    replies = await asyncio.gather(*first)
    await loading
    later = await policy.chat(ASK)
    weights = {"step-000001": whole[0], "step-000002": whole[1]}
    for reply in replies:
        ids, sampled = reply.tokens.ids, list(reply.tokens.logprobs)
        scored = compute_expected(weights[reply.tokens.version], [[*reply.tokens.prompt_ids, *ids]]).scores[0]
        assert scored[-len(ids) :] == pytest.approx(sampled, abs=1e-4)
    assert later.tokens.version == "step-000002"


async def test_weights_of_the_owner_alone_are_let_read_as_far_as_their_directory_is(
    policy: RemotePolicy, whole: list[Path], tmp_path: Path
) -> None:
    folder = moved(whole[0], tmp_path / "new", seed=3)
    folder.chmod(0o750)
    (folder / "model.safetensors").chmod(0o600)
    await policy.load(folder, "step-000001")
    assert (folder / "model.safetensors").stat().st_mode & 0o777 == 0o640
