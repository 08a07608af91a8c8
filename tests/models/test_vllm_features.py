"""What servers can do is found before anything runs; where a needed thing is off, its flag is named."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from each_row import each_row

pytest.importorskip("torch", reason="the extra train is not installed")

from nano_double import write_double
from ports import own_port
from vllm_double import VllmDouble

from dreamgym_kit.adapters.models.remote import RemotePolicy, open_remote
from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.settings.schema import ExperienceSettings, PolicySettings

ASK = ChatRequest([ChatMessage("user", "hm")], temperature=1.0, max_tokens=8, seed=1, exact=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory):
    return write_double(tmp_path_factory.mktemp("model"), context=512)


@pytest.fixture(scope="module")
def both(model) -> Iterator[tuple[VllmDouble, VllmDouble]]:
    servers = VllmDouble(model), VllmDouble(model)
    yield servers
    for server in servers:
        server.close()


@pytest.fixture
def servers(both: tuple[VllmDouble, VllmDouble]) -> tuple[VllmDouble, VllmDouble]:
    for server in both:
        server.off, server.drops, server.mode, server.spoil = (
            set(),
            set(),
            "processed_logprobs",
            lambda _: None,
        )
        server.asked.clear()
        server.sessions.clear()
    return both


@pytest.fixture
def policy(servers) -> Iterator[RemotePolicy]:
    policy = opened(*servers)
    yield policy
    policy.close()


def opened(*servers: VllmDouble, **said: object) -> RemotePolicy:
    urls = tuple(server.url for server in servers)
    return open_remote(PolicySettings(model="policy-v0", urls=urls, **said), source="dreamgym.toml:3")


def test_what_servers_can_do_is_found_by_asking_each(policy, servers) -> None:
    servers[1].off = {"lora", "generate", "tools"}
    policy.check()
    first, second = policy.features
    assert (first.version, first.logprobs, first.models["policy-v0"].context) == (
        *("0.32.0", "processed_logprobs"),
        512,
    )
    can = [(one.token_ids, one.dev, one.tools, one.generate, one.lora) for one in (first, second)]
    assert can == [(True,) * 5, (True, True, False, False, False)]


@each_row(
    ("mode", "temperature", "said"),
    [
        ("raw_logprobs", 0.7, "sends raw_logprobs, and answers at temperature 0.7"),
        ("raw_logits", 1.0, "sends raw_logits"),
        ("processed_logits", 1.0, "sends processed_logits"),
    ],
)
def test_logprobs_that_cannot_be_learned_from_name_the_flag(
    policy, servers, mode: str, temperature: float, said: str
) -> None:
    servers[1].mode = mode
    with pytest.raises(UserError, match=said) as refused:
        policy.check(temperature=temperature)
    assert str(refused.value).startswith(f"dreamgym.toml:3: {servers[1].url} ")
    assert str(refused.value).endswith("start it with --logprobs-mode processed_logprobs.")


def test_raw_logprobs_are_the_samplers_own_at_temperature_one(policy, servers) -> None:
    servers[1].mode = "raw_logprobs"
    policy.check(temperature=1.0)


@each_row(
    ("off", "adapters", "said"),
    [
        ({"token_ids"}, None, "sends no token ids"),
        ({"dev"}, False, "takes no new weights while it runs; start it with VLLM_SERVER_DEV_MODE=1, as"),
        ({"dev", "lora"}, True, r"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora\), as"),
    ],
)
def test_what_is_off_and_needed_is_named_with_its_flag(policy, servers, off, adapters, said: str) -> None:
    servers[0].off = off
    with pytest.raises(UserError, match=said):
        policy.check(adapters=adapters)


def test_adapters_need_no_development_mode(policy, servers) -> None:
    for server in servers:
        server.off = {"dev"}
    policy.check(adapters=True)


def test_a_name_that_is_not_served_is_told_with_those_that_are(servers) -> None:
    policy = open_remote(PolicySettings(model="nobody", urls=(servers[0].url,)), source="dreamgym.toml:3")
    with pytest.raises(UserError, match="does not serve 'nobody', but policy-v0"):
        policy.check()
    policy.close()


def test_a_server_that_is_not_there_is_an_error_before_anything_runs(servers) -> None:
    gone = f"http://127.0.0.1:{own_port()}/v1"
    policy = open_remote(PolicySettings(model="policy-v0", urls=(servers[0].url, gone)), source="a.toml:3")
    with pytest.raises(UserError, match=rf"{gone} did not answer .*\. Nothing was run\.$"):
        policy.check()
    policy.close()


async def test_siblings_go_to_one_replica_and_a_router_is_told_their_group(policy, servers) -> None:
    for group in range(8):
        for repeat in range(3):
            said = replace(ASK, max_tokens=1, affinity=f"t{group}.{repeat}", group=f"t{group}")
            await policy.chat(said)
    sessions = [server.sessions for server in servers]
    assert sum(map(len, sessions)) == 24
    assert min(map(len, sessions)) > 0
    assert not set(sessions[0]) & set(sessions[1])
    assert len({*sessions[0], *sessions[1]}) == 8


async def test_a_forced_call_is_held_to_its_schema_by_saying_strict(policy, servers) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    for choice in ("auto", "required", "look"):
        said = ChatRequest(ASK.messages, tools=[tool], tool_choice=choice, max_tokens=2, seed=1, exact=True)
        await policy.chat(said)
    asked = [*servers[0].asked, *servers[1].asked]
    assert [one["tools"][0]["function"].get("strict") for one in asked] == [None, True, True]
    assert "strict" not in tool["function"]


async def test_a_server_that_turns_out_to_be_vllm_gets_every_sampling_parameter(servers) -> None:
    from dreamgym_kit.adapters.models.addresses import ApiKey, read_address
    from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint

    (server, _) = servers
    settings = ExperienceSettings(urls=(server.url,), model="policy-v0")
    endpoint = OpenAIEndpoint((read_address(server.url, source="x"),), settings, ApiKey(""))
    for _ in range(2):
        await endpoint.chat(ChatRequest(ASK.messages, max_tokens=2, seed=1))
    endpoint.close()
    assert [one.get("top_k") for one in server.asked] == [None, -1, -1]
    assert endpoint.counts.requests == 3


async def test_an_unknown_model_is_asked_for_once(servers) -> None:
    policy = open_remote(PolicySettings(model="nobody", urls=tuple(one.url for one in servers)), source="x")
    with pytest.raises(EndpointError, match="does not exist"):
        await policy.chat(ASK)
    policy.close()
    assert sum(len(server.asked) for server in servers) == 1


def test_a_server_that_repeats_the_key_does_not_bring_it_into_an_error(servers, monkeypatch) -> None:
    monkeypatch.setenv("SERVERS_KEY", "sk-canary/0123456789")
    policy = opened(servers[0], key_env="SERVERS_KEY")
    servers[0].refusal = "no entry with sk-canary/0123456789"
    try:
        with pytest.raises(UserError, match=r"answered 401: no entry with \*\*\*") as refused:
            policy.check()
        assert "canary" not in str(refused.value)
    finally:
        servers[0].refusal = ""
        policy.close()
