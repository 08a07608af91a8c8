"""Model directories that must not be loaded: each is named, with file and what to do, and nothing runs."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

pytest.importorskip("torch", reason="the extra train is not installed")

from nano_double import tokenizer_double, write_double

from dreamgym_kit.adapters.models.folders import load_model
from dreamgym_kit.adapters.models.local import open_local
from dreamgym_kit.errors import UserError


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_double(tmp_path_factory.mktemp("good"))


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def change(name: str, **values) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        said = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(said | values))

    return changed


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(folder / "ran")))


def pickle_named_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps(Bomb(folder / "ran")))


def cut_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def huge_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")


def header(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change the header of the weights, whose length and data stay."""

    def changed(folder: Path) -> None:
        path = folder / "model.safetensors"
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        tensors = json.loads(content[8 : 8 + length])
        change(tensors["lm_head.weight"])
        spelled = json.dumps(tensors, separators=(",", ":")).encode().ljust(length)
        path.write_bytes(len(spelled).to_bytes(8, "little") + spelled + content[8 + length :])

    return changed


def shard(name: str) -> Callable[[Path], None]:
    def sharded(folder: Path) -> None:
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"lm_head.weight": name}})
        )

    return sharded


def tensor_gone(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    held = load_file(folder / "model.safetensors")
    held.pop("model.layers.1.self_attn.q_norm.weight")
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})


def adapter(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")


def other_words(folder: Path) -> None:
    tokenizer_double(tuple(f"word{number}" for number in range(60))).save_pretrained(folder)


def no_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()


WRONG = {
    "pickle": (pickled, r"pytorch_model\.bin: a pickle may run code and is not loaded; .*save_pretrained"),
    "pickle_in_disguise": (pickle_named_safetensors, r"model\.safetensors: no "),
    "cut_off": (cut_off, r"model\.safetensors: no whole safetensors file .*copy it again"),
    "overlap": (
        header(lambda tensor: tensor.update(data_offsets=[at + 4 for at in tensor["data_offsets"]])),
        r"model\.safetensors: no whole safetensors file",
    ),
    "other_shape": (
        header(lambda tensor: tensor.update(shape=[1, 1])),
        r"model\.safetensors: no whole safetensors file",
    ),
    "huge_header": (huge_header, r"model\.safetensors: no safetensors file, or cut off"),
    "missing_shard": (shard("model-2.safetensors"), r"model-2\.safetensors: this shard is missing"),
    "shard_elsewhere": (
        shard("../../etc/passwd"),
        r"names the shard '\.\./\.\./etc/passwd', which is no file",
    ),
    "tensor_gone": (tensor_gone, r"the weights lack 'model\.layers\.1\.self_attn\.q_norm\.weight'"),
    "wrong_size": (change("config.json", hidden_size=64), "have another shape for"),
    "wrong_architecture": (change("config.json", model_type="llama"), "no place for .*another model"),
    "unknown_architecture": (
        change("config.json", model_type="brain"),
        r"config\.json: no causal language model",
    ),
    "no_language_model": (change("config.json", model_type="vit"), r"config\.json: no causal language model"),
    "code": (change("config.json", auto_map={"AutoModelForCausalLM": "evil.Model"}), "never run"),
    "tokenizer_code": (change("tokenizer_config.json", auto_map={"AutoTokenizer": "evil.T"}), "never run"),
    "quantised": (change("config.json", quantization_config={"bits": 4}), "quantised"),
    "adapter": (adapter, "holds a LoRA adapter without its model; merge it"),
    "torn_config": (lambda folder: (folder / "config.json").write_text("{"), r"config\.json: cannot be read"),
    "other_tokenizer": (other_words, r"tokenizer\.json: has the token id \d+, .*another model's tokenizer"),
    "no_template": (no_template, r"has no chat template; put the model's chat_template\.jinja there"),
    "no_tokenizer": (no_tokenizer, r"has no tokenizer\.json; put"),
    "gone": (shutil.rmtree, "no such directory"),
}


@each_row("name", WRONG)
def test_what_is_no_model_is_named_and_not_run(good: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    break_it, said = WRONG[name]
    break_it(folder)
    with pytest.raises(UserError, match=said) as refused:
        open_local(folder)
    assert str(refused.value).startswith(str(folder))
    assert "\n" not in str(refused.value)
    assert not (folder / "ran").exists()


@each_row("name", sorted(WRONG.keys() - {"other_tokenizer", "no_template", "no_tokenizer"}))
def test_a_trainer_refuses_the_same_weights(good: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    break_it, said = WRONG[name]
    break_it(folder)
    with pytest.raises(UserError, match=said):
        load_model(folder)
    assert not (folder / "ran").exists()
