"""Short form, with the official scores; and prompts longer than the model's context."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from langchain_core.documents import Document

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts import decision_prompt, segment_prompt
from selfcorrect_rag.reflection import TOKENS, UTILITY, Group
from tests.conftest import byte_level_tokenizer, talkative
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedLLM, document, segment

LIMIT = 40
QUESTIONS = [f"Question {i}: who wrote it?" for i in range(4)]
PASSAGES = [Document(f"The text of {t}.", metadata={"title": t}, id=t) for t in "ABCDE"]

Step = tuple[str | None, Mapping[str, float]]
"""A generated token, where it is a control token, and the log-probability of each of them."""


def decoded(llm: TransformersReflectionLLM, question: str, place: int) -> tuple[list[Step], float]:
    """Return plain greedy decoding's answer for a passage, and the log-probability of all of it."""
    tokenizer, model = llm._tokenizer, llm._model
    (prompt,) = tokenizer.encode([segment_prompt(question, [], PASSAGES, "retrieve", place)])
    names = {token_id: token for token, token_id in tokenizer.control_ids.items()}
    ids, steps, total = list(prompt.ids), [], 0.0
    for _ in range(LIMIT):
        with torch.no_grad():
            logprobs = model(torch.tensor([ids])).logits[0, -1].float().log_softmax(-1)
        token_id = int(logprobs.argmax())
        total += float(logprobs[token_id])
        control = {name: float(logprobs[i]) for i, name in names.items()}
        steps.append((names.get(token_id), control))
        ids.append(token_id)
        if token_id == tokenizer.eos_id:
            break
    return steps, total


def official_score(steps: Sequence[Step], total: float) -> float:
    """Relevance, support, utility and probability as the official short form adds them up.

    Of its code (run_short_form.py): relevance from the first position, support and utility from
    the first position that holds such a token, and exp of the mean log-probability of all tokens;
    weights of the paper.
    """

    def shares(position: int, tokens: Sequence[str]) -> list[float]:
        values = [math.exp(steps[position][1][token]) for token in tokens]
        return [value / sum(values) for value in values]

    def first(tokens: Sequence[str]) -> int | None:
        return next((i for i, (token, _) in enumerate(steps) if token in tokens), None)

    score = shares(0, ("[Relevant]", "[Irrelevant]"))[0] + math.exp(total / len(steps))
    if (position := first(TOKENS[Group.ISSUP])) is not None:
        full, partly, _ = shares(position, TOKENS[Group.ISSUP])
        score += full + 0.5 * partly
    if (position := first(UTILITY)) is not None:
        each = zip((-1, -0.5, 0, 0.5, 1), shares(position, UTILITY), strict=True)
        score += 0.5 * sum(value * share for value, share in each)
    return score


def test_scores_are_the_official_ones_on_the_same_log_probabilities() -> None:
    context: Any = {"mode": "always", "form": "short", "segment_tokens": LIMIT}
    past_retrieval = useful = 0
    with talkative() as llm:
        begin_with_isrel(llm)
        for question in QUESTIONS:
            graph = create_self_rag(llm, lambda _: PASSAGES)
            candidates = graph.invoke({"question": question}, context=context)["candidates"]
            assert [c["passage"] for c in candidates] == list(range(len(PASSAGES)))
            for place, candidate in enumerate(candidates):
                steps, total = decoded(llm, question, place)
                controls = [token for token, _ in steps if token]
                written = [p["text"] for p in candidate["pieces"] if p["kind"] == "control"]
                assert written == controls
                assert candidate["score"] == pytest.approx(official_score(steps, total), abs=1e-4)
                past_retrieval += any(token in TOKENS[Group.RETRIEVE] for token in controls)
                useful += any(token in UTILITY for token in controls)
    assert min(past_retrieval, useful) >= 5, "nothing was compared behind a retrieval token"


def begin_with_isrel(llm: TransformersReflectionLLM) -> None:
    """Make [Irrelevant] and [Relevant] about as likely as what the random model begins with."""
    ids, weights = llm._tokenizer.control_ids, llm._model.lm_head.weight
    torch.manual_seed(1)
    with torch.no_grad():
        likely = weights[ids["[No support / Contradictory]"]]
        for token in TOKENS[Group.ISREL]:
            weights[ids[token]] = likely + 0.5 * torch.randn(len(likely))


def test_an_answer_is_written_past_retrieval_tokens_and_ends_there() -> None:
    llm = ScriptedLLM(write=lambda _: segment("From A.", RELEVANT, FULL, USEFUL))
    graph: Any = create_self_rag(llm, lambda _: PASSAGES[:1])
    for context in ({"form": "short", "depth": 1}, {"closed_set": True}, {"options": ["from a"]}):
        result = graph.invoke({"question": "Who?"}, context=context)
        assert llm._options[-1]["stop_at_retrieval"] is False
        assert result["answer"].casefold().startswith("from a")
        assert result["notes"] == []
    graph.invoke({"question": "Who?"})
    assert llm._options[-1]["stop_at_retrieval"]


def test_passages_are_cut_first_and_the_earlier_ones_before_the_newest() -> None:
    tokenizer = ControlledTokenizer(byte_level_tokenizer())
    old, new = document("O", "old " * 50), document("N", "new " * 50)
    written = {"step": "retrieve", "passage": 0, "pieces": [{"kind": "text", "text": "said " * 9}]}
    prompt = segment_prompt("Who? " * 10, [written], [old, new], "retrieve", 1)  # type: ignore[list-item]
    length = len(tokenizer.encode([prompt])[0].ids)
    for cut in (50, 420):
        text = tokenizer.text(tokenizer.encode([prompt], length - cut)[0].ids)
        assert "### Response:" in text
        assert text.count("Who?") == 10, "the question is cut last"
        assert text.count("old") < 50
        assert text.count("new") == 50 or "old" not in text, "earlier passages are cut first"


def test_what_is_longer_than_the_context_is_cut_and_a_run_says_so() -> None:
    llm = talkative()
    (segment,) = llm.generate_segments([decision_prompt("word " * 3000)], max_tokens=10)
    assert segment["shortened"] > 2000
    assert segment["prompt_tokens"] + segment["tokens"] <= llm.context_tokens
    assert segment["tokens"] >= 1
    graph: Any = create_self_rag(llm, lambda query: [document("A", "very long " * 500)])
    result = graph.invoke({"question": "Who?"}, context={"mode": "always", "depth": 1})
    assert any("longer than the model's context" in note for note in result["notes"])
    assert result["usage"]["generated_tokens"] > 0
