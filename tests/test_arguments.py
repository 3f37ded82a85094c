"""What the factories take: forms of each argument, for each factory; and steps of one's own."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.tools import StructuredTool, tool
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.errors import BadArgument, BadSettings, EvaluatorFailed, NodeFailed
from selfcorrect_rag.models import by_name
from selfcorrect_rag.nodes.generate import generate
from selfcorrect_rag.nodes.generate_and_critique import generate_and_critique
from selfcorrect_rag.nodes.grade_documents import grade_documents
from selfcorrect_rag.settings import (
    CRAGContext,
    CRAGSettings,
    InstructRAGContext,
    InstructRAGSettings,
    SelfCRAGContext,
    SelfCRAGSettings,
    SelfRAGContext,
    SelfRAGSettings,
)
from tests.crag_runs import WordEvaluator
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, segment, timeless

TEXT = "Emma is by Jane Austen."
PAGES = [Document(TEXT, metadata={"title": "Emma"})]
ASK: Any = {"question": "Who wrote Emma?"}


def find(query: str) -> list[Document]:
    return PAGES


async def afind(query: str) -> list[Document]:
    return PAGES


def chat(*answers: str) -> FakeListChatModel:
    return FakeListChatModel(responses=list(answers) or ["Jane Austen [1]."])


def store() -> InMemoryVectorStore:
    made = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    made.add_documents([Document(f"{TEXT} {i}") for i in range(9)])
    return made


def reflecting() -> ScriptedReflectionLLM:
    return ScriptedReflectionLLM(write=lambda _: segment("Austen.", RELEVANT, FULL, USEFUL))


class Broken(FakeListChatModel):
    def _call(self, *args: Any, **kwargs: Any) -> str:
        raise ConnectionError("down")


def run(graph: Any, asynchronous: bool = False, **options: Any) -> dict[str, Any]:
    if asynchronous:
        return dict(asyncio.run(graph.ainvoke(ASK, **options)))
    return dict(graph.invoke(ASK, **options))


def factories(**given: Any) -> dict[str, Any]:
    """Each factory with ``given`` in place of its usual arguments."""
    llm, retriever = given.get("llm"), given.get("retriever", find)
    parts = given.get("evaluator", WordEvaluator()), given.get("web_search", find)
    rest = {
        k: v for k, v in given.items() if k not in ("llm", "retriever", "evaluator", "web_search")
    }
    return {
        "self_rag": lambda: create_self_rag(llm or reflecting(), retriever, **rest),
        "crag": lambda: create_crag(llm or chat(), retriever, *parts, **rest),
        "self_crag": lambda: create_self_crag(llm or reflecting(), retriever, *parts, **rest),
        "instruct_rag": lambda: create_instruct_rag(llm or chat(), retriever, **rest),
    }


GRAPHS = pytest.mark.parametrize("name", factories())
CORRECTING = pytest.mark.parametrize("name", ["crag", "self_crag"])

RETRIEVERS: dict[str, Any] = {
    "retriever": lambda: store().as_retriever(),
    "vector store": store,
    "function": lambda: find,
    "async function": lambda: afind,
    "runnable": lambda: RunnableLambda(find),
}
MODELS: dict[str, Any] = {
    "name": lambda: "acme:talker",
    "retries": lambda: chat().with_retry(),
    "fallbacks": lambda: Broken(responses=["x"]).with_fallbacks([chat()]),
    "fields": lambda: chat().configurable_fields(responses=ConfigurableField(id="said")),
    "alternatives": lambda: chat().configurable_alternatives(
        ConfigurableField(id="which"), other=Broken(responses=["x"])
    ),
    "bound": lambda: chat().bind(stop=["\n"]),
}


@tool
def plain(query: str) -> str:
    """Search."""
    return TEXT


@tool
def rows(query: str) -> str:
    """Search."""
    return json.dumps([{"snippet": TEXT, "link": "https://example.org/emma", "title": "Emma"}])


def like_tavily(query: str, topic: str = "general") -> dict[str, Any]:
    """Search."""
    return {"query": query, "results": [{"url": "https://example.org", "content": TEXT}]}


WEBS: dict[str, Any] = {
    "text of a tool": lambda: plain,
    "JSON of a tool": lambda: rows,
    "dict of a tool": lambda: StructuredTool.from_function(like_tavily),
    "function": lambda: find,
    "function of rows": lambda: lambda query: [{"body": TEXT, "href": "https://example.org"}],
    "retriever": lambda: store().as_retriever(),
    "vector store": store,
}


@GRAPHS
@pytest.mark.parametrize("form", RETRIEVERS)
def test_retrievers(name: str, form: str) -> None:
    graph = factories(retriever=RETRIEVERS[form]())[name]()
    for asynchronous in [True] if form.startswith("async") else [False, True]:
        result = run(
            graph,
            asynchronous,
            context={"passages": 6, "mode": "always"} if name == "self_rag" else {"passages": 6},
        )
        assert TEXT in result["passages"][0].page_content
        if form == "vector store":
            assert len(result["passages"]) == 6, "as many as the run asks for"


@GRAPHS
@pytest.mark.parametrize("form", MODELS)
def test_models(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_name, "find_language_model", lambda name: chat())
    graph = factories(llm=MODELS[form](), follow_up=MODELS[form]())[name]()
    for asynchronous in (False, True):
        assert "Jane Austen" in run(graph, asynchronous)["answer"]


@CORRECTING
@pytest.mark.parametrize("form", WEBS)
def test_webs(name: str, form: str) -> None:
    graph = factories(web_search=WEBS[form](), retriever=lambda query: [])[name]()
    for asynchronous in (False, True):
        result = run(graph, asynchronous)
        assert TEXT in result["web_results"][0].page_content
        assert not result["web_failure"]


@CORRECTING
def test_without_the_web_the_run_goes_on_and_says_how_to_have_one(name: str) -> None:
    graph = factories(web_search=None, retriever=lambda query: [])[name]()
    for asynchronous in (False, True):
        result = run(graph, asynchronous)
        assert result["answer"]
        assert "give web_search=TavilyWebSearch()" in result["web_failure"]


@CORRECTING
@pytest.mark.parametrize("given", ["acme:judge", FakeListChatModel(responses=["[Relevant]"])])
def test_a_chat_model_grades(name: str, given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_name, "find_language_model", lambda name: chat("[Relevant]"))
    assert run(factories(evaluator=given)[name]())["grades"]


def no_query() -> list[Document]:
    return PAGES


REFUSED: list[tuple[str, Any, str]] = [
    ("llm", store().as_retriever(), "llm is a VectorStoreRetriever: give"),
    ("llm", find, "llm is a function: give"),
    ("retriever", "notes", "str is no retriever: give"),
    ("retriever", chat(), "FakeListChatModel is no retriever"),
    ("retriever", plain, "StructuredTool is no retriever"),
    ("retriever", no_query, "function is no retriever"),
    ("follow_up", find, "follow_up is a function: give"),
    ("nodes", {"retreive": find}, r"no 'retreive'; did you mean retrieve\?"),
    ("nodes", {"retrieve": 7}, r"nodes\['retrieve'\] is a int: give a Runnable"),
]
REFUSED_CORRECTION: list[tuple[str, Any, str]] = [
    ("evaluator", find, "evaluator is a function: give a RetrievalEvaluator"),
    ("evaluator", store().as_retriever(), "evaluator is a VectorStoreRetriever"),
    ("web_search", WordEvaluator(), "web_search is a WordEvaluator: give a WebSearch"),
    ("web_search", chat(), "web_search is a FakeListChatModel: give a WebSearch"),
    ("rewriter", 7, "rewriter is a int: give"),
    ("decompose", "lines", "decompose is a str: give a function"),
    ("strip_filter", 0.5, "strip_filter is a float: give a function"),
]


@GRAPHS
@pytest.mark.parametrize(("argument", "given", "message"), REFUSED)
def test_what_does_not_fit_is_refused(name: str, argument: str, given: Any, message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        factories(**{argument: given})[name]()


@CORRECTING
@pytest.mark.parametrize(("argument", "given", "message"), REFUSED_CORRECTION)
def test_what_does_not_correct(name: str, argument: str, given: Any, message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        factories(**{argument: given})[name]()


@pytest.mark.parametrize("name", ["self_rag", "self_crag"])
def test_a_chain_is_no_model_that_is_asked_for_its_critique(name: str) -> None:
    for chain in (RunnableLambda(str) | chat(), chat() | StrOutputParser()):
        assert run(factories(llm=chain)["crag"]())["answer"]
        with pytest.raises(BadArgument, match="llm is a RunnableSequence: give a ReflectionLLM"):
            factories(llm=chain)[name]()


@pytest.mark.parametrize("name", ["self_rag", "self_crag"])
def test_reflection_tokens_are_not_lost_behind_retries(name: str) -> None:
    for llm in (reflecting().with_retry(), chat().with_fallbacks([reflecting()])):
        with pytest.raises(BadArgument, match="would lose its reflection tokens: give the Refl"):
            factories(llm=llm)[name]()


# Steps of one's own


def say(state: dict[str, Any]) -> dict[str, Any]:
    return {"answer": "Mine.", "score": 1.0} if "beams" in state else {"answer": "Mine."}


async def asay(state: dict[str, Any]) -> dict[str, Any]:
    return {"answer": chat("Mine.").invoke("?").content}


@pytest.mark.parametrize(("name", "step"), [("crag", "generate"), ("self_rag", "write_answer")])
def test_a_step_of_ones_own_answers_and_replies(name: str, step: str) -> None:
    graph = factories(nodes={step: say})[name]()
    for asynchronous in (False, True):
        assert run(graph, asynchronous)["answer"] == "Mine."
    result = graph.invoke({"messages": [("human", "Who?")]})
    assert result["messages"][-1].text == result["cited_answer"] == "Mine."
    assert result["costs"][step]["model_calls"] == 0
    assert step in [ran["step"] for ran in result["route"]]


def test_what_a_step_of_ones_own_calls_is_counted_and_limited_in_time() -> None:
    def calls(state: dict[str, Any]) -> dict[str, Any]:
        return {"answer": chat("Mine.").invoke("?").content}

    result = run(factories(nodes={"generate": calls})["crag"]())
    assert result["costs"]["generate"]["model_calls"] == 1
    result = run(factories(nodes={"generate": asay})["crag"](), True)
    assert result["costs"]["generate"]["model_calls"] == 1


@CORRECTING
@pytest.mark.parametrize("keys", [None, {"grades", "action", "thresholds", "branches"}])
def test_a_node_in_a_step_of_ones_own_costs_what_it_costs_alone(name: str, keys: Any) -> None:
    node = grade_documents(WordEvaluator())

    def graded(state: dict[str, Any]) -> dict[str, Any]:
        update = node.invoke(state)
        return {key: update[key] for key in keys or update}

    for asynchronous in (False, True):
        plain = run(factories()[name](), asynchronous)
        own = run(factories(nodes={"grade_documents": graded})[name](), asynchronous)
        assert timeless(own["costs"]) == timeless(plain["costs"])


def test_a_prompted_model_in_a_step_of_ones_own_is_counted_once() -> None:
    judge = FakeListChatModel(responses=["[Relevant]"])
    node = generate_and_critique(judge)
    own = {"generate_and_critique": lambda s: {"candidates": node.invoke(s)["candidates"]}}
    costs = [
        run(create_self_rag(judge, find, nodes=nodes))["costs"]["generate_and_critique"]
        for nodes in (None, own)
    ]
    assert timeless(costs[0]) == timeless(costs[1])


def test_a_step_of_ones_own_says_what_its_answer_cites() -> None:
    cited: Any = [{"number": 1, "passage": 0, "title": "Emma", "source": "", "text": TEXT}]

    def cite(state: dict[str, Any]) -> dict[str, Any]:
        return {"answer": "Mine.", "cited_answer": "Mine. [1]", "citations": cited}

    graph = factories(nodes={"generate": cite})["crag"]()
    for asynchronous in (False, True):
        said, result = streamed(graph, asynchronous)
        assert said == result["cited_answer"] == "Mine. [1]"
        assert result["citations"] == cited


def test_what_a_node_in_a_step_of_ones_own_has_streamed_is_not_said_again() -> None:
    node = generate(chat())
    own = {"generate": lambda state: {"answer": node.invoke(state)["answer"]}}
    for asynchronous in (False, True):
        said, result = streamed(factories(nodes=own)["crag"](), asynchronous)
        assert said == "Jane Austen [1]."
        assert result["answer"] == "Jane Austen."


@pytest.mark.parametrize(("name", "step"), [("crag", "generate"), ("self_rag", "write_answer")])
def test_a_step_of_ones_own_may_give_the_whole_state(name: str, step: str) -> None:
    def whole(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "answer": "Mine."}

    plain, own = factories()[name](), factories(nodes={step: whole})[name]()
    said: Any = {"messages": [("human", "Who wrote Emma?")]}
    for asynchronous in (False, True):
        costs = [run(graph, asynchronous)["costs"] for graph in (plain, own)]
        before = [{k: v for k, v in timeless(each).items() if k != step} for each in costs]
        assert before[0] == before[1]
        assert costs[1][step]["model_calls"] == 0
    result = own.invoke(said)
    assert result["messages"][-1].text == result["cited_answer"] == "Mine."


def test_a_step_of_ones_own_fails_as_the_one_that_it_replaces() -> None:
    def down(state: dict[str, Any]) -> dict[str, Any]:
        raise ConnectionError("down")

    result = run(factories(nodes={"retrieve": down})["crag"]())
    assert result["passages"] == []
    assert any("the node retrieve raised ConnectionError: down" in n for n in result["notes"])
    for asynchronous in (False, True):
        graph = factories(nodes={"web_search": down}, retriever=lambda query: [])["crag"]()
        result = run(graph, asynchronous)
        assert result["answer"]
        assert "the node web_search raised ConnectionError: down" in result["web_failure"]
    with pytest.raises(NodeFailed, match="the node generate raised ConnectionError: down"):
        run(factories(nodes={"generate": down})["crag"]())
    wrong = {"generate": lambda state: {"anser": "Mine."}}
    with pytest.raises(NodeFailed, match=r"gave 'anser', .*did you mean answer"):
        run(factories(nodes=wrong)["crag"]())
    with pytest.raises(NodeFailed, match=r"gave a str; give a dict"):
        run(factories(nodes={"generate": lambda state: "Mine."})["crag"]())


def test_a_search_of_ones_own_is_not_made_where_a_person_is_to_approve_it() -> None:
    nodes = {"web_search": lambda state: pytest.fail("searched")}
    options = {"retriever": lambda query: [], "checkpointer": InMemorySaver()}
    thread = {"configurable": {"thread_id": "1"}}
    graph = factories(nodes=nodes, settings=CRAGSettings(approve_search=True), **options)["crag"]()
    with pytest.raises(BadSettings, match="approve_search asks before the graph's own web_search"):
        graph.invoke(ASK, thread)
    assert "question" not in graph.get_state(thread).values, "refused before any step"
    asked = factories(**options)["crag"]()
    assert "__interrupt__" in asked.invoke(ASK, thread, context={"approve_search": True})
    with pytest.raises(BadSettings, match="approve_search asks"):
        factories(nodes=nodes, **options)["crag"]().invoke(None, thread)


def test_a_decomposition_and_a_strip_filter_of_ones_own() -> None:
    long = [Document("Emma one. Emma two. None three.")]

    async def keep(question: str, strips: list[str]) -> list[bool]:
        return ["Emma" in strip for strip in strips]

    class Never(WordEvaluator):
        def score(self, question: str, passages: Any) -> list[float]:
            assert list(passages) == [long[0].page_content], "strips are the filter's"
            return [1.0]

    graph = factories(
        retriever=lambda query: long,
        evaluator=Never(),
        decompose=lambda text: text.split(". "),
        strip_filter=keep,
    )["crag"]()
    strips = run(graph, True)["strips"]
    assert [(s["text"], s["score"], s["kept"]) for s in strips] == [
        ("Emma one", 1.0, True),
        ("Emma two", 1.0, True),
        ("None three.", -1.0, False),
    ]
    with pytest.raises(EvaluatorFailed, match="the strip filter is async"):
        run(graph)
    few = factories(retriever=lambda query: long, strip_filter=lambda q, s: [])["crag"]()
    with pytest.raises(EvaluatorFailed, match="gave 0 values for 1 strips"):
        run(few, context={"upper": -1.0, "lower": -1.0})


@CORRECTING
def test_models_that_parts_of_ones_own_ask_are_counted_and_not_heard(name: str) -> None:
    """A web search, a filter of strips, a decomposition, a rewriter, a retriever, an evaluator."""

    def asking(part: str, result: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*given: Any) -> Any:
            chat(f"Not heard, {part}.").invoke("?")
            return result(*given)

        return ask

    class Asks(WordEvaluator):
        def score(self, question: str, passages: Any) -> list[float]:
            chat("Not heard, evaluator.").invoke("?")
            return super().score(question, passages)

    graph = factories(
        retriever=asking("retriever", lambda query: [Document("Of Ulysses.")]),
        evaluator=Asks(),
        web_search=asking("web", find),
        rewriter=asking("rewriter", str),
        decompose=asking("decompose", lambda text: [text]),
    )[name]()
    filtered = factories(strip_filter=asking("filter", lambda q, strips: [True]))[name]()
    costs = {"retrieve": 1, "grade_documents": 1, "rewrite_query": 1, "web_search": 1}
    for its, counted in (
        (graph, {**costs, "select_web_strips": 2}),
        (filtered, {"select_web_strips": 1}),
    ):
        for asynchronous in (False, True):
            said, result = streamed(its, asynchronous)
            assert "Austen" in said
            assert "Not heard" not in said
            assert counted == {step: result["costs"][step]["model_calls"] for step in counted}


def test_a_decomposition_of_ones_own_keeps_no_event_loop_waiting() -> None:
    loops: list[bool] = []

    def split(text: str) -> list[str]:
        loops.append(asyncio._get_running_loop() is not None)
        return [text]

    run(factories(decompose=split)["crag"](), True)
    assert loops == [False]


def streamed(graph: Any, asynchronous: bool) -> tuple[str, dict[str, Any]]:
    """What a client hears of a run, and its result."""
    options: Any = {"stream_mode": ["messages", "values"]}

    async def astream() -> list[Any]:
        return [part async for part in graph.astream(ASK, **options)]

    parts = asyncio.run(astream()) if asynchronous else list(graph.stream(ASK, **options))
    said = "".join(part[0].text for mode, part in parts if mode == "messages")
    return said, next(part for mode, part in reversed(parts) if mode == "values")


@CORRECTING
def test_a_rewriter_of_ones_own(name: str) -> None:
    def broken(question: str) -> str:
        raise ValueError("no")

    for rewriter, query in ((lambda q: f"{q} novel", "Who wrote Emma? novel"), (broken, "Emma")):
        options = {"rewriter": rewriter, "retriever": lambda query: []}
        for asynchronous in (False, True):
            assert query in run(factories(**options)[name](), asynchronous)["web_query"]


@pytest.mark.parametrize(
    ("context", "settings"),
    [
        (SelfRAGContext, SelfRAGSettings),
        (CRAGContext, CRAGSettings),
        (SelfCRAGContext, SelfCRAGSettings),
        (InstructRAGContext, InstructRAGSettings),
    ],
)
def test_a_context_has_the_knobs_of_the_settings(context: Any, settings: Any) -> None:
    told, known = get_type_hints(context), settings.model_fields
    assert context.__optional_keys__ == told.keys() == known.keys()
    wider = {Mapping[str, float]: dict[str, float], Sequence[str]: tuple[str, ...]}
    for name, kind in told.items():
        assert wider.get(kind, kind) == known[name].annotation, name
