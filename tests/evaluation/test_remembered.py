"""A memory that variants share: what it asks, what it gives, and that answers are the same."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.retrievers import BaseRetriever
from selfcorrect_rag.demo.loaders import demo_questions

from selfcorrect_rag.evaluation.costs import asked_for
from selfcorrect_rag.evaluation.methods import open_method, read_spec
from selfcorrect_rag.evaluation.remembered import Memory, saving
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.models.chat_evaluator import ChatEvaluator
from selfcorrect_rag.models.identity import identity
from selfcorrect_rag.models.retrieval_evaluator import agrade
from selfcorrect_rag.prompts.self_rag import segment_prompt
from selfcorrect_rag.search import RetrieverWebSearch
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts
from tests.crag_runs import PagesWebSearch, WordEvaluator
from tests.evaluation.scripted_parts import PAGES, QUESTION, SURE, ScriptedParts
from tests.reader.scripted_reader import reader_llm


class Chat(BaseChatModel):
    """Numbers its answers, slowly; fails where it is asked to."""

    calls: int = 0
    fails: int = 0

    @property
    def _llm_type(self) -> str:
        return "counting"

    def _generate(self, messages: list[BaseMessage], *_: Any, **options: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **options: Any) -> ChatResult:
        self.calls += 1
        number = self.calls
        await asyncio.sleep(0.05)
        if number <= self.fails:
            raise RuntimeError("it is down")
        usage: Any = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        message = AIMessage(f"answer {number}", usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


def test_equal_calls_in_flight_and_after_are_one() -> None:
    chat = Chat()
    shared = Memory().of(chat)

    async def ask() -> list[str]:
        given = [shared.ainvoke(words) for words in ("who?", "who?", "where?")]
        found = [message.text for message in await asyncio.gather(*given)]
        again = await shared.ainvoke([HumanMessage("who?", id="of another run")])
        with_option = await shared.bind(temperature=1).ainvoke("who?")
        return [*found, again.text, with_option.text]

    assert asyncio.run(ask()) == ["answer 1", "answer 1", "answer 2", "answer 1", "answer 3"]
    assert chat.calls == 3
    assert asyncio.run(shared.ainvoke("who?")).text == "answer 1"  # in another event loop


def test_a_cancelled_first_caller_does_not_fail_the_second() -> None:
    chat = Chat()
    shared = Memory().of(chat)

    async def ask() -> str:
        first = asyncio.create_task(shared.ainvoke("who?"))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(shared.ainvoke("who?"))
        await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return (await second).text  # type: ignore[no-any-return]

    assert asyncio.run(ask()) == "answer 1"
    assert chat.calls == 1


def test_an_error_is_of_all_that_wait_and_is_not_kept() -> None:
    chat = Chat(fails=1)
    shared = Memory().of(chat)

    async def ask() -> tuple[list[Any], str]:
        waiting = [shared.ainvoke("who?"), shared.ainvoke("who?")]
        failed = await asyncio.gather(*waiting, return_exceptions=True)
        return failed, (await shared.ainvoke("who?")).text

    failed, answer = asyncio.run(ask())
    assert [str(error) for error in failed] == ["it is down"] * 2
    assert (answer, chat.calls) == ("answer 2", 2)


def test_a_memory_is_bounded_and_forgets_what_was_not_used() -> None:
    chat = Chat()

    async def ask(memory: Memory) -> int:
        shared, before = memory.of(chat), chat.calls
        for words in ("one", "two", "one", "three", "one", "two"):
            await shared.ainvoke(words)
        return chat.calls - before

    asyncio.run(ask(roomy := Memory()))
    size = roomy._bytes // 3
    assert asyncio.run(ask(Memory())) == 3
    assert asyncio.run(ask(Memory(2 * size + 10))) == 4
    assert asyncio.run(ask(tight := Memory(10))) == 6
    assert tight._bytes == 0


def test_what_is_given_is_a_copy_and_the_part_itself_is_left_as_it_was() -> None:
    chat = Chat()
    shared = Memory().of(chat)
    assert type(shared) is Chat
    assert "_agenerate" not in vars(chat)

    async def ask() -> str:
        (await shared.ainvoke("who?")).content = "changed"
        return (await shared.ainvoke("who?")).text

    assert asyncio.run(ask()) == "answer 1"
    llm, _ = reader_llm(SURE)
    assert identity(Memory().of(llm)) == identity(llm)
    assert Memory().of(len) is len


def prompts(count: int) -> list[Any]:
    pages = [Document(f"It was Berg, {n}.") for n in range(count)]
    return [segment_prompt("Who was it?", [], pages, "retrieve", n) for n in range(count)]


def test_prompts_are_remembered_one_by_one_where_they_are_independent() -> None:
    llm, reader = reader_llm(SURE)
    shared = Memory().of(llm)
    with saving() as saved:
        three = asyncio.run(shared.agenerate_segments(prompts(3)))
        assert (saved.calls, saved.tokens) == (0, 0)
        five = asyncio.run(shared.agenerate_segments(prompts(5)))
    assert [len(call) for call in reader.calls] == [3, 2]
    assert five == llm.generate_segments(prompts(5))
    assert five[:3] == three
    assert saved.calls == 0  # the second batch was a call too
    assert saved.tokens == sum(s["prompt_tokens"] + s["tokens"] for s in three)
    with saving() as saved:
        asyncio.run(shared.agenerate_segments(prompts(2)))
    assert saved.calls == 1


@pytest.mark.parametrize(
    ("fields", "options"), [({"show_guess": True}, {}), ({}, {"prune_below": 0.5})]
)
def test_prompts_that_depend_on_their_batch_are_remembered_with_it(
    fields: dict[str, Any], options: dict[str, Any]
) -> None:
    llm, reader = reader_llm({"Berg": 0.4, "Lind": 0.6}, **fields)
    shared = Memory().of(llm)
    pages = [Document("It was Berg."), Document("It was Lind.")]
    both = [segment_prompt("Who was it?", [], pages, "retrieve", n) for n in range(2)]
    for batch in (both, both[:1], both):
        given = asyncio.run(shared.agenerate_segments(batch, **options))
        assert given == llm.generate_segments(batch, **options)
    asyncio.run(shared.agenerate_segments(both, **options))
    assert [len(call) for call in reader.calls] == [2, 2, 1, 1, 2]  # each first and in sync


class Apart(WordEvaluator):
    """Says that no passage depends on another."""

    is_independent = True


@pytest.mark.parametrize(
    ("evaluator", "calls"),
    [(WordEvaluator(), [["gold", "noise"], ["noise"]]), (Apart(), [["gold", "noise"]])],
)
def test_passages_are_graded_once(evaluator: WordEvaluator, calls: list[list[str]]) -> None:
    shared = Memory().of(evaluator)
    with saving() as saved:
        for passages in (["gold", "noise"], ["noise"], ["gold", "noise"]):
            given = asyncio.run(agrade(shared, "Who?", passages))
            assert given == [{"gold": 0.9, "noise": -0.9}[word] for word in passages]
    assert evaluator.calls == calls
    assert saved.calls == 3 - len(calls)


class Pages(BaseRetriever):
    """Counts its queries."""

    queries: list[str]

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        self.queries.append(query)
        return PAGES


def test_searches_and_an_evaluators_chat_model_are_asked_once() -> None:
    memory, web, pages, chat = Memory(), PagesWebSearch(), Pages(queries=[]), Chat()
    searched, retriever = memory.of(web), memory.of(pages)
    graded = memory.of(ChatEvaluator(chat))

    async def ask() -> None:
        for _ in range(2):
            assert len(await searched.asearch("who", 2)) == 2
            assert await retriever.ainvoke("who") == PAGES
            await agrade(graded, "who", ["a page"])
        assert len(await searched.asearch("who", 1)) == 1

    asyncio.run(ask())
    assert web.queries == [("who", 2), ("who", 1)]
    assert pages.queries == ["who"]
    assert chat.calls == 1


def stripped(outcome: Outcome) -> Outcome:
    """What does not depend on a memory."""
    return outcome._replace(seconds=0.0, remembered_calls=0, remembered_tokens=0)


class SharedParts(ScriptedParts):
    """Scripted parts with a memory."""

    def __init__(self) -> None:
        super().__init__()
        self.llm = Memory().of(self.llm)


VARIANTS = [
    *("rag", "rag_first", "no_retrieval", "instruct_rag", "ralm"),
    *("self_rag", "self_rag:weight_issup=0", "self_rag:path_rule=product,threshold=0.9"),
    *("self_rag:passages=1", "self_rag:prune_below=0.5", "self_rag:beam_width=1"),
    *("crag", "crag:upper=0.9,lower=-0.9", "crag:refine=false", "crag:without_action=correct"),
    *("self_crag", "self_crag:weight_isrel=0"),
]


def answered(parts: Any, specs: Sequence[str], questions: Sequence[Question]) -> list[Outcome]:
    methods = [open_method(read_spec(spec), parts) for spec in specs]

    async def ask() -> list[Outcome]:
        return [await method.answer(q) for q in questions for method in methods]

    return asyncio.run(ask())


def test_no_answer_of_any_graph_is_another_with_a_memory() -> None:
    parts, shared = ScriptedParts(), SharedParts()
    plain = answered(parts, VARIANTS, [QUESTION])
    given = answered(shared, VARIANTS, [QUESTION])
    assert not any(outcome.error for outcome in plain)
    assert list(map(stripped, given)) == list(map(stripped, plain))
    assert (len(shared.reader.calls), len(parts.reader.calls)) == (10, 17)


def test_reweighting_asks_the_model_nothing_and_says_what_it_costs_alone() -> None:
    parts = SharedParts()
    weights = [f"self_rag:weight_issup={n}" for n in range(5)]
    first, *others = answered(parts, weights, [QUESTION])
    (alone,) = answered(ScriptedParts(), weights[-1:], [QUESTION])
    assert len(parts.reader.calls) == 1
    assert asked_for(first) == (2, (first.prompt_tokens or 0) + (first.generated_tokens or 0))
    assert [asked_for(outcome) for outcome in others] == [(0, 0)] * 4
    assert stripped(others[-1]) == stripped(alone)


def test_seconds_are_those_of_the_calls() -> None:
    chat = Chat()
    shared = Memory().of(chat)

    async def ask() -> tuple[float, float]:
        with saving() as first:
            await shared.ainvoke("who?")
        with saving() as second:
            await shared.ainvoke("who?")
        return first.seconds, second.seconds

    first, second = asyncio.run(ask())
    assert first < 0.01
    assert second > 0.04


def test_a_chat_models_calls_tokens_and_seconds_are_said_of_each_variant() -> None:
    parts = ScriptedParts(chat_model=Memory().of(Chat()))
    first, second = answered(parts, ["rag", "twin=rag"], [QUESTION])
    assert first.answer == second.answer == "answer 1"
    for outcome in (first, second):
        assert (outcome.model_calls, outcome.prompt_tokens, outcome.generated_tokens) == (1, 7, 3)
        assert outcome.seconds > 0.04
    assert (first.remembered_calls, first.remembered_tokens) == (0, 0)
    assert (second.remembered_calls, second.remembered_tokens) == (1, 10)


def same_but_for_rounding(one: Any, other: Any) -> None:
    if isinstance(one, float) and isinstance(other, float):
        assert one == pytest.approx(other, abs=0.02)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        same_but_for_rounding(list(one.values()), list(other.values()))
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for each, twin in zip(one, other, strict=True):
            same_but_for_rounding(each, twin)
    else:
        assert one == other


def test_the_shipped_reader_answers_real_questions_the_same() -> None:
    questions = [
        Question(str(n), row["question"], tuple(row["answers"]))
        for n, row in enumerate(demo_questions()[:10])
    ]
    specs = ["rag", "self_rag", "self_rag:weight_issup=0", "crag", "self_crag", "instruct_rag"]
    with Parts(ServingConfig(), passages=5) as parts:
        plain = answered(parts, specs, questions)
    with Parts(ServingConfig(), passages=5, each=Memory().of) as parts:
        assert isinstance(parts.web, RetrieverWebSearch)
        given = answered(parts, specs, questions)
    assert not any(outcome.error for outcome in plain)
    for one, other in zip(given, plain, strict=True):
        # In bfloat16 a score moves a little with the rest of its batch.
        same_but_for_rounding(stripped(one)._asdict(), stripped(other)._asdict())
    assert sum(o.remembered_calls for o in given) > 10
