"""Keys and values that prompts share: the same results with and without, and no more work."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.models.engines.engine import Completion, Request
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.models.local import prefix_cache
from selfcorrect_rag.models.local.decoding import Decoder
from selfcorrect_rag.models.local.prefix_cache import PrefixCache
from selfcorrect_rag.models.local.scheduler import ScheduledCall
from selfcorrect_rag.nano import load_generator
from selfcorrect_rag.reflection import GROUP_OF, RETRIEVAL
from tests.conftest import byte_level_tokenizer, talkative
from tests.scripted import document

TOKENIZER = ControlledTokenizer(byte_level_tokenizer())
CONTROL_IDS = TOKENIZER.control_ids
VOCABULARY = max(CONTROL_IDS.values()) + 1
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def llama(**options: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SMALL, **options)).eval()


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return llama()


EOS = TOKENIZER.eos_id or 0
LOGPROB_IDS = [CONTROL_IDS[token] for token in GROUP_OF]


def decode(decoder: Decoder, prompts: Sequence[list[int]], tokens: int = 6) -> list[Completion]:
    call = ScheduledCall(prompts, Request(tokens, LOGPROB_IDS), end_ids=[EOS])
    decoder(call.rows)
    return call.completions.result(timeout=0)


def plainly(model: PreTrainedModel, prompt: list[int], tokens: int = 6) -> Completion:
    """Each token by a forward pass of its own over all before it."""
    ids: list[int] = []
    logprobs: list[dict[int, float]] = []
    while len(ids) < tokens and EOS not in ids:
        with torch.inference_mode():
            row = model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, -1].log_softmax(-1)
        ids.append(int(row.argmax()))
        wanted = LOGPROB_IDS if ids[-1] in LOGPROB_IDS else ids[-1:]
        logprobs.append({i: float(row[i]) for i in wanted})
    return Completion(ids, logprobs, "stop" if EOS in ids else "length")


def assert_same(one: Completion, other: Completion) -> None:
    assert (one.ids, one.finish_reason) == (other.ids, other.finish_reason)
    for mine, its in zip(one.logprobs, other.logprobs, strict=True):
        assert mine == pytest.approx(its, abs=1e-5)


def batches(seed: int) -> Iterator[list[list[int]]]:
    """Prompts that begin like earlier ones, are earlier ones again, or only a part of one."""
    drawn = random.Random(seed)
    earlier: list[list[int]] = [[3]]
    for _ in range(5):
        batch = []
        for _ in range(drawn.randint(1, 7)):
            start = drawn.choice(earlier)
            kept = start[: drawn.choice([0, len(start), drawn.randint(0, len(start))])]
            size = drawn.choice([0, 1, drawn.randint(1, 30)])
            # Few ids, so that prompts go alike for a while by chance, too.
            new = [drawn.choice([5, 6, VOCABULARY - 3, VOCABULARY - 4]) for _ in range(size)]
            batch.append(kept + new or [4])
            earlier.append(batch[-1])
        yield batch


@pytest.mark.parametrize("limit", [0, 1, 25, 60, 10_000])
@pytest.mark.parametrize("pack", [1, 20, 512])
def test_reuse_changes_nothing(
    model: LlamaForCausalLM, limit: int, pack: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_cache, "PACK", pack)
    seen: dict[tuple[int, ...], Completion] = {}
    for seed in range(4):
        decoder = Decoder(model, limit)
        assert decoder._shares
        for batch in batches(seed):
            outputs = decode(decoder, batch)
            assert decoder.cache.tokens <= limit
            for prompt, output in zip(batch, outputs, strict=True):
                if tuple(prompt) not in seen:
                    seen[tuple(prompt)] = plainly(model, prompt)
                assert_same(output, seen[tuple(prompt)])


def test_prompts_that_are_all_there_do_not_see_each_other(model: LlamaForCausalLM) -> None:
    prompts = [[3, 5, 6, 7], [3, 5, 8], [3, 5, 6, 9, 5], [3, 5, 6], [3]]
    decoder = Decoder(model, 1000)
    decode(decoder, prompts)
    for prompt, output in zip(prompts, decode(decoder, prompts), strict=True):
        assert_same(output, plainly(model, prompt))


def test_what_was_generated_is_not_read_again(model: LlamaForCausalLM) -> None:
    decoder = Decoder(model, 1000)
    prompt = [3, 5, 6, 7, 8, 9]
    (written,) = decode(decoder, [prompt], tokens=8)
    assert len(written.ids) == 8
    further = [*prompt, *written.ids, 5, 6]
    counted = Counted(model)
    with counted:
        (output,) = decode(decoder, [further])
    assert counted.tokens == 3, "the last token written was never read, and two are new"
    assert_same(output, plainly(model, further))


# Work


class Counted:
    """Counts the prompt tokens that a model computes while this is open."""

    def __init__(self, model: Any) -> None:
        self._model, self.tokens = model, 0

    def __enter__(self) -> None:
        plain = self._model.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            if isinstance(kwargs["logits_to_keep"], torch.Tensor):  # the ends of prompts
                self.tokens += kwargs["input_ids"].numel()
            return plain(*args, **kwargs)

        self._model.forward = forward

    def __exit__(self, *_: object) -> None:
        del self._model.forward


def least(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens to compute where nothing is computed twice but the last of each prompt."""
    seen: set[tuple[int, ...]] = set()
    total = 0
    for prompt in prompts:
        beginnings = {tuple(prompt[: i + 1]) for i in range(len(prompt))}
        total += max(len(beginnings - seen), 1)
        seen |= beginnings
    return total


def test_a_long_form_reads_each_token_once() -> None:
    """Depth 4, 2 beams, 5 passages, by a model that asks for more wherever it would end."""
    llm = load_generator(device="cpu")
    model: Any = llm._model
    tokenizer: Any = llm._tokenizer
    swapped = [tokenizer.eos_id, tokenizer.control_ids[RETRIEVAL]]
    plain, encode = model.forward, tokenizer.encode
    prompts: list[list[int]] = []

    def forward(*args: Any, **kwargs: Any) -> Any:
        output = plain(*args, **kwargs)
        output.logits[..., swapped] = output.logits[..., swapped[::-1]]
        return output

    def kept(*args: Any) -> Any:
        encoded = encode(*args)
        prompts.extend(each.ids for each in encoded)
        return encoded

    model.forward, tokenizer.encode = forward, kept
    passages = [
        document(f"Oskar Lind {i}", f"He was born in 19{i}0 in Tarnholm.") for i in range(5)
    ]
    graph = create_self_rag(llm, lambda query: passages)
    settings: Any = {"mode": "always", "depth": 4, "beam_width": 2, "segment_tokens": 40}
    counted = Counted(model)
    with counted:
        result = graph.invoke({"question": "Where was Oskar Lind born?"}, context=settings)
    assert len(result["candidates"]) == len(prompts) == 5 + 3 * 10
    assert counted.tokens <= 1.1 * least(prompts)
    assert sum(map(len, prompts)) > 4 * counted.tokens


def test_prompts_of_a_batch_share_what_they_begin_with_without_a_cache(
    model: LlamaForCausalLM,
) -> None:
    begun = list(range(3, 43))
    prompts = [[*begun, 50 + i, 60] for i in range(5)]
    decoder = Decoder(model, 0)
    counted = Counted(model)
    with counted:
        decode(decoder, prompts)
    assert counted.tokens == 40 + 5 * 2
    assert decoder.cache.tokens == 0


# The tree


def states(ids: Sequence[int]) -> torch.Tensor:
    """States that tell where they belong, of shape (2, 1, tokens, 1)."""
    return torch.tensor(ids, dtype=torch.float32).view(1, 1, -1, 1).repeat(2, 1, 1, 1)


def read(cache: PrefixCache, ids: list[int]) -> None:
    for node in cache.leaf(ids).path:
        if node.states is None:
            node.states = states(node.ids)


def missing(cache: PrefixCache, ids: list[int]) -> int:
    """How many of ``ids`` would have to be computed; all that is there belongs to its ids."""
    path = cache.leaf(ids).path
    assert [i for node in path for i in node.ids] == ids
    for node in path:
        assert node.states is None or torch.equal(node.states, states(node.ids))
    new = [node for node in path if node.states is None]
    for node in new:
        assert node.parent is not None
        del node.parent.children[node.ids[0]]
    return sum(len(node.ids) for node in new)


def test_edges_split_where_ids_part() -> None:
    cache = PrefixCache(100)
    read(cache, [1, 2, 3, 4])
    leaf = cache.leaf([1, 2, 3, 4])
    read(cache, [1, 2, 5])
    read(cache, [1])
    assert cache.tokens == 5
    assert [node.ids for node in leaf.path] == [[1], [2], [3, 4]], "who holds an edge keeps its end"
    assert missing(cache, [1, 2, 3, 4, 6]) == 1
    assert missing(cache, [2, 3]) == 2


def test_what_was_used_last_stays() -> None:
    cache = PrefixCache(6)
    for ids in ([1, 2, 3], [1, 2, 4], [1, 2, 5]):
        read(cache, ids)
    read(cache, [1, 2, 3])
    read(cache, [7, 8])
    cache.evict()
    assert cache.tokens == 6
    assert missing(cache, [1, 2, 4]) == 1, "not used for longest"
    assert missing(cache, [1, 2, 3]) == 0
    assert missing(cache, [1, 2, 5]) == 0
    assert missing(cache, [7, 8]) == 0
    cache.limit = 1
    cache.evict()
    assert cache.tokens <= 1


def test_edges_own_their_memory() -> None:
    cache = PrefixCache(100)
    read(cache, list(range(1, 9)))
    read(cache, [1, 2, 20])
    for node in cache.leaf(list(range(1, 9))).path:
        assert node.states is not None
        assert node.states.untyped_storage().nbytes() == node.states.numel() * 4


def test_a_continuation_is_kept_only_where_its_prompt_is() -> None:
    cache = PrefixCache(100)
    read(cache, [1, 2])
    cache.keep([1, 2, 3, 4], states([3, 4]))
    cache.keep([1, 2, 3, 5], states([3, 5]))  # begins like the one before
    cache.keep([1, 2, 3], states([3]))
    cache.keep([8, 9], states([9]))
    assert missing(cache, [1, 2, 3, 4]) == missing(cache, [1, 2, 3, 5]) == 0
    assert cache.tokens == 5


# Models that go without


def without() -> Iterator[Any]:
    torch.manual_seed(0)
    small = {**SMALL, "sliding_window": 8}
    yield pytest.param(MistralForCausalLM(MistralConfig(**small)), id="sliding window")
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=2)
    config.initializer_range = 0.15
    yield pytest.param(GPT2LMHeadModel(config), id="learned positions")
    scaled = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
    yield pytest.param(llama(rope_parameters=scaled), id="positions scaled as you go")


@pytest.mark.parametrize("other", list(without()))
def test_models_whose_attention_is_not_plain_go_without(other: Any) -> None:
    decoder = Decoder(other.eval(), 1000)
    assert not decoder._shares
    prompts = [[3, *range(5, 25), i] for i in range(4)] + [[3, 5, 6]]
    for _ in range(2):
        for prompt, output in zip(prompts, decode(decoder, prompts, 8), strict=True):
            assert_same(output, plainly(other, prompt, 8))
    assert decoder.cache.tokens == 0


def test_eager_attention_shares_too() -> None:
    model = llama(attn_implementation="eager")
    decoder = Decoder(model, 1000)
    assert decoder._shares
    prompts = [[3, *range(5, 25), i] for i in range(4)] + [[3, 5, 6]]
    for _ in range(2):
        for prompt, output in zip(prompts, decode(decoder, prompts), strict=True):
            assert_same(output, plainly(model, prompt))


# Memory


@pytest.mark.parametrize("fails_at", [0, 3])
def test_where_memory_runs_out_the_cache_is_given_up(
    model: LlamaForCausalLM, fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = Decoder(model, 1000)
    prompts = [[3, 5, 6, 7], [3, 5, 8]]
    decode(decoder, [[9, *range(10, 40)]])
    forward, calls = model.forward, iter(range(100))

    def failing(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == fails_at:
            raise torch.OutOfMemoryError("no more")
        return forward(*args, **kwargs)

    monkeypatch.setattr(model, "forward", failing)
    outputs = decode(decoder, prompts)
    monkeypatch.undo()
    for prompt, output in zip(prompts, outputs, strict=True):
        assert_same(output, plainly(model, prompt))
    assert decoder.cache.tokens < 30, "what was there before has gone"


def test_memory_that_stays_out_is_an_error() -> None:
    llm = talkative()

    def failing(*args: Any, **kwargs: Any) -> Any:
        raise torch.OutOfMemoryError("no more")

    plain = llm._model.forward
    assert llm.invoke("Who?")
    llm._model.forward = failing
    with pytest.raises(EngineFailed, match="OutOfMemoryError: no more"):
        llm.invoke("Why?")
    llm._model.forward = plain
    assert llm.invoke("Who?") == talkative().invoke("Who?")


def test_what_samples_does_not_depend_on_what_was_asked_before() -> None:
    def drawn(llm: TransformersReflectionLLM) -> Any:
        return llm.generate(["Who?"], temperature=2.0, seed=1).generations

    fresh = drawn(talkative())
    used = talkative()
    used.invoke("Who? And when?")
    counted = Counted(used._model)
    with counted:
        assert drawn(used) == fresh
    assert counted.tokens == len(used.get_token_ids("Who?"))
