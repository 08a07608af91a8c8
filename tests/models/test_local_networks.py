"""The engine's passes against the library's: any company, any pieces, any architecture that attends."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from each_row import each_row

torch = pytest.importorskip("torch", reason="the extra train is not installed")

from nano_double import model_double, write_double  # noqa: E402

from dreamgym_kit.adapters.models.folders import load_model  # noqa: E402
from dreamgym_kit.adapters.models.local_batch import (  # noqa: E402
    Ask,
    RunningBatch,
    sampling,
)
from dreamgym_kit.adapters.models.local_network import load_network, score  # noqa: E402
from dreamgym_kit.deployment.model_files import read_files  # noqa: E402
from dreamgym_kit.errors import UserError  # noqa: E402


def _nothing(said: Sequence[int]) -> str:
    """No history is asked for here."""
    return ""


def asked(number: int, length: int, most: int = 20, temperature: float = 1.0) -> Ask:
    drawn = torch.Generator().manual_seed(number)
    prompt = tuple(torch.randint(0, 250, (length,), generator=drawn).tolist())
    drawing = sampling(temperature, 1.0, number, most)
    return Ask(f"e{number}", prompt, "", _nothing, most, drawing, number, (), None)


def answers(network, asks, *, later: int = 0):
    """Ids and log-probs of each, the last `later` of them joining after five steps."""
    batch = RunningBatch(network, "v", ends=frozenset({258}), decode=str)
    found = {}
    with torch.inference_mode():
        batch.join([(ask, None, 0) for ask in asks[: len(asks) - later]])
        for step in range(10_000):
            if step == 5 and later:
                batch.join([(ask, None, 0) for ask in asks[len(asks) - later :]])
            if not batch.asks and step > 5:
                break
            found |= {ask.key: sampled for ask, sampled, _ in batch.step()}
    return [(found[ask.key].ids, found[ask.key].logprobs) for ask in asks]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_double(tmp_path_factory.mktemp("model"))


@pytest.mark.slow
def test_a_row_says_the_same_alone_in_company_and_when_others_join(folder: Path) -> None:
    network = load_network(read_files(folder))
    asks = [asked(number, 1 + 17 * number) for number in range(8)]
    together = answers(network, asks)
    for other in (answers(network, asks, later=3), [answers(network, [ask])[0] for ask in asks]):
        for (ids, logprobs), (same, near) in zip(together, other, strict=True):
            assert ids == same
            assert logprobs == pytest.approx(near, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_an_ordinary_padded_pass(folder: Path, temperature: float) -> None:
    files = read_files(folder)
    model = load_model(files.folder).eval()
    asks = [asked(number, 5 + 13 * (7 - number), temperature=temperature) for number in range(8)]
    said = answers(load_network(files), asks)
    whole = [[*ask.prompt, *ids] for ask, (ids, _) in zip(asks, said, strict=True)]
    longest = max(map(len, whole))
    padded = torch.tensor([[*row, *[257] * (longest - len(row))] for row in whole])
    with torch.no_grad():
        logprobs = (model(padded).logits.float() / temperature).log_softmax(-1)
    for row, ask, (ids, sampled) in zip(range(8), asks, said, strict=True):
        first = len(ask.prompt)
        again = [logprobs[row, first - 1 + at, token].item() for at, token in enumerate(ids)]
        assert sampled == pytest.approx(again, abs=1e-4)


def test_scores_are_the_same_in_pieces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = load_network(read_files(folder))
    rows = [asked(7, 90).prompt, asked(8, 2).prompt, (5,)]
    with torch.inference_mode():
        whole = score(network, rows)
        monkeypatch.setattr("dreamgym_kit.adapters.models.local_network._PIECE", 16)
        pieces = score(network, rows)
    assert [len(row) for row in whole] == [89, 1, 0]
    assert all(one == pytest.approx(other, abs=1e-5) for one, other in zip(whole, pieces, strict=True))


SMALL = {
    "vocab_size": 288, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip
MIXED = {"sliding_window": 8, "head_dim": 8, "layer_types": ["sliding_attention", "full_attention"]}
GPT2 = {"vocab_size": 288, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256, "eos_token_id": 258}


@pytest.mark.slow
@each_row(
    ("config", "model", "options"),
    [
        ("LlamaConfig", "LlamaForCausalLM", SMALL),
        ("Qwen2Config", "Qwen2ForCausalLM", SMALL),
        ("MistralConfig", "MistralForCausalLM", SMALL | {"sliding_window": 8}),
        ("Gemma3TextConfig", "Gemma3ForCausalLM", SMALL | MIXED),
        ("GPT2Config", "GPT2LMHeadModel", GPT2 | {"bos_token_id": 258}),
    ],
)
def test_other_architectures_are_served_as_they_are(
    tmp_path: Path, config: str, model: str, options: dict
) -> None:
    import transformers

    torch.manual_seed(1)
    made = getattr(transformers, model)(getattr(transformers, config)(**options))
    made.save_pretrained(tmp_path)
    files = read_files(tmp_path)
    plain, asks = load_model(tmp_path).eval(), [asked(number, 3 + 9 * number) for number in range(5)]
    for ask, (ids, logprobs) in zip(asks, answers(load_network(files), asks), strict=True):
        with torch.no_grad():
            told = plain(torch.tensor([[*ask.prompt, *ids]])).logits.float().log_softmax(-1)[0]
        again = [told[len(ask.prompt) - 1 + at, token].item() for at, token in enumerate(ids)]
        assert logprobs == pytest.approx(again, abs=1e-4)


def test_a_model_that_keeps_more_than_keys_and_values_is_refused(tmp_path: Path) -> None:
    from transformers import MambaConfig, MambaForCausalLM

    MambaForCausalLM(
        MambaConfig(vocab_size=288, hidden_size=32, num_hidden_layers=2, state_size=4)
    ).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"MambaForCausalLM cannot be served in process .* vLLM"):
        load_network(read_files(tmp_path))


def test_weights_that_give_nan_are_refused(tmp_path: Path) -> None:
    model = model_double()
    with torch.no_grad():
        model.model.norm.weight[0] = torch.nan
    model.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="NaN"):
        load_network(read_files(tmp_path))


@pytest.mark.slow
def test_prompts_that_come_longest_first_are_read_each_into_its_own_row(folder: Path) -> None:
    network = load_network(read_files(folder))
    asks = [asked(number, length) for number, length in enumerate((22, 15, 20, 14, 17))]
    alone = [answers(network, [ask])[0] for ask in asks]
    for one, other in zip(answers(network, asks), alone, strict=True):
        assert one[0] == other[0]
        assert one[1] == pytest.approx(other[1], abs=1e-5)
