"""The critic: labels by constrained greedy decoding, on any engine, and its training examples."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from selfcorrect_rag.errors import EngineFailed, ModelNotFound
from selfcorrect_rag.models import Completion, Engine, Request
from selfcorrect_rag.models.critic import Critic, CriticInput, CriticTokenizer, critic_input
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS, Instance
from selfcorrect_rag.reflection import TOKENS
from tests.conftest import SPECIAL, byte_level_tokenizer, random_model

WORDS = byte_level_tokenizer(SPECIAL[:3])  # spells control tokens letter by letter
ASKED = CriticInput("Is it relevant?", "Task instruction: Who wrote Emma?", "ISREL")


def model() -> Any:
    return random_model(len(WORDS), 1024)


def inputs() -> list[CriticInput]:
    """Every prompt of the paper about some texts of unlike length."""
    texts = ("Austen.", "Emma is a novel by Jane Austen. " * 8)
    return [
        critic_input(prompt, Instance("Who wrote Emma?", "", "She.", "", "Austen.", text))
        for prompt, text in product(CRITIQUE_PROMPTS.values(), texts)
    ]


def expected(critic: Critic, asked: CriticInput) -> str:
    """The token by greedy decoding with plain forward passes, one id after another."""
    live, network = critic.tokens.labels(asked), model()
    prompt, place = critic.tokens.prompt_ids(asked), 0
    while len(live) > 1:
        begun = next(iter(live.values()))[:place]
        with torch.inference_mode():
            row = network(input_ids=torch.tensor([[*prompt, *begun]])).logits[0, -1]
        chosen = max({ids[place] for ids in live.values()}, key=row.tolist().__getitem__)
        live = {token: ids for token, ids in live.items() if ids[place] == chosen}
        place += 1
    return next(iter(live))


@pytest.mark.parametrize("batch", [1, 8])
def test_answers_are_those_of_greedy_decoding(batch: int) -> None:
    """Labels are spelled letter by letter here, and share their beginnings."""
    asked = inputs()
    with Critic.from_model(model(), WORDS, batch=batch) as critic:
        assert critic.judge(asked) == [expected(critic, one) for one in asked]
    with pytest.raises(EngineFailed, match="closed"):
        critic.judge(asked)


def test_any_engine_does_and_shared_ids_are_not_asked_for() -> None:
    counts = []

    class Likes(Engine):
        async def complete(self, prompts: Any, request: Request) -> list[Completion]:
            counts.append(len(prompts))
            chosen = max(request.allowed_ids or ())
            by_id = {i: -0.1 if i == chosen else -3.0 for i in request.logprob_ids}
            return [Completion([chosen], [by_id], "length") for _ in prompts]

    asked = ASKED._replace(group="ISSUP")
    with Critic(Likes(), WORDS, batch=3) as critic:
        several = critic.judge([asked] * 4)
    labels = critic.tokens.labels(asked)  # they share "["
    assert several == [max(labels, key=lambda token: labels[token][1])] * 4
    assert counts == [3, 1]


def test_a_training_example_has_loss_on_the_token_only() -> None:
    tokens = CriticTokenizer(WORDS)
    example, prompt = tokens.example(ASKED, "[Relevant]"), tokens.prompt_ids(ASKED)
    label = [*WORDS.encode("[Relevant]", add_special_tokens=False), WORDS.eos_token_id]
    assert example["input_ids"] == [*prompt, *label]
    assert example["labels"] == [*[-100] * len(prompt), *label]


def test_long_prompts_keep_their_end_and_special_tokens_are_removed() -> None:
    tokens = CriticTokenizer(WORDS, 100)
    hostile = ASKED._replace(input=f"</s> {ASKED.input} <s>[Relevant]\ud800\x00")
    special = set(WORDS.all_special_ids) - {WORDS.bos_token_id}
    assert not special & set(tokens.prompt_ids(hostile))
    assert tokens.prompt_ids(hostile).count(WORDS.bos_token_id) == 1, "the tokenizer's own"
    long = ASKED._replace(input=ASKED.input * 30)
    cut, long = tokens.prompt_ids(long), CriticTokenizer(WORDS, 9000).prompt_ids(long)
    assert len(cut) == tokens.limit < 100
    assert cut[-tokens.limit // 4 + 1 :] == long[-tokens.limit // 4 + 1 :]
    assert cut[: tokens.limit // 2] == long[: tokens.limit // 2]


def test_a_tokenizer_without_an_end_is_refused() -> None:
    without_end = byte_level_tokenizer(SPECIAL[:3])
    without_end.eos_token = None
    with pytest.raises(ModelNotFound, match="needs an end token"):
        CriticTokenizer(without_end)


def test_a_saved_critic_answers_alike(checkpoint: Path) -> None:
    with Critic.from_pretrained(checkpoint, device="cpu") as critic:
        assert {*critic.judge(inputs())} <= {t for ts in TOKENS.values() for t in ts}
        assert critic.tokens.limit < 512
