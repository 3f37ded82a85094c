"""Choices of labels by chat models of every shape, with distributions worked out by hand."""

import asyncio
import math
import re
import threading
import time
from typing import Any

import pytest
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag.critic_prompts import ASPECTS, ISREL, ISSUP, ISUSE, RETRIEVE
from selfcorrect_rag.labels import Labels
from selfcorrect_rag.models import rounds
from selfcorrect_rag.models.choices import ChoiceCounts, Chooser
from selfcorrect_rag.models.forms import ABSENT, Choice, Form, Slot, label_ids
from selfcorrect_rag.reflection import probabilities
from tests.providers import (
    LOGPROBS,
    REFUSES,
    VLLM,
    Provider,
    RateLimited,
    Streaming,
    ToolCaller,
)

RELEVANCE = Form("Rating:", (Slot(ISREL.labels),))
SUPPORT = Form("Score:", (Slot(ISSUP.labels),))
UTILITY = Form("Perceived utility:", (Slot(ISUSE.labels),))
FULLY, PARTIALLY, NONE = ISSUP.labels.each
RELEVANT, IRRELEVANT = ISREL.labels.each
BOTH = Form("Both:", (Slot(ISSUP.labels, "Score"), Slot(ISUSE.labels, "Perceived utility")))


def chosen(model: Any, form: Form, **options: Any) -> Choice:
    (answer,) = Chooser(model, **options).choose([form])
    (choice,) = answer.choices
    assert choice is not None
    return choice


def given(*pieces: Any, form: Form = SUPPORT) -> dict[str, float]:
    """The probabilities, not normalised, that an answer of these tokens gives."""
    choice = chosen(Provider(answer=lambda prompt: list(pieces), **LOGPROBS), form)
    assert not choice.is_hard
    return {label: math.exp(value) for label, value in choice.logprobs.items()}


# Distributions


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        # One token a label.
        ([(FULLY, 0.7, {PARTIALLY: 0.2, NONE: 0.05})], (0.7, 0.2, 0.05)),
        # They part at the second token; the bracket alone says nothing.
        (
            [("[", 0.9), ("Fully", 0.6, {"Part": 0.3, "No": 0.1}), (" supported", 1.0), ("]", 1.0)],
            (0.54, 0.27, 0.09),
        ),
        # Some of the first token's mass is already decided, in another spelling.
        (
            [
                ("[", 0.8, {"Fully": 0.1, " No": 0.05, "I": 0.05}),
                ("Fully", 0.5, {"Part": 0.5}),
                (" supported]", 1.0),
            ],
            (0.1 + 0.4, 0.4, 0.05),
        ),
        # Letter by letter.
        (
            [("[", 1.0), ("P", 0.5, {"F": 0.25, "N": 0.125}), *((c, 1.0) for c in NONE[:0])]
            + [(c, 1.0) for c in "artially supported]"],
            (0.25, 0.5, 0.125),
        ),
        # A token that runs over the label's end, one that leads nowhere, one within a longer word.
        (
            [(FULLY + "\n", 0.6, {PARTIALLY + "\n": 0.1, "Sorry": 0.2, "Nobody": 0.1}), ("E", 1.0)],
            (0.6, 0.1, 0.0),
        ),
        # A heading, emphasis, lower case.
        (
            [
                ("Score", 1.0),
                (":", 1.0),
                (" **", 1.0),
                ("fully", 0.5, {"part": 0.5}),
                (" supported", 1.0),
                ("**", 1.0),
            ],
            (0.5, 0.5, 0.0),
        ),
        # The first token of the label brings the end of the heading along.
        ([("Score: ", 1.0), ("[Fully", 0.5, {"[No": 0.5}), (" supported]", 1.0)], (0.5, 0.0, 0.5)),
        (
            [("Score", 1.0), (": [F", 0.5, {": [N": 0.25, "!": 0.25}), ("ully supported]", 1.0)],
            (0.5, 0.0, 0.25),
        ),
    ],
)
def test_distributions_by_hand(pieces: Any, expected: tuple[float, ...]) -> None:
    assert list(given(*pieces).values()) == pytest.approx(expected, abs=1e-12)


def test_a_label_that_begins_another() -> None:
    form = Form("", (Slot(Labels(("no", "no retrieval", "yes"))),))
    pieces = [("no", 0.8, {"yes": 0.2}), (".", 0.75, {" ret": 0.25})]
    assert given(*pieces, form=form) == pytest.approx({"no": 0.6, "no retrieval": 0.2, "yes": 0.2})
    pieces = [("no", 0.8, {"yes": 0.2}), (" retrieval", 0.25, {"\n": 0.75})]
    found = given(*pieces, form=form)
    assert found == pytest.approx({"no": 0.0, "no retrieval": 0.2, "yes": 0.2}, abs=1e-12)


def test_what_is_left_out_is_shared_alike() -> None:
    """The scores are those of the mass that is known, as Eq. 3 normalises it."""
    choice = chosen(
        Provider(
            answer=lambda p: [
                ("[", 0.5, {" [": 0.5}),
                ("Fully", 0.8, {"No": 0.2}),
                (" supported]", 1.0),
            ],
            **LOGPROBS,
        ),
        SUPPORT,
    )
    assert choice.logprobs[PARTIALLY] == ABSENT
    assert probabilities(choice.logprobs) == pytest.approx(
        {FULLY: 0.8, PARTIALLY: 0.0, NONE: 0.2}, abs=1e-12
    )


def test_the_chosen_label_need_not_be_the_likeliest() -> None:
    pieces = [("2", 0.1, {"5": 0.6, "4": 0.2})]
    choice = chosen(Provider(answer=lambda p: pieces, **LOGPROBS), UTILITY)
    assert choice.label == "2"
    assert max(choice.logprobs, key=lambda label: choice.logprobs[label]) == "5"


def test_thoughts_and_the_end_of_a_turn_are_no_part_of_the_answer() -> None:
    class Thinking(Provider):
        def _message(self, *args: Any) -> Any:
            message = super()._message(*args)
            message.content = "[Relevant]"
            return message

    pieces = [
        ("Is it [Irrelevant]?", 1.0),
        ("</think>", 1.0),
        ("[Rel", 0.75, {"[Ir": 0.25}),
        ("evant]", 1.0),
        ("<|end|>", 1.0),
    ]
    choice = chosen(Thinking(answer=lambda p: pieces, **LOGPROBS), RELEVANCE)
    assert not choice.is_hard
    assert math.exp(choice.logprobs[IRRELEVANT]) == pytest.approx(0.25)


def test_several_labels_in_one_answer() -> None:
    pieces = [
        ("Score:", 1.0),
        (" [", 1.0),
        ("Part", 0.5, {"Fully": 0.25, "No": 0.25}),
        ("ially supported]", 1.0),
        ("\n", 1.0),
        ("Perceived utility", 1.0),
        (": ", 1.0),
        ("4", 0.5, {"5": 0.375, "3": 0.125}),
    ]
    (answer,) = Chooser(Provider(answer=lambda p: pieces, **LOGPROBS)).choose([BOTH])
    support, utility = answer.choices
    assert support is not None
    assert utility is not None
    assert (support.label, utility.label) == (PARTIALLY, "4")
    assert probabilities(support.logprobs) == pytest.approx(
        {FULLY: 0.25, PARTIALLY: 0.5, NONE: 0.25}
    )
    assert probabilities(utility.logprobs) == pytest.approx(
        {"1": 0, "2": 0, "3": 0.125, "4": 0.5, "5": 0.375}, abs=1e-12
    )
    assert answer.cost == (2, 10, 8), "the refused option is a request without tokens"


# What a provider can do is found out once


def test_a_vllm_server_is_held_to_the_labels() -> None:
    pieces = [("[Rel", 0.75, {"[Ir": 0.25}), ("evant]", 1.0)]
    model = Provider(answer=lambda p: pieces, extra_body={"chat_template_kwargs": 1}, **VLLM)
    chooser = Chooser(model)
    chooser.choose([RELEVANCE])
    assert chooser.way == "constrained"
    ((_, options),) = model.calls
    assert options["extra_body"] == {
        "chat_template_kwargs": 1,
        "structured_outputs": {"choice": [RELEVANT, IRRELEVANT]},
    }
    assert (options["logprobs"], options["top_logprobs"], options["temperature"]) == (True, 20, 0)
    assert options["max_tokens"] >= len(IRRELEVANT)
    chooser.choose([BOTH])
    regex = model.calls[-1][1]["extra_body"]["structured_outputs"]["regex"]
    assert re.fullmatch(regex, f"Score: {NONE}\nPerceived utility: 5")
    assert not re.fullmatch(regex, "Score: 5\nPerceived utility: 5")


def test_chosen_ids_are_asked_for_where_the_tokenizer_is_known() -> None:
    class Letters:
        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            assert not add_special_tokens
            return [ord(c) for c in text]

    model = Provider(answer=lambda p: [("[Relevant]", 0.5)], **VLLM)
    Chooser(model, tokenizer=Letters()).choose([RELEVANCE])
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
async def test_ways(model: Any, way: str, calls: int | None) -> None:
    first, second = Chooser(model), Chooser(model)
    (answer,) = first.choose([RELEVANCE])
    before = len(answer.choices)
    assert before == 1
    choice = answer.choices[0]
    assert choice is not None
    assert (first.way, choice.label) == (way, RELEVANT)
    assert choice.is_hard == (way in ("structured", "text"))
    if choice.is_hard:
        assert choice.logprobs == {RELEVANT: 0.0, IRRELEVANT: ABSENT}
    if calls is not None:
        assert answer.cost.requests == calls
    (again,) = first.choose([RELEVANCE])
    assert again.cost.requests == 1, "once is enough"
    (later,) = await second.achoose([RELEVANCE])
    assert later == answer


def test_no_option_is_sent_again_after_it_was_refused() -> None:
    model = Provider(answer=lambda p: "[Yes]", **REFUSES)
    chooser = Chooser(model)
    for _ in range(3):
        chooser.choose([Form("Need retrieval?", (Slot(RETRIEVE.labels),))] * 2)
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
    chooser = Chooser(model)
    (answer,) = chooser.choose([RELEVANCE])
    assert (chooser.way, answer.choices[0].label) == ("text", RELEVANT)  # type: ignore[union-attr]


# Many at once


class Slow(Provider):
    def _message(self, *args: Any) -> Any:
        time.sleep(0.02)
        return super()._message(*args)

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0.02)
        kwargs.pop("run_manager", None)
        return self._generate(messages, **kwargs)


def test_threads_find_out_together() -> None:
    model = Slow(answer=lambda p: "[Relevant]", **REFUSES)
    chooser = Chooser(model)
    threads = [threading.Thread(target=chooser.choose, args=([RELEVANCE],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(model.calls) == 2 + 8
    assert chooser.counts == ChoiceCounts(forms=8)


async def test_event_loops_find_out_together_and_survive_a_cancelled_one() -> None:
    model = Slow(answer=lambda p: "[Relevant]", **REFUSES)
    chooser = Chooser(model)
    tasks = [asyncio.create_task(chooser.achoose([RELEVANCE])) for _ in range(4)]
    await asyncio.sleep(0.01)
    tasks[0].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert [a[0].choices[0].label for a in answers[1:]] == [RELEVANT] * 3  # type: ignore[index]
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
    Chooser(Provider(answer=answer), max_concurrency=3).choose([first, *[RELEVANCE] * 9])
    assert most == 3
    with pytest.raises(ValueError, match="max_concurrency"):
        Chooser(Provider(answer=answer), max_concurrency=0)


async def test_a_loop_that_is_blocked_waits_for_nobody() -> None:
    model = Slow(answer=lambda p: "[Relevant]")
    chooser = Chooser(model)
    asked = asyncio.create_task(chooser.achoose([RELEVANCE]))
    await asyncio.sleep(0.005)
    (answer,) = chooser.choose([RELEVANCE])
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
    chooser = Chooser(model)
    (answer,) = chooser.choose([RELEVANCE])
    assert answer.choices == [None]
    assert answer.error is None
    assert chooser.counts == ChoiceCounts(forms=1, retried=1, absent=1)
    assert model.prompts[-1] == (
        "Rating:\n\nAnswer with nothing but one of these: [Relevant] or [Irrelevant]"
    )
    mended = Provider(answer=lambda p: "[Relevant]" if "nothing" in p else malformed, **shape)
    (answer,) = await Chooser(mended).achoose([RELEVANCE])
    assert answer.choices[0].label == RELEVANT  # type: ignore[union-attr]


def test_malformed_structured_output() -> None:
    model = ToolCaller(answer=lambda p: "perhaps", **REFUSES)
    chooser = Chooser(model)
    (answer,) = chooser.choose([RELEVANCE])
    assert (chooser.way, answer.choices, answer.cost.requests) == ("structured", [None], 4)


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
    chooser = Chooser(Provider(answer=lambda p: text))
    (answer,) = chooser.choose([BOTH])
    assert tuple(choice and choice.label for choice in answer.choices) == labels
    assert chooser.counts.absent == labels.count(None)


# Errors


def test_a_rate_limit_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(rounds.time, "sleep", waits.append)
    answers: list[Any] = ["[Relevant]", RateLimited("7"), "[Irrelevant]", RateLimited("999")]
    answers += [RateLimited("1"), RateLimited(), "[Relevant]"]
    chooser = Chooser(Provider(answer=lambda p: answers.pop(0)))
    results = [chooser.choose([RELEVANCE])[0] for _ in range(5)]
    assert [r.choices[0] and r.choices[0].label for r in results] == [
        RELEVANT,
        IRRELEVANT,
        None,
        None,
        RELEVANT,
    ]
    assert [r.cost.requests for r in results] == [1, 2, 2, 1, 1]
    assert waits == [7.0, rounds.MOST_PATIENCE]
    assert isinstance(results[2].error, RateLimited)
    assert chooser.counts == ChoiceCounts(forms=5, absent=2, failed=2)


async def test_the_async_twin_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(rounds.asyncio, "sleep", sleep)
    answers: list[Any] = [RateLimited("0.5"), "[Relevant]"]
    (answer,) = await Chooser(Provider(answer=lambda p: answers.pop(0))).achoose([RELEVANCE])
    assert (waits, answer.cost.requests) == ([0.5], 2)


def test_an_error_teaches_nothing_about_the_model() -> None:
    answers: list[Any] = [RateLimited(), *["[Relevant]"] * 3]
    chooser = Chooser(Provider(answer=lambda p: answers.pop(0), **VLLM))
    failed = chooser.choose([RELEVANCE] * 3)
    assert chooser.way is None
    assert [type(a.error) for a in failed] == [RateLimited] * 3
    assert [a.cost.requests for a in failed] == [1, 0, 0], "the others are not sent after it"
    assert [a.error for a in chooser.choose([RELEVANCE] * 3)] == [None] * 3
    assert chooser.way == "constrained"


def test_a_model_that_refuses_everything() -> None:
    chooser = Chooser(Provider(answer=lambda p: ValueError("too long")))
    (answer,) = chooser.choose([RELEVANCE])
    assert (answer.choices, str(answer.error), chooser.way) == ([None], "too long", None)


def test_every_table_has_a_form() -> None:
    for aspect in ASPECTS.values():
        for label, token in aspect.choices.items():
            form = Form("", (Slot(aspect.labels),))
            choice = chosen(Provider(answer=lambda p, label=label: label), form)
            assert aspect.choices[choice.label] == token


def test_nothing_to_ask() -> None:
    model = Provider(answer=lambda p: "")
    assert Chooser(model).choose([]) == []
    assert model.calls == []
