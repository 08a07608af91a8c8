import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra train is not installed")
import torch
from nano_double import save_untrained

from dreamgym_kit.recipes.nano.learn import repetition
from dreamgym_kit.recipes.nano.start import new_model
from dreamgym_kit.recipes.nano.tokens import build_tokenizer, ids_and_names


def copied(model: Any, tokenizer: Any) -> float:
    """The share of repeated tokens that the model foretells."""
    pool, chance = tokenizer.convert_tokens_to_ids(list(ids_and_names())), random.Random(1)
    right = asked = 0
    for _ in range(60):
        row = repetition(pool, tokenizer.pad_token_id, chance)
        ids = torch.tensor([row.ids])
        with torch.no_grad():
            foretold = model(ids).logits[0].argmax(-1)
        right += int((foretold[row.start_of_copy - 1 : -1] == ids[0, row.start_of_copy :]).sum())
        asked += len(row.ids) - row.start_of_copy
    return right / asked


def test_equal_seeds_start_equal_and_others_do_not() -> None:
    tokenizer = build_tokenizer()
    one, same, other = (new_model(tokenizer, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])


def test_making_a_model_leaves_the_callers_randomness_alone() -> None:
    torch.manual_seed(5)
    undisturbed = torch.rand(1)
    torch.manual_seed(5)
    new_model(build_tokenizer(), seed=3)
    assert torch.equal(torch.rand(1), undisturbed)


@pytest.mark.slow
def test_the_directory_loads_anywhere_and_others_may_read_it(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    save_untrained(tmp_path, seed=1)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert copied(model, tokenizer) > 0.9
    assert not model.config.tie_word_embeddings
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}
