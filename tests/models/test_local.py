"""A policy in process among many episodes: who shares a batch, what is kept, and how failures are told."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from each_row import each_row

torch = pytest.importorskip("torch", reason="the extra train is not installed")

from nano_double import write_double  # noqa: E402
from waiting import wait_until_async  # noqa: E402

from dreamgym_kit.adapters.models.local import LocalPolicy, open_local  # noqa: E402
from dreamgym_kit.adapters.models.local_batch import RunningBatch  # noqa: E402
from dreamgym_kit.adapters.models.local_network import Network  # noqa: E402
from dreamgym_kit.chat import ChatMessage, ChatReply, ChatRequest  # noqa: E402
from dreamgym_kit.errors import EndpointError, UserError  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_double(tmp_path_factory.mktemp("model"), context=512)


@pytest.fixture
def opened(folder: Path) -> Iterator[Callable[..., LocalPolicy]]:
    """Opens policies over the folder; all are closed at the end of the test."""
    with ExitStack() as stack:
        yield lambda **how: stack.enter_context(closing(open_local(folder, **how)))


@pytest.fixture
def policy(opened: Callable[..., LocalPolicy]) -> LocalPolicy:
    return opened()


def asks(*said: str, key: str = "", seed: int = 1, most: int = 16) -> ChatRequest:
    roles = ("user", "assistant") * len(said)
    messages = [ChatMessage(role, text) for role, text in zip(roles, said, strict=False)]
    return ChatRequest(messages, temperature=1.0, max_tokens=most, seed=seed, affinity=key, exact=True)


async def taken_in(policy: LocalPolicy) -> None:
    """Until the engine works on what was asked."""
    await wait_until_async(lambda: policy._engine._under_way, "the engine to take in what was asked")


async def conversation(policy: LocalPolicy, key: str, turns: int, *, pause=None) -> list[ChatReply]:
    said, replies = ["order?"], []
    for turn in range(turns):
        if pause is not None:
            await asyncio.sleep(pause(key, turn))
        replies.append(await policy.chat(asks(*said, key=key, seed=turn)))
        said += [replies[-1].content, f"and {turn}?"]
    return replies


async def test_a_turn_goes_on_from_what_the_last_one_left(policy) -> None:
    async with policy.episode("a"):
        first, second = await conversation(policy, "a", 2)
        assert (first.cached_tokens, second.cached_tokens > first.prompt_tokens // 2) == (0, True)
        said = second.tokens
        (cold,) = await policy.score([(*said.prompt_ids, *said.ids)])
        assert said.logprobs == pytest.approx(cold[len(said.prompt_ids) - 1 :], abs=1e-5)
    assert policy._cache.find("a", said.prompt_ids) == (None, 0)


async def test_a_rewritten_history_takes_only_what_is_still_true(policy) -> None:
    await policy.chat(asks("order 17 is late", key="a"))
    said = await policy.chat(asks("order 18 is late and so is the other", key="a"))
    assert 0 < said.cached_tokens < said.prompt_tokens
    (cold,) = await policy.score([(*said.tokens.prompt_ids, *said.tokens.ids)])
    assert said.tokens.logprobs == pytest.approx(cold[len(said.tokens.prompt_ids) - 1 :], abs=1e-5)


@each_row(("most", "finish"), [(400, "stop"), (3, "length")])
async def test_what_was_sampled_is_not_tokenised_again(policy, most: int, finish: str) -> None:
    first = await policy.chat(asks("x", key="a", seed=5, most=most))
    assert first.finish_reason == finish
    kept = first.tokens
    assert "\N{REPLACEMENT CHARACTER}" in first.content  # half a character: no tokenizer gives these ids back
    second = await policy.chat(asks("x", first.content, "y", key="a"))
    whole = (*kept.prompt_ids, *kept.ids)
    assert second.tokens.prompt_ids[: len(whole)] == whole


async def test_kept_keys_and_values_are_bounded_and_go_with_the_weights(folder: Path, opened) -> None:
    policy = opened(cache_bytes=60_000)
    for number in range(6):
        await conversation(policy, f"e{number}", 1)
    assert 0 < policy._cache.bytes <= 60_000
    await policy.load(folder, "v1")
    assert policy._cache.bytes == 0


async def test_new_weights_wait_for_the_answer_under_way(
    policy, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, step = threading.Event(), RunningBatch.step

    def once_it_is_seen(batch: RunningBatch) -> object:
        seen.wait(60)
        return step(batch)

    monkeypatch.setattr(RunningBatch, "step", once_it_is_seen)
    under_way = asyncio.create_task(policy.chat(asks("long", seed=0, most=400)))
    await taken_in(policy)
    loading = asyncio.create_task(policy.load(folder, "v1"))
    await asyncio.sleep(0)
    seen.set()
    await loading
    assert (await policy.chat(asks("next"))).tokens.version == "v1"
    assert (await under_way).tokens.version == "v0"


async def test_in_lockstep_timing_changes_nothing(opened) -> None:
    def slow(key: str, turn: int) -> float:
        return 0.02 * ((hash_of(key) + turn) % 3)

    told = []
    for pause in (None, slow):
        policy = opened(lockstep=True, patience_s=3600)

        async def live(key: str, policy=policy, pause=pause) -> list[ChatReply]:
            async with policy.episode(key):
                await asyncio.sleep(0)  # until all of them live: one that comes later is in a later batch
                return await conversation(policy, key, 2 + hash_of(key) % 3, pause=pause)

        keys = [f"e{number}" for number in range(7)]
        told.append(
            [[one.tokens for one in await done] for done in [asyncio.ensure_future(live(k)) for k in keys]]
        )
        assert policy.impatient == 0
    assert told[0] == told[1]  # log-probs to the last bit


def hash_of(key: str) -> int:
    return int(key[1:])


async def test_without_live_episodes_lockstep_answers_as_they_come(
    opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, step, ended = threading.Event(), RunningBatch.step, []

    def once_both_are_asked(batch: RunningBatch) -> object:
        asked.wait(60)
        return step(batch)

    async def chat(name: str, most: int) -> None:
        await policy.chat(asks(name, seed=0, most=most))
        ended.append(name)

    monkeypatch.setattr(RunningBatch, "step", once_both_are_asked)
    policy = opened(lockstep=True)
    long = asyncio.create_task(chat("long", 400))
    await taken_in(policy)
    short = asyncio.create_task(chat("y", 2))
    await asyncio.sleep(0)
    assert len(policy._engine._waiting) == 1
    asked.set()
    await asyncio.gather(long, short)
    assert ended == ["y", "long"]


async def test_lockstep_does_not_wait_for_ever(opened) -> None:
    policy = opened(lockstep=True, patience_s=0.1)  # expires: the idle one never asks
    async with policy.episode("idle"), policy.episode("e1"):
        reply = await policy.chat(asks("x", key="e1"))
        stranger = await policy.chat(asks("x", key="judge"))
    assert reply.tokens.ids == stranger.tokens.ids
    assert policy.impatient == 1


async def test_an_error_in_the_engine_is_told_to_those_it_hits_and_to_nobody_else(
    policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Network, "read", broken)
    done = await asyncio.gather(
        *(policy.chat(asks("x", seed=one)) for one in range(3)), return_exceptions=True
    )
    assert {(type(one), one.kind) for one in done} == {(EndpointError, "server")}
    assert "out of memory" in str(done[0])
    monkeypatch.undo()
    assert (await policy.chat(asks("x"))).completion_tokens > 0


async def test_a_closed_policy_answers_nobody_and_lets_nobody_wait(opened) -> None:
    policy = opened(window_s=3600)
    waiting = asyncio.create_task(policy.chat(asks("x")))
    await wait_until_async(lambda: policy._engine._waiting, "the question")
    policy.close()
    policy.close()
    for asked in (waiting, policy.chat(asks("x")), policy.score([[1, 2]])):
        with pytest.raises(EndpointError, match="closed") as failed:
            await asked
        assert failed.value.kind == "connection"


async def test_who_gives_up_costs_nobody_else_anything(policy) -> None:
    given_up = asyncio.create_task(policy.chat(asks("x", most=400)))
    other = asyncio.create_task(policy.chat(asks("y", seed=9)))
    await taken_in(policy)
    given_up.cancel()
    assert (await other).completion_tokens > 0


def test_threads_with_loops_of_their_own_share_the_engine(policy) -> None:
    found: dict[int, ChatReply] = {}

    def one(number: int) -> None:
        found[number] = asyncio.run(policy.chat(asks("x", seed=number % 2)))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({found[number].tokens.ids for number in range(6)}) == 2
    assert len({found[number].tokens.ids for number in (0, 2, 4)}) == 1


async def test_weights_of_another_model_or_tokenizer_are_not_loaded(
    policy, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="another architecture"):
        await policy.load(write_double(tmp_path / "short", context=256), "v1")
    with pytest.raises(UserError, match="another architecture or vocabulary"):
        await policy.load(write_double(tmp_path / "wide", context=512, vocab=320), "v1")
    other = write_double(tmp_path / "words", context=512)
    text = (other / "tokenizer.json").read_text()
    (other / "tokenizer.json").write_text(text.replace("get_order", "got_order"))
    with pytest.raises(UserError, match=r"tokenizer\.json: not the tokenizer of"):
        await policy.load(other, "v1")
    (other / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"tokenizer\.json: cannot be read"):
        await policy.load(other, "v1")
    assert policy.version == "v0"


async def test_weights_with_another_chat_template_are_not_loaded(policy, tmp_path: Path) -> None:
    other = write_double(tmp_path, context=512)
    template = other / "chat_template.jinja"
    text = template.read_text()
    template.write_text(text.replace("<tool_response>", "<told>"))
    with pytest.raises(UserError, match="not the chat template of"):
        await policy.load(other, "v1")
    template.unlink()  # older versions of the library keep it in the tokenizer's settings
    settings = other / "tokenizer_config.json"
    said = json.loads(settings.read_text())
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": text + " "}]
    for changed in (text + " ", named):
        settings.write_text(json.dumps(said | {"chat_template": changed}))
        with pytest.raises(UserError, match="not the chat template of"):
            await policy.load(other, "v1")
    assert policy.version == "v0"
    for same in (text, [{"name": "default", "template": text}], None):
        settings.write_text(json.dumps(said | {"chat_template": same}))
        await policy.load(other, "v1")
    assert policy.version == "v1"


async def test_a_tokenizer_that_was_only_written_anew_is_the_same(policy, tmp_path: Path) -> None:
    other = write_double(tmp_path, context=512)
    said = json.loads((other / "tokenizer.json").read_text())
    (other / "tokenizer.json").write_text(json.dumps(said | {"padding": None}, indent=1))
    await policy.load(other, "v1")
    assert policy.version == "v1"


def test_without_the_extra_it_is_named() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from dreamgym_kit.adapters.models.local import open_local\n"
        "from dreamgym_kit.errors import MissingExtra\n"
        "try: open_local(Path('x'))\n"
        "except MissingExtra as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "a policy in process needs an extra: pip install 'dreamgym-kit[train]'\n", (
        done.stderr
    )


def test_top_p_leaves_the_likeliest_and_says_that_it_chose(policy) -> None:
    request = ChatRequest(
        [ChatMessage("user", "x")], temperature=1.0, top_p=1e-9, seed=4, max_tokens=12, exact=True
    )
    narrow = asyncio.run(policy.chat(request))
    greedy = asyncio.run(
        policy.chat(ChatRequest(request.messages, temperature=0.0, max_tokens=12, exact=True))
    )
    assert narrow.tokens.ids == greedy.tokens.ids
    assert (narrow.tokens.constrained, greedy.tokens.constrained) == (True, False)
