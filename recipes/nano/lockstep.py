"""Many episodes at once on real desks, without LangGraph: all rows say one token, then all say the next.

The quickest honest way to see what a nano model does: the desks are real (SQLite in memory), the tools are
the desk's own, the judge is the desk's checker. Each row draws from its own seed, so that what it says does
not depend on its neighbours.

The forward pass is the maths of Qwen3 as plain tensor operations, with a cache, and nothing around it: on
models this small the framework around a layer costs more than the layer. A test holds it equal to
transformers' own model.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from dreamgym_kit.recipes.desk.cases import DeskCase, make_case
from dreamgym_kit.recipes.desk.checkers import differences, goal
from dreamgym_kit.recipes.desk.database import Desk, scratch_desk
from dreamgym_kit.recipes.nano.episodes import CallResult, DirectTools
from dreamgym_kit.recipes.nano.tokens import NanoTurn, Stream, request_text, told_text

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM


@dataclass(frozen=True, slots=True)
class _Layer:
    before: Tensor
    inward: Tensor  # queries, keys and values in one
    query_norm: Tensor
    key_norm: Tensor
    out: Tensor
    between: Tensor
    gate_up: Tensor
    down: Tensor


class Cache:
    """Keys and values of earlier tokens; row by row, place by place."""

    def __init__(self, layers: list[tuple[Tensor, Tensor]]) -> None:
        self.layers = layers

    def keep(self, rows: Tensor) -> "Cache":
        """The cache of some rows only."""
        return Cache([(keys[rows], values[rows]) for keys, values in self.layers])


class Decoder:
    """A snapshot of a model's weights that reads tokens and foretells the next ones."""

    def __init__(self, model: "Qwen3ForCausalLM") -> None:
        config = model.config
        self._heads, self._kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._size, self._epsilon = config.head_dim, config.rms_norm_eps
        weights = {name: weight.detach() for name, weight in model.state_dict().items()}
        self._embedding, self._head = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
        self._last_norm = weights["model.norm.weight"]
        self._layers = [_layer(weights, place) for place in range(config.num_hidden_layers)]
        theta = config.rope_parameters["rope_theta"]
        speed = 1.0 / theta ** (torch.arange(0, self._size, 2, dtype=torch.float32) / self._size)
        turned = torch.arange(config.max_position_embeddings, dtype=torch.float32)[:, None] * speed
        angle = torch.cat([turned, turned], -1)
        self._cos, self._sin = angle.cos().to(self._head), angle.sin().to(self._head)

    def new_cache(self, rows: int, length: int) -> Cache:
        """An empty cache for as many rows, each up to `length` tokens long."""
        shape = (rows, self._kv_heads, length, self._size)
        return Cache([(self._head.new_zeros(shape), self._head.new_zeros(shape)) for _ in self._layers])

    def read(self, ids: Tensor, places: Tensor, cache: Cache) -> Tensor:
        """Read tokens into the cache; gives the states behind them.

        Args:
            ids: shape [rows, tokens]; rows that have less to read are padded at the end.
            places: where each token stands in its row, the same shape. What padding writes is overwritten
                before anything looks at it.
            cache: of these rows; changed.

        Returns:
            States, shape [rows, tokens, width]; `logits` makes sense of them.
        """
        rows, tokens = ids.shape
        seen = int(places.max()) + 1
        mask = (torch.arange(seen)[None, None, :] <= places[:, :, None])[:, None]
        cos, sin = self._cos[places][:, None], self._sin[places][:, None]
        row = torch.arange(rows)[:, None]
        state = self._embedding[ids]
        for layer, (keys, values) in zip(self._layers, cache.layers, strict=True):
            parts = (self._norm(state, layer.before) @ layer.inward).view(rows, tokens, -1, self._size)
            query, key, value = parts.split([self._heads, self._kv_heads, self._kv_heads], 2)
            query = self._turn(self._norm(query, layer.query_norm).transpose(1, 2), cos, sin)
            key = self._turn(self._norm(key, layer.key_norm).transpose(1, 2), cos, sin)
            keys[row, :, places], values[row, :, places] = key.transpose(1, 2), value
            looked = scaled_dot_product_attention(
                query, keys[:, :, :seen], values[:, :, :seen], attn_mask=mask, enable_gqa=True
            )
            state = state + looked.transpose(1, 2).reshape(rows, tokens, -1) @ layer.out
            gate, up = (self._norm(state, layer.between) @ layer.gate_up).chunk(2, -1)
            state = state + (silu(gate) * up) @ layer.down
        return self._norm(state, self._last_norm)

    def logits(self, states: Tensor) -> Tensor:
        """What comes next, shape [..., vocabulary]."""
        return states @ self._head.T

    def _norm(self, state: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(state, (state.shape[-1],), weight, self._epsilon)

    def _turn(self, state: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = self._size // 2
        return state * cos + torch.cat([-state[..., half:], state[..., :half]], -1) * sin


def _layer(weights: dict[str, Tensor], place: int) -> _Layer:
    def named(name: str) -> Tensor:
        return weights[f"model.layers.{place}.{name}.weight"]

    inward = torch.cat([named(f"self_attn.{part}_proj") for part in "qkv"])
    return _Layer(
        before=named("input_layernorm"),
        inward=inward.T.contiguous(),
        query_norm=named("self_attn.q_norm"),
        key_norm=named("self_attn.k_norm"),
        out=named("self_attn.o_proj").T.contiguous(),
        between=named("post_attention_layernorm"),
        gate_up=torch.cat([named("mlp.gate_proj"), named("mlp.up_proj")]).T.contiguous(),
        down=named("mlp.down_proj").T.contiguous(),
    )


MAX_TURNS = 12  # LangGraph's default limit of 25 steps allows as many
MAX_SAID = 80  # tokens a turn
_CONTEXT = 768


@dataclass(slots=True)
class Played:
    """One episode as a model played it."""

    case: DeskCase
    ids: list[int]
    sampled: list[bool]  # which ids the model sampled
    logprobs: list[float]  # natural; 0.0 where it did not
    turns: list[tuple[NanoTurn, tuple[CallResult, ...]]] = field(default_factory=list)
    last_word: str | None = None  # None: it came to no end
    solved: bool = False

    @property
    def family(self) -> str:
        """What kind of request it was about."""
        return self.case.family


def play(
    decoder: Decoder, stream: Stream, seeds: Sequence[int], *, seed: int = 0, temperature: float = 1.0
) -> list[Played]:
    """Play one episode on the desk of each seed; temperature 0 takes the likeliest token.

    `seed` and the place in `seeds` decide what a row draws.
    """
    with contextlib.ExitStack() as open_desks, torch.inference_mode():
        rows = []
        for place, environment in enumerate(seeds):
            case = make_case(environment)
            desk = open_desks.enter_context(scratch_desk(case.rows))
            ids = stream.encode(request_text(case.text))
            played = Played(case, ids, [False] * len(ids), [0.0] * len(ids))
            rows.append(_Row(played, desk, _draws(seed, place)))
        _Rollout(decoder, stream, temperature).run(rows)
        for row in rows:
            row.judge()
    return [row.played for row in rows]


def _draws(seed: int, place: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed << 24) + place)


class _Row:
    """One episode under way."""

    def __init__(self, played: Played, desk: Desk, draws: torch.Generator) -> None:
        self.played, self.draws = played, draws
        self.unread = list(played.ids)  # given, and not yet read by the model
        self._desk = desk
        self._tools = DirectTools(desk)

    def hear(self, stream: Stream, ids: list[int], logprobs: list[float]) -> bool:
        """Take what the model said in this turn, make its calls; gives whether the episode goes on."""
        played = self.played
        played.ids += ids
        played.sampled += [True] * len(ids)
        played.logprobs += logprobs
        if ids[-1] != stream.end:
            return False
        reply = stream.read(ids)
        if not reply.calls:
            played.last_word = reply.text
            return False
        self._tools.begin_turn()
        answers = tuple(self._tools.call(name, args) for name, args in reply.calls)
        played.turns.append((reply, answers))
        answer = stream.encode(told_text(answers))
        if len(played.turns) == MAX_TURNS or len(played.ids) + len(answer) + MAX_SAID > _CONTEXT:
            return False
        self.unread = [ids[-1], *answer]  # the end token was said, but not read
        played.ids += answer
        played.sampled += [False] * len(answer)
        played.logprobs += [0.0] * len(answer)
        return True

    def judge(self) -> None:
        case = self.played.case
        wrong = differences(goal(case.seed, case.text), self._desk.books(), case.customer_id)
        self.played.solved = self.played.last_word is not None and not wrong


class _Rollout:
    def __init__(self, decoder: Decoder, stream: Stream, temperature: float) -> None:
        self._decoder, self._stream, self._temperature = decoder, stream, temperature

    def run(self, rows: list[_Row]) -> None:
        cache = self._decoder.new_cache(len(rows), _CONTEXT)
        while rows:
            turns = self._turn(rows, cache)
            on = [row.hear(self._stream, *turn) for row, turn in zip(rows, turns, strict=True)]
            if not all(on):
                cache = cache.keep(
                    torch.tensor([place for place, goes in enumerate(on) if goes], dtype=torch.long)
                )
                rows = [row for row, goes in zip(rows, on, strict=True) if goes]

    def _turn(self, rows: list[_Row], cache: Cache) -> list[tuple[list[int], list[float]]]:
        """One turn of every row: its sampled ids and their log-probs."""
        state, place = self._read(rows, cache)
        turns: list[tuple[list[int], list[float]]] = [([], []) for _ in rows]
        chances = torch.stack(
            [torch.rand(MAX_SAID, generator=row.draws, dtype=torch.float64) for row in rows]
        )
        silent = [False] * len(rows)
        for step in range(MAX_SAID):
            chosen, logprobs = self._choose(self._decoder.logits(state), chances[:, step])
            for row, (token, logprob) in enumerate(zip(chosen.tolist(), logprobs.tolist(), strict=True)):
                if not silent[row]:
                    turns[row][0].append(token)
                    turns[row][1].append(logprob)
                    silent[row] = token == self._stream.end
            if all(silent):
                break
            state = self._decoder.read(chosen[:, None], place[:, None], cache)[:, 0]
            place = place + 1
        return turns

    def _read(self, rows: list[_Row], cache: Cache) -> tuple[Tensor, Tensor]:
        """Let every row read what it was given; the state after it, and the place of what comes next."""
        counts = torch.tensor([len(row.unread) for row in rows])
        ends = torch.tensor([len(row.played.ids) for row in rows])
        longest = int(counts.max())
        ids = torch.tensor([row.unread + [self._stream.pad] * (longest - len(row.unread)) for row in rows])
        places = (ends - counts)[:, None] + torch.arange(longest)
        states = self._decoder.read(ids, places, cache)
        return states[torch.arange(len(rows)), counts - 1], ends

    def _choose(self, logits: Tensor, chances: Tensor) -> tuple[Tensor, Tensor]:
        """A token for each row, and its log-prob at the temperature (at 1 where that is 0)."""
        logprobs = torch.log_softmax(logits / (self._temperature or 1.0), -1)
        if self._temperature == 0:
            chosen = logprobs.argmax(-1)
        else:
            below = logprobs.double().exp().cumsum(-1)
            chosen = torch.searchsorted(below, chances[:, None] * below[:, -1:], right=True)[:, 0]
        return chosen, logprobs.gather(1, chosen[:, None])[:, 0]
