"""Chat models: choices of labels, texts, and how long prompts may be."""

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import JsonOutputParser
from langchain_core.runnables import RunnableLambda
from pydantic import Field

from selfcorrect_rag.errors import ModelFailed
from selfcorrect_rag.models import chat_model
from selfcorrect_rag.models.classification import ABSENT, ChatClassifier, Classification
from selfcorrect_rag.prompts.critic import ISREL, ISSUP, ISUSE
from selfcorrect_rag.prompts.reading import LabelParser
from tests.providers import LOGPROBS, REFUSES, Provider, RateLimited, ToolCaller, content, saying

RELEVANCE = Classification("Rating:", (ISREL.label_parser(),))
SUPPORT = Classification("Score:", (ISSUP.label_parser(),))
UTILITY = Classification("Perceived utility:", (ISUSE.label_parser(),))
BOTH = Classification("?", (ISSUP.label_parser("Score"), ISUSE.label_parser("Perceived utility")))
FULLY, PARTIALLY, NONE = ISSUP.tokens_by_label
RELEVANT, IRRELEVANT = ISREL.tokens_by_label


def classify(model: Any, task: Classification) -> list[Any]:
    return ChatClassifier(model).classify([task])[0].predictions


def masses(*pieces: Any, task: Classification = SUPPORT) -> dict[str, float]:
    """The probabilities, not normalised, that an answer of these tokens gives."""
    (prediction,) = classify(Provider(answer=lambda prompt: list(pieces), **LOGPROBS), task)
    assert not prediction.is_hard
    return {label: math.exp(value) for label, value in prediction.logprobs.items()}


@pytest.mark.parametrize(
    ("model", "mode", "calls"),
    [
        (Provider(answer=lambda p: "[Relevant]", **LOGPROBS), "logprobs", 1),
        (ToolCaller(answer=lambda p: "[Relevant]", **REFUSES), "structured", 2),
        (ToolCaller(answer=lambda p: "[Relevant]"), "structured", 2),
        (Provider(answer=lambda p: "[Relevant]", **REFUSES), "text", 2),
        (Provider(answer=lambda p: "[Relevant]"), "text", 1),
        (FakeListLLM(responses=["[Relevant]"]), "text", 1),
        (Provider(answer=lambda p: "[Relevant]", **LOGPROBS).with_retry(), "logprobs", 1),
    ],
)
async def test_what_a_provider_can_do_is_detected_once(model: Any, mode: str, calls: int) -> None:
    classifier = ChatClassifier(model)
    (result,) = classifier.classify([RELEVANCE])
    assert (classifier.mode, len(result.results)) == (mode, calls)
    (prediction,) = result.predictions
    assert prediction is not None
    assert (prediction.label, prediction.is_hard) == (RELEVANT, mode != "logprobs")
    if prediction.is_hard:
        assert prediction.logprobs == {RELEVANT: 0.0, IRRELEVANT: ABSENT}
    assert len(classifier.classify([RELEVANCE])[0].results) == 1
    (other,) = await ChatClassifier(model).aclassify([RELEVANCE])
    assert (other.predictions, len(other.results)) == (result.predictions, calls)


def test_a_model_that_thinks_aloud_is_not_held_to_a_token_limit() -> None:
    pieces = [("<think>Is it [Irrelevant]?</think>", 1.0), ("[Relevant]", 0.9)]
    classifier = ChatClassifier(Provider(answer=lambda p: pieces, **LOGPROBS))
    (result,) = classifier.classify([RELEVANCE])
    assert result.predictions[0].label == RELEVANT  # type: ignore[union-attr]
    assert classifier.mode == "text"


def test_an_error_teaches_nothing_about_the_model() -> None:
    answers: list[Any] = [RateLimited(), *["[Relevant]"] * 3]
    classifier = ChatClassifier(Provider(answer=lambda p: answers.pop(0), **LOGPROBS))
    failed = classifier.classify([RELEVANCE] * 3)
    assert [type(result.error) for result in failed] == [RateLimited] * 3
    assert [result.error for result in classifier.classify([RELEVANCE] * 3)] == [None] * 3
    assert classifier.mode == "logprobs"


async def test_concurrent_calls_are_bounded_and_do_not_mix() -> None:
    labels = [RELEVANT, IRRELEVANT]
    tasks = [RELEVANCE._replace(prompt=label) for label in labels * 32]
    running, most = 0, 0

    async def answer(prompt: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return prompt

    classifier = ChatClassifier(RunnableLambda(lambda p: "", answer), max_concurrency=3)
    results = await classifier.aclassify(tasks)
    assert [r.predictions[0].label for r in results] == labels * 32  # type: ignore[union-attr]
    assert most == 3


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        # They part at the second token; the bracket alone says nothing.
        ([("[", 0.9), ("Fully", 0.6, {"Part": 0.3}), (" supported]", 1.0)], (0.54, 0.27, 0.0)),
        # Some of the first token's mass is already decided, in another spelling.
        (
            [("[", 0.8, {" No": 0.1}), ("Fully", 0.5, {"Part": 0.5}), (" supported]", 1.0)],
            (0.4, 0.4, 0.1),
        ),
        # A token that runs over the label's end, one that leads nowhere, one within a longer word.
        (
            [(FULLY + "\n", 0.6, {PARTIALLY + "\n": 0.1, "Sorry": 0.2, "Nobody": 0.1}), ("E", 1.0)],
            (0.6, 0.1, 0.0),
        ),
        # The first token of the label brings the end of the heading along.
        ([("Score: F", 0.5, {"Score: N": 0.25, "!": 0.25}), ("ully supported", 1)], (0.5, 0, 0.25)),
        ([("Score: F", 0.5, {"Grade: N": 0.25}), ("ully supported", 1)], (0.5, 0, 0)),
    ],
)
def test_distributions_by_hand(pieces: Any, expected: tuple[float, ...]) -> None:
    assert list(masses(*pieces).values()) == pytest.approx(expected, abs=1e-12)


def test_a_label_that_begins_another() -> None:
    task = Classification("", (LabelParser(("no", "no retrieval", "yes")),))
    pieces = [("no", 0.8, {"yes": 0.2}), (".", 0.75, {" ret": 0.25})]
    expected = {"no": 0.6, "no retrieval": 0.2, "yes": 0.2}
    assert masses(*pieces, task=task) == pytest.approx(expected)
    pieces[1:] = [("\n", 0.75, {" ret": 0.25}), ("Because", 0.5)]  # what follows counts no more
    assert masses(*pieces, task=task) == pytest.approx(expected)


def test_the_label_need_not_be_the_likeliest() -> None:
    unlikely = [("2", 0.1, {"5": 0.6, "4": 0.2})]
    (prediction,) = classify(Provider(answer=lambda p: unlikely, **LOGPROBS), UTILITY)
    assert (prediction.label, max(prediction.logprobs, key=prediction.logprobs.get)) == ("2", "5")


def test_reasoning_and_the_end_of_a_turn_are_not_part_of_the_answer() -> None:
    pieces = [("It is not [Relevant]?", 1.0), ("[Rel", 0.75, {"[Ir": 0.25}), ("evant]", 1.0)]
    logprobs = {"content": content([*pieces, ("<|end|>", 1.0)])}
    apart = AIMessage("[Relevant]", response_metadata={"logprobs": logprobs})
    (prediction,) = classify(Provider(answer=lambda p: apart), RELEVANCE)
    assert math.exp(prediction.logprobs[IRRELEVANT]) == pytest.approx(0.25)


def test_several_labels_in_one_answer() -> None:
    pieces = [("Score: [", 1.0), ("Part", 0.5, {"Fully": 0.25, "No": 0.25})]
    pieces += [("ially supported]\nPerceived utility: ", 1.0), ("4", 0.5, {"5": 0.375, "3": 0.125})]
    model = Provider(answer=lambda p: pieces, **LOGPROBS)
    (result,) = ChatClassifier(model).classify([BOTH])
    support, utility = (each for each in result.predictions if each)
    assert (support.label, utility.label) == (PARTIALLY, "4")
    assert math.exp(support.logprobs[FULLY]) == pytest.approx(0.25)
    assert math.exp(utility.logprobs["5"]) == pytest.approx(0.375)
    assert chat_model.usage_of(result.results) == (1, 10, 4)


@pytest.mark.parametrize("kind", [Provider, ToolCaller])
@pytest.mark.parametrize("malformed", ["", "[Relevant] or [Irrelevant]", "<think>[Relevant]", "so"])
async def test_a_malformed_answer_is_retried_once_then_absent(kind: Any, malformed: str) -> None:
    model = kind(answer=lambda p: malformed, **REFUSES)
    classifier = ChatClassifier(model)
    (result,) = classifier.classify([RELEVANCE])
    assert (result.predictions, result.error, len(result.results)) == ([None], None, 3)
    assert classifier.mode == ("structured" if kind is ToolCaller else "text")
    assert model.prompts[-1].endswith("nothing but one of these: [Relevant] or [Irrelevant]")
    mended = kind(answer=lambda p: "[Relevant]" if "nothing" in p else malformed, **REFUSES)
    (result,) = await ChatClassifier(mended).aclassify([RELEVANCE])
    assert result.predictions[0].label == RELEVANT


def test_a_server_that_ignores_the_schema_is_asked_for_text() -> None:
    class Ignoring(Provider):
        def with_structured_output(self, schema: Any, **options: Any) -> Any:
            parsed = JsonOutputParser()
            return self | (lambda raw: {"raw": raw, "parsed": parsed.invoke(raw)})

    classifier = ChatClassifier(Ignoring(answer=lambda prompt: "1: [Relevant]", **REFUSES))
    (result,) = classifier.classify([Classification("1:", (ISREL.label_parser("1"),))])
    assert classifier.mode == "text"
    assert [prediction.label for prediction in result.predictions] == [RELEVANT]


def test_readable_labels_of_several_stay() -> None:
    answers = [f"Score: {FULLY}\nScore: {NONE}\nPerceived utility: 4", "I do not know."]
    model = Provider(answer=lambda p: answers.pop(0), **LOGPROBS)
    support, utility = classify(model, BOTH)
    assert (support, utility.label) == (None, "4")


def test_no_call_at_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match="max_concurrency must be at least 1"):
        ChatClassifier(Provider(answer=lambda p: "yes"), max_concurrency=0)


@pytest.mark.parametrize(
    ("text", "answer", "reasoning"),
    [
        ("Opened in 1931 [1].", "Opened in 1931 [1].", ""),
        ("<think>\nDocument [2]? No.\n</think>\n\n1931 [1].", "1931 [1].", "Document [2]? No."),
        ("Document [2]? No.\n</think>\n\n1931 [1].", "1931 [1].", "Document [2]? No."),
        ("[THINK]So[/THINK]Yes", "Yes", "So"),
        ("<think>a</think>b<think>c</think>d", "bd", "a\nc"),
        ("<think>Cut while it thinks [1]", "", "Cut while it thinks [1]"),
        ("<think>a <think> b</think>c", "c", "a <think> b"),
        ("It opens with <think> and goes on.", "It opens with <think> and goes on.", ""),
    ],
)
def test_reasoning_is_split_from_the_answer(text: str, answer: str, reasoning: str) -> None:
    assert chat_model.split_reasoning(text) == (answer, reasoning)
    assert chat_model.written_text(text) == chat_model.written_text(AIMessage(text)) == answer


@given(st.lists(st.sampled_from(["<think>", "</think>", "[1] ", "no ", "\n"]), max_size=12))
def test_no_thought_after_an_opening_tag_is_left(parts: list[str]) -> None:
    thought = "<think>[2] maybe</think>"
    answer, reasoning = chat_model.split_reasoning(thought + "".join(parts))
    assert "[2]" not in answer
    assert "[2] maybe" in reasoning


def test_blocks_of_a_message() -> None:
    blocks: list[Any] = [
        {"type": "reasoning", "reasoning": "Document [2]?", "text": "Document [2]?"},
        {"type": "thinking", "thinking": "No."},
        {"type": "text", "text": "Opened in 1931 [1]."},
        " So it was.",
    ]
    assert chat_model.written_text(AIMessage(blocks)) == "Opened in 1931 [1]. So it was."
    assert chat_model.written_text("a\ud800") == "a\ufffd"


def test_an_answer_cut_at_its_limit() -> None:
    def was_cut(**metadata: Any) -> bool:
        return chat_model.was_cut(AIMessage("x", response_metadata=metadata))

    assert was_cut(finish_reason="MAX_TOKENS")
    assert was_cut(stop_reason="max_tokens")
    assert was_cut(incomplete_details={"reason": "max_output_tokens"})
    assert not was_cut(finish_reason="stop", incomplete_details=None)


def test_how_long_a_prompt_may_be() -> None:
    class Counting(FakeListChatModel):
        profile: Any = Field(default={"max_input_tokens": 50})

        def get_token_ids(self, text: str) -> list[int]:
            return [0] * len(text.split())

    model = Counting(responses=[""])
    assert chat_model.prompt_limit(model, 10) == 50
    assert chat_model.prompt_limit(model, 10, context_tokens=100) == 90
    assert chat_model.prompt_limit(model, 80, context_tokens=100) == 50, "half is for the prompt"
    assert chat_model.prompt_limit(saying(""), 10) is None
    assert [chat_model.exceeds(model, "word " * n, 50) for n in (50, 51)] == [False, True]
    assert not chat_model.exceeds(saying(""), "a" * 150, 50), "three characters a token"
    assert chat_model.exceeds(saying(""), "a" * 151, 50)

    class Offline(FakeListChatModel):
        def get_token_ids(self, text: str) -> list[int]:
            raise ConnectionError("no vocabulary at http://ada:secret@host")

    with pytest.raises(ModelFailed, match=r"no vocabulary at http://\*\*\*@host"):
        chat_model.exceeds(Offline(responses=[""]), "a" * 151, 50)
