"""Choices of labels by chat models of every shape: ways, errors, many at once."""

import asyncio
import re
import threading
import time
from typing import Any

import pytest
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag.models import chat_model as model_calls
from selfcorrect_rag.models.chat_model import label_ids
from selfcorrect_rag.models.classification import (
    ABSENT,
    ChatClassifier,
    Classification,
    ClassificationCounts,
    LabelField,
)
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS, RETRIEVE
from tests.classifications import BOTH, FULLY, IRRELEVANT, NONE, RELEVANCE, RELEVANT, chosen
from tests.providers import (
    LOGPROBS,
    REFUSES,
    VLLM,
    Provider,
    RateLimited,
    Slow,
    Streaming,
    ToolCaller,
)

# What a provider can do is found out once


def test_a_vllm_server_is_held_to_the_labels() -> None:
    pieces = [("[Rel", 0.75, {"[Ir": 0.25}), ("evant]", 1.0)]
    model = Provider(answer=lambda p: pieces, extra_body={"chat_template_kwargs": 1}, **VLLM)
    classifier = ChatClassifier(model)
    classifier.classify([RELEVANCE])
    assert classifier.mode == "constrained"
    ((_, options),) = model.calls
    assert options["extra_body"] == {
        "chat_template_kwargs": 1,
        "structured_outputs": {"choice": [RELEVANT, IRRELEVANT]},
    }
    assert (options["logprobs"], options["top_logprobs"], options["temperature"]) == (True, 20, 0)
    assert options["max_tokens"] >= len(IRRELEVANT)
    classifier.classify([BOTH])
    regex = model.calls[-1][1]["extra_body"]["structured_outputs"]["regex"]
    assert re.fullmatch(regex, f"Score: {NONE}\nPerceived utility: 5")
    assert not re.fullmatch(regex, "Score: 5\nPerceived utility: 5")


def test_chosen_ids_are_asked_for_where_the_tokenizer_is_known() -> None:
    class Letters:
        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            assert not add_special_tokens
            return [ord(c) for c in text]

    model = Provider(answer=lambda p: [("[Relevant]", 0.5)], **VLLM)
    ChatClassifier(model, tokenizer=Letters()).classify([RELEVANCE])
    ids = model.calls[0][1]["extra_body"]["logprob_token_ids"]
    assert ids == label_ids(Letters(), RELEVANCE)
    assert {chr(i) for i in ids} == set("[Relevant] Irrelevant")


@pytest.mark.parametrize(
    ("model", "way", "calls"),
    [
        (Provider(answer=lambda p: "[Relevant]", **LOGPROBS), "logprobs", 2),
        (Streaming(answer=lambda p: [("[Rel", 0.9), ("evant]", 1.0)], **LOGPROBS), "logprobs", 2),
        (ToolCaller(answer=lambda p: "[Relevant]", **REFUSES), "structured", 3),
        (ToolCaller(answer=lambda p: "[Relevant]"), "structured", 2),
        (Provider(answer=lambda p: "[Relevant]", **REFUSES), "text", 3),
        (Provider(answer=lambda p: "[Relevant]"), "text", 1),
        (RunnableLambda(lambda prompt: "[Relevant]\nExplanation: so."), "text", None),
        (FakeListLLM(responses=["[Relevant]"]), "text", None),
        (Provider(answer=lambda p: "[Relevant]", **LOGPROBS).with_retry(), "logprobs", 2),
        (Provider(answer=lambda p: "[Relevant]", **LOGPROBS).bind(top_p=1), "logprobs", 2),
    ],
)
async def test_modes(model: Any, way: str, calls: int | None) -> None:
    first, second = ChatClassifier(model), ChatClassifier(model)
    (answer,) = first.classify([RELEVANCE])
    before = len(answer.predictions)
    assert before == 1
    prediction = answer.predictions[0]
    assert prediction is not None
    assert (first.mode, prediction.label) == (way, RELEVANT)
    assert prediction.is_hard == (way in ("structured", "text"))
    if prediction.is_hard:
        assert prediction.logprobs == {RELEVANT: 0.0, IRRELEVANT: ABSENT}
    if calls is not None:
        assert answer.usage.requests == calls
    (again,) = first.classify([RELEVANCE])
    assert again.usage.requests == 1, "once is enough"
    (later,) = await second.aclassify([RELEVANCE])
    assert later == answer


def test_no_option_is_sent_again_after_it_was_refused() -> None:
    model = Provider(answer=lambda p: "[Yes]", **REFUSES)
    classifier = ChatClassifier(model)
    for _ in range(3):
        classifier.classify(
            [Classification("Need retrieval?", (LabelField(RETRIEVE.label_parser),))] * 2
        )
    assert [sorted(options) for _, options in model.calls] == [
        ["extra_body", "logprobs", "max_tokens", "temperature", "top_logprobs"],
        ["logprobs", "max_tokens", "temperature", "top_logprobs"],
        *[[]] * 6,
    ]


def test_structured_output_that_does_not_come_is_no_way() -> None:
    class NoTools(ToolCaller):
        def _arguments(self, text: str) -> Any:
            return {}

        def _message(self, messages: Any, options: dict[str, Any]) -> Any:
            message = super()._message(messages, options)
            message.tool_calls = []
            return message

    model = NoTools(answer=lambda p: "[Relevant]", **REFUSES)
    classifier = ChatClassifier(model)
    (answer,) = classifier.classify([RELEVANCE])
    assert (classifier.mode, answer.predictions[0].label) == ("text", RELEVANT)  # type: ignore[union-attr]


# Many at once


def test_threads_find_out_together() -> None:
    model = Slow(answer=lambda p: "[Relevant]", **REFUSES)
    classifier = ChatClassifier(model)
    threads = [threading.Thread(target=classifier.classify, args=([RELEVANCE],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(model.calls) == 2 + 8
    assert classifier.counts == ClassificationCounts(classifications=8)


async def test_event_loops_find_out_together_and_survive_a_cancelled_one() -> None:
    model = Slow(answer=lambda p: "[Relevant]", **REFUSES)
    classifier = ChatClassifier(model)
    tasks = [asyncio.create_task(classifier.aclassify([RELEVANCE])) for _ in range(4)]
    await asyncio.sleep(0.01)
    tasks[0].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert [a[0].predictions[0].label for a in answers[1:]] == [RELEVANT] * 3  # type: ignore[index]
    assert sum("logprobs" in o for _, o in model.calls) <= 4


def test_concurrency_is_bounded() -> None:
    running, most, lock = 0, 0, threading.Lock()
    three = threading.Barrier(3, timeout=30)

    def answer(prompt: str) -> str:
        nonlocal running, most
        if prompt:
            with lock:
                running += 1
                most = max(most, running)
            three.wait()
            time.sleep(0.01)
            with lock:
                running -= 1
        return "[Relevant]"

    first = RELEVANCE._replace(prompt="")
    ChatClassifier(Provider(answer=answer), max_concurrency=3).classify([first, *[RELEVANCE] * 9])
    assert most == 3
    with pytest.raises(ValueError, match="max_concurrency"):
        ChatClassifier(Provider(answer=answer), max_concurrency=0)


async def test_a_loop_that_is_blocked_waits_for_nobody() -> None:
    model = Slow(answer=lambda p: "[Relevant]")
    classifier = ChatClassifier(model)
    asked = asyncio.create_task(classifier.aclassify([RELEVANCE]))
    await asyncio.sleep(0.005)
    (answer,) = classifier.classify([RELEVANCE])
    assert answer == (await asked)[0]
    assert len(model.calls) == 2


# Malformed answers

MALFORMED = [
    "",
    "[Maybe]",
    "I am sorry, but I cannot help with that.",
    "[Relevant] or [Irrelevant]",
    "Relevant evidence would name the author, which this does not.",
    "The passage is well written. " * 40,
]


@pytest.mark.parametrize("shape", [LOGPROBS, VLLM, REFUSES])
@pytest.mark.parametrize("malformed", MALFORMED)
async def test_malformed_answers_are_asked_for_once_more_and_then_absent(
    malformed: str, shape: Any
) -> None:
    model = Provider(answer=lambda p: malformed, **shape)
    classifier = ChatClassifier(model)
    (answer,) = classifier.classify([RELEVANCE])
    assert answer.predictions == [None]
    assert answer.error is None
    assert classifier.counts == ClassificationCounts(classifications=1, retried=1, absent=1)
    assert model.prompts[-1] == (
        "Rating:\n\nAnswer with nothing but one of these: [Relevant] or [Irrelevant]"
    )
    mended = Provider(answer=lambda p: "[Relevant]" if "nothing" in p else malformed, **shape)
    (answer,) = await ChatClassifier(mended).aclassify([RELEVANCE])
    assert answer.predictions[0].label == RELEVANT  # type: ignore[union-attr]


def test_malformed_structured_output() -> None:
    model = ToolCaller(answer=lambda p: "perhaps", **REFUSES)
    classifier = ChatClassifier(model)
    (answer,) = classifier.classify([RELEVANCE])
    assert (classifier.mode, answer.predictions, answer.usage.requests) == ("structured", [None], 4)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        (f"Score: {FULLY}", (FULLY, None)),
        (f"Score: {FULLY}\nScore: {NONE}\nPerceived utility: 4", (None, "4")),
        ("**Score:** fully supported\n- Perceived utility: 6", (FULLY, None)),
        (f"{FULLY}\n5", (None, None)),
    ],
)
def test_what_is_readable_of_several_labels_stays(text: str, labels: Any) -> None:
    classifier = ChatClassifier(Provider(answer=lambda p: text))
    (answer,) = classifier.classify([BOTH])
    assert tuple(prediction and prediction.label for prediction in answer.predictions) == labels
    assert classifier.counts.absent == labels.count(None)


# Errors


def test_a_rate_limit_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(model_calls.time, "sleep", waits.append)
    answers: list[Any] = ["[Relevant]", RateLimited("7"), "[Irrelevant]", RateLimited("999")]
    answers += [RateLimited("1"), RateLimited(), "[Relevant]"]
    classifier = ChatClassifier(Provider(answer=lambda p: answers.pop(0)))
    results = [classifier.classify([RELEVANCE])[0] for _ in range(5)]
    assert [r.predictions[0] and r.predictions[0].label for r in results] == [
        RELEVANT,
        IRRELEVANT,
        None,
        None,
        RELEVANT,
    ]
    assert [r.usage.requests for r in results] == [1, 2, 2, 1, 1]
    assert waits == [7.0, model_calls.MAX_RETRY_AFTER]
    assert isinstance(results[2].error, RateLimited)
    assert classifier.counts == ClassificationCounts(classifications=5, absent=2, failed=2)


async def test_the_async_twin_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(model_calls.asyncio, "sleep", sleep)
    answers: list[Any] = [RateLimited("0.5"), "[Relevant]"]
    (answer,) = await ChatClassifier(Provider(answer=lambda p: answers.pop(0))).aclassify(
        [RELEVANCE]
    )
    assert (waits, answer.usage.requests) == ([0.5], 2)


def test_an_error_teaches_nothing_about_the_model() -> None:
    answers: list[Any] = [RateLimited(), *["[Relevant]"] * 3]
    classifier = ChatClassifier(Provider(answer=lambda p: answers.pop(0), **VLLM))
    failed = classifier.classify([RELEVANCE] * 3)
    assert classifier.mode is None
    assert [type(a.error) for a in failed] == [RateLimited] * 3
    assert [a.usage.requests for a in failed] == [1, 0, 0], "the others are not sent after it"
    assert [a.error for a in classifier.classify([RELEVANCE] * 3)] == [None] * 3
    assert classifier.mode == "constrained"


def test_a_model_that_refuses_everything() -> None:
    classifier = ChatClassifier(Provider(answer=lambda p: ValueError("too long")))
    (answer,) = classifier.classify([RELEVANCE])
    assert (answer.predictions, str(answer.error), classifier.mode) == ([None], "too long", None)


def test_every_table_has_a_form() -> None:
    for prompt in CRITIQUE_PROMPTS.values():
        for label, token in prompt.tokens_by_label.items():
            form = Classification("", (LabelField(prompt.label_parser),))
            prediction = chosen(Provider(answer=lambda p, label=label: label), form)
            assert prompt.tokens_by_label[prediction.label] == token


def test_nothing_to_ask() -> None:
    model = Provider(answer=lambda p: "")
    assert ChatClassifier(model).classify([]) == []
    assert model.calls == []
