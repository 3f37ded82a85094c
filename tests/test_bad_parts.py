"""What a graph cannot use is refused by name, in every graph it concerns, sync and async alike.

A fault is a row of a table, and so is what can be read without doubt; a graph is an entry of
``PARTS``.
"""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableLambda

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.agents import GroundingMiddleware, as_tool
from selfcorrect_rag.errors import (
    BadSettings,
    EvaluatorFailed,
    NoDocument,
    RetrievalFailed,
    SelfCorrectError,
)
from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.search import RetrieverWebSearch, WebSearch
from selfcorrect_rag.settings import (
    CRAGSettings,
    InstructRAGSettings,
    SelfCRAGSettings,
    SelfRAGSettings,
    Settings,
)
from selfcorrect_rag.thresholds import Thresholds
from selfcorrect_rag.training.evaluator import Graded, judge_questions
from tests.scripted import (
    FULL,
    RELEVANT,
    USEFUL,
    ScriptedReflectionLLM,
    document,
    echo,
    segment,
    timeless,
)

DOCUMENT = document("Emma", "Emma is a novel.")
PAGE = document("Page", "A page of the web.")
QUESTION: Any = {"question": "Who wrote Emma?"}


class Evaluator(RetrievalEvaluator):
    """Finds everything ambiguous, so that every node of CRAG runs; or gives what it is told."""

    thresholds = Thresholds(upper=0.5, lower=-0.5)

    def __init__(self, gives: Callable[[int], Any] | None = None, about: str = "") -> None:
        self.gives, self.about = gives, about

    def score(self, question: str, passages: Any) -> Any:
        told = self.gives if any(self.about in passage for passage in passages) else None
        return (told or (lambda count: [0.0] * count))(len(passages))


class Pages(WebSearch):
    name = "pages"

    def __init__(self, gives: Callable[[str], Any]) -> None:
        self.gives = gives

    def search(self, query: str, k: int) -> Any:
        return self.gives(query)

    def asearch(self, query: str, k: int) -> Any:
        return self.gives(query)


PARTS: Mapping[str, tuple[Any, type[Settings], tuple[str, ...]]] = {
    "self_rag": (create_self_rag, SelfRAGSettings, ("retriever",)),
    "crag": (create_crag, CRAGSettings, ("retriever", "evaluator", "web_search")),
    "self_crag": (create_self_crag, SelfCRAGSettings, ("retriever", "evaluator", "web_search")),
    "instruct_rag": (create_instruct_rag, InstructRAGSettings, ("retriever",)),
}
"""Each graph's factory, its settings, and what it takes beside a model."""


def build(graph: str, settings: Any = None, **parts: Any) -> Any:
    create, _, takes = PARTS[graph]
    write = ScriptedReflectionLLM(write=lambda p: segment("Austen.", RELEVANT, FULL, USEFUL))
    given = {
        "retriever": lambda query: [DOCUMENT],
        "evaluator": Evaluator(),
        "web_search": Pages(lambda query: [PAGE]),
        **parts,
    }
    llm = write if graph.startswith("self") else echo()
    return create(llm, **{name: given[name] for name in takes}, settings=settings)


def invoke(graph: Any, **options: Any) -> Any:
    return graph.invoke(QUESTION, **options)


def ainvoke(graph: Any, **options: Any) -> Any:
    return asyncio.run(graph.ainvoke(QUESTION, **options))


FORMS = (invoke, ainvoke)
both_forms = pytest.mark.parametrize("form", FORMS)


def graphs_with(part: str) -> Any:
    return pytest.mark.parametrize("graph", [g for g in PARTS if part in PARTS[g][2]])


class Fault(NamedTuple):
    """What a part gives, and what the error says of it."""

    given: Any
    says: str


def refused(error: type[SelfCorrectError], says: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error) as raised:
        call()
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


# Retrievers and web searches.

NO_DOCUMENTS = {
    "nothing": Fault(None, "None"),
    "a text": Fault("Emma is a novel.", "a str: give a list of Documents"),
    "bytes": Fault(b"Emma", "a bytes"),
    "a number": Fault(3, "a int"),
    "one document": Fault(DOCUMENT, "a Document"),
    "one object": Fault({"page_content": "Emma"}, "a dict with 'page_content'"),
    "a dict of results": Fault({"documents": [DOCUMENT]}, "a dict with 'documents'"),
    "texts": Fault(["Emma is a novel."], "a str as document 0"),
    "nested": Fault([[DOCUMENT]], "a list as document 0"),
    "a gap": Fault([DOCUMENT, None], "None as document 1"),
    "other keys": Fault([DOCUMENT, {"text": "Emma"}], "a dict with 'text' as document 1"),
    "no text": Fault([{"page_content": None}], "a dict with 'page_content' as document 0"),
    "bad metadata": Fault(
        [{"page_content": "Emma", "metadata": "novel"}], "a dict with 'page_content', 'metadata' as"
    ),
}
EXPECTED = "a list of Documents"


@dataclass
class Finder:
    """A callable that is no function."""

    given: Any

    def __call__(self, query: str) -> Any:
        return self.given


SHAPES: Mapping[str, Callable[[Any], Any]] = {
    "function": lambda given: lambda query: given,
    "runnable": lambda given: RunnableLambda(lambda query: given),
    "object": Finder,
}
"""As what a retriever may come that is not async."""


def _async_shapes() -> Mapping[str, Callable[[Any], Any]]:
    async def find(given: Any) -> Any:
        return given

    def function(given: Any) -> Any:
        async def found(query: str) -> Any:
            return given

        return found

    def generator(given: Any) -> Any:
        async def found(query: str) -> Any:
            for one in given:
                yield one

        return found

    class Coroutine:
        def __init__(self, given: Any) -> None:
            self.given = given

        async def __call__(self, query: str) -> Any:
            return self.given

    class Generator(Coroutine):
        async def __call__(self, query: str) -> Any:
            for one in self.given:
                yield one

    return {
        "object": Coroutine,
        "generator object": Generator,
        "async generator runnable": lambda given: RunnableLambda(generator(given)),
        "retried": lambda given: RunnableLambda(function(given)).with_retry(
            wait_exponential_jitter=False
        ),
        "chain": lambda given: RunnableLambda(str) | RunnableLambda(function(given)),
        "async function": function,
        "async runnable": lambda given: RunnableLambda(function(given)),
        "coroutine": lambda given: lambda query: find(given),
        "async generator": generator,
    }


ASYNC_SHAPES = _async_shapes()
AS_FUNCTIONS = [shape for shape, made in ASYNC_SHAPES.items() if not isinstance(made([]), Runnable)]
AS_WEB: Mapping[str, Callable[[Any], WebSearch]] = {"own": Pages, "retriever": RetrieverWebSearch}


@pytest.mark.parametrize("fault", NO_DOCUMENTS.values(), ids=NO_DOCUMENTS)
@both_forms
@graphs_with("retriever")
def test_what_a_retriever_gives_that_is_no_list_of_documents(
    graph: str, form: Any, fault: Fault
) -> None:
    built = build(graph, retriever=lambda query: fault.given)
    refused(NoDocument, f"the retriever gave {fault.says}", lambda: form(built))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@both_forms
@graphs_with("retriever")
def test_a_retriever_of_every_shape(graph: str, form: Any, shape: Any) -> None:
    assert form(build(graph, retriever=shape([DOCUMENT])))["passages"] == [DOCUMENT]
    refused(NoDocument, EXPECTED, lambda: form(build(graph, retriever=shape(["Emma"]))))


@pytest.mark.parametrize("fault", NO_DOCUMENTS.values(), ids=NO_DOCUMENTS)
@pytest.mark.parametrize("kind", AS_WEB)
@both_forms
@graphs_with("web_search")
def test_what_a_web_search_gives_that_is_no_list_of_documents(
    graph: str, form: Any, kind: str, fault: Fault
) -> None:
    built = build(graph, web_search=AS_WEB[kind](lambda query: fault.given))
    refused(NoDocument, fault.says, lambda: form(built))


AS_JSON = [{"page_content": DOCUMENT.page_content, "metadata": DOCUMENT.metadata, "id": "Emma"}]
READABLE: Mapping[str, Callable[[], Any]] = {
    "list": lambda: [DOCUMENT],
    "tuple": lambda: (DOCUMENT,),
    "iterator": lambda: iter([DOCUMENT]),
    "generator": lambda: (document for document in [DOCUMENT]),
    "objects": lambda: AS_JSON,
    "generator of objects": lambda: iter(AS_JSON),
}


def _yielding(query: str) -> Iterator[Document]:
    yield from [DOCUMENT, PAGE]


@pytest.mark.parametrize("given", READABLE.values(), ids=READABLE)
@both_forms
@graphs_with("retriever")
def test_what_a_retriever_gives_that_can_be_read(graph: str, form: Any, given: Any) -> None:
    assert form(build(graph, retriever=lambda query: given()))["passages"] == [DOCUMENT]


@both_forms
@graphs_with("retriever")
def test_a_generator_function_gives_all_that_it_yields(graph: str, form: Any) -> None:
    class Yielding:
        def __call__(self, query: str) -> Iterator[Document]:
            yield from _yielding(query)

    for retriever in (_yielding, Yielding(), RunnableLambda(_yielding), RunnableLambda(Yielding())):
        assert form(build(graph, retriever=retriever))["passages"] == [DOCUMENT, PAGE]


@graphs_with("retriever")
def test_a_generator_is_not_read_on_the_event_loop(graph: str) -> None:
    readers = []

    def found(query: str) -> Iterator[Document]:
        readers.append(threading.current_thread())
        yield DOCUMENT

    for retriever in (found, lambda query: found(query)):
        ainvoke(build(graph, retriever=retriever))
    assert len(readers) == 2
    assert threading.main_thread() not in readers


@pytest.mark.parametrize("given", READABLE.values(), ids=READABLE)
@pytest.mark.parametrize("kind", AS_WEB)
@both_forms
@graphs_with("web_search")
def test_what_a_web_search_gives_that_can_be_read(
    graph: str, form: Any, kind: str, given: Any
) -> None:
    result = form(build(graph, web_search=AS_WEB[kind](lambda query: given())))
    assert [page.page_content for page in result["web_results"]] == [DOCUMENT.page_content]


@pytest.mark.parametrize("shape", ASYNC_SHAPES)
@graphs_with("retriever")
def test_an_async_retriever_is_for_async_runs(graph: str, shape: str) -> None:
    built = build(graph, retriever=ASYNC_SHAPES[shape]([DOCUMENT, PAGE]))
    assert ainvoke(built)["passages"] == [DOCUMENT, PAGE]
    refused(NoDocument, "the retriever is async: run the graph with ainvoke", lambda: invoke(built))


@pytest.mark.parametrize(
    ("kind", "shape"),
    [(kind, shape) for kind in AS_WEB for shape in AS_FUNCTIONS],
)
@graphs_with("web_search")
def test_an_async_web_search_is_for_async_runs(graph: str, kind: str, shape: str) -> None:
    built = build(graph, web_search=AS_WEB[kind](ASYNC_SHAPES[shape]([PAGE])))
    assert ainvoke(built)["web_results"][0].page_content == PAGE.page_content
    refused(NoDocument, "is async: run the graph with ainvoke", lambda: invoke(built))


@both_forms
def test_a_runnable_with_both_forms_keeps_them(form: Any) -> None:
    async def theirs(query: str) -> Any:
        yield PAGE

    retriever: Any = RunnableLambda(_yielding, afunc=theirs)
    expected = [DOCUMENT, PAGE] if form is invoke else [PAGE]
    assert form(build("crag", retriever=retriever))["passages"] == expected


@both_forms
def test_a_generator_function_in_a_chain_is_refused(form: Any) -> None:
    chain: Any = RunnableLambda(str) | RunnableLambda(_yielding)
    for retriever in (chain, RunnableLambda(_yielding).with_retry()):
        built = build("crag", retriever=retriever)
        refused(NoDocument, "the retriever gave a Document", lambda b=built: form(b))


@graphs_with("retriever")
def test_another_type_error_is_the_retrievers(graph: str) -> None:
    def find(query: str) -> list[Document]:
        raise TypeError("no such filter")

    built = build(graph, retriever=find)
    if graph == "self_rag":
        with pytest.raises(RetrievalFailed, match="TypeError: no such filter"):
            invoke(built)
    else:
        assert "no such filter" in " ".join(invoke(built)["notes"])


# Evaluators.


async def _promised(scores: Any) -> Any:
    return scores


NO_SCORES: Mapping[str, tuple[Callable[[int], Any], str]] = {
    "nan": (lambda n: [float("nan")] * n, "nan as score 0"),
    "nan of numpy": (lambda n: np.full(n, np.nan), "nan"),
    "nan at the end": (lambda n: [*[0.5] * (n - 1), float("nan")], "nan as score"),
    "infinite": (lambda n: [float("inf")] * n, "inf"),
    "percent": (lambda n: [57.0] * n, "57.0 as score 0"),
    "just above": (lambda n: [1.01] * n, "1.01"),
    "just below": (lambda n: [-1.01] * n, "-1.01"),
    "a large int": (lambda n: [10**400] * n, "as score 0"),
    "nothing": (lambda n: None, "None"),
    "a gap": (lambda n: [None] * n, "None as score 0"),
    "texts": (lambda n: ["0.5"] * n, "'0.5' as score 0"),
    "a text": (lambda n: "0" * n, "a str"),
    "verdicts": (lambda n: [True] * n, "True as score 0"),
    "verdicts of numpy": (lambda n: np.ones(n, dtype=bool), "as score 0"),
    "complex": (lambda n: [1j] * n, "1j as score 0"),
    "pairs": (lambda n: [[0.5, 0.5]] * n, "as score 0"),
    "two columns": (lambda n: torch.zeros(n, 2), "as score 0"),
    "one number": (lambda n: 0.5, "a float"),
    "an array of one number": (lambda n: np.array(0.5), "a ndarray"),
    "by passage": (lambda n: {str(i): 0.5 for i in range(n)}, "a dict"),
    "unordered": (lambda n: {0.5}, "a set"),
    "too few": (lambda n: [0.5] * (n - 1), "scores for"),
    "too many": (lambda n: [0.5] * (n + 1), "scores for"),
    "a promise": (lambda n: _promised([0.5] * n), "a coroutine"),
}


@pytest.mark.parametrize("fault", ["percent", "nothing", "too few"])
@both_forms
@graphs_with("evaluator")
def test_strips_are_scored_as_strictly(graph: str, form: Any, fault: str) -> None:
    gives, says = NO_SCORES[fault]
    calls = itertools.count()

    def after_the_documents(count: int) -> Any:
        return [0.0] * count if next(calls) == 0 else gives(count)

    for evaluator in (Evaluator(after_the_documents, "Emma"), Evaluator(gives, "web")):
        refused(EvaluatorFailed, says, lambda e=evaluator: form(build(graph, evaluator=e)))


@pytest.mark.parametrize("fault", NO_SCORES.values(), ids=NO_SCORES)
def test_no_threshold_is_calibrated_on_what_is_no_score(
    fault: tuple[Callable[[int], Any], str],
) -> None:
    gives, says = fault
    rows = [Graded(question="Who?", positives=["Emma is a novel."], negatives=["Emma is a town."])]
    refused(EvaluatorFailed, "in [-1, 1]", lambda: judge_questions(Evaluator(gives), rows))
    refused(EvaluatorFailed, says, lambda: judge_questions(Evaluator(gives), rows))


SCORES: Mapping[str, Callable[[int], Any]] = {
    "numpy": lambda n: np.full(n, 0.25, dtype=np.float32),
    "torch": lambda n: torch.full((n,), 0.25),
    "a column": lambda n: torch.full((n, 1), 0.25),
    "half precision": lambda n: torch.full((n,), 0.25, dtype=torch.bfloat16),
    "tuple": lambda n: (0.25,) * n,
    "generator": lambda n: (0.25 for _ in range(n)),
    "decimals": lambda n: [Decimal("0.25")] * n,
}


@pytest.mark.parametrize("gives", SCORES.values(), ids=SCORES)
@both_forms
@graphs_with("evaluator")
def test_numbers_of_every_kind_are_floats(graph: str, form: Any, gives: Any) -> None:
    result = form(build(graph, evaluator=Evaluator(gives)))
    scores = [grade["score"] for grade in result["grades"]]
    scores += [strip["score"] for strip in (*result["strips"], *result["web_strips"])]
    assert scores == [0.25] * 3
    assert {type(score) for score in scores} == {float}


@pytest.mark.parametrize("given", [1 + 1e-7, -1 - 1e-7, 1, -1])
def test_the_ends_of_the_scale_and_their_rounding(given: float) -> None:
    result = invoke(build("crag", evaluator=Evaluator(lambda count: [given] * count)))
    assert result["grades"][0]["score"] == round(given)


# Settings.


@dataclass
class Parent:
    """A context of somebody else's."""

    user: str = "someone"
    passages: str = "many"


class Tenant(CRAGSettings):
    """CRAG's settings with a word for the user's own retriever."""

    tenant: str = "nobody"


RELATED = {("crag", "self_crag"), ("self_rag", "self_crag")}
FOREIGN = [
    (graph, other)
    for graph, other in itertools.permutations(PARTS, 2)
    if (graph, other) not in RELATED and (other, graph) not in RELATED
]


def _both_ways(graph: str, form: Any, given: Any, says: str) -> None:
    """As the settings of a factory, and as the context of a run."""
    refused(BadSettings, says, lambda: build(graph, given))
    refused(BadSettings, says, lambda: form(build(graph), context=given))


@pytest.mark.parametrize(("graph", "other"), FOREIGN)
@both_forms
def test_settings_of_another_graph(graph: str, other: str, form: Any) -> None:
    theirs, ours = PARTS[other][1], PARTS[graph][1]
    _both_ways(graph, form, theirs(), f"{theirs.__name__} is for {theirs.graph}")
    _both_ways(graph, form, theirs(passages=3), f"give {ours.__name__}")


@pytest.mark.parametrize(
    "given", [Parent(), 3, "fast", ["passages"], object()], ids=lambda given: type(given).__name__
)
@pytest.mark.parametrize("graph", PARTS)
@both_forms
def test_what_are_no_settings(graph: str, form: Any, given: Any) -> None:
    _both_ways(graph, form, given, f"give {PARTS[graph][1].__name__}")


@pytest.mark.parametrize("graph", PARTS)
@both_forms
def test_knobs_are_read_of_the_context_alone(graph: str, form: Any) -> None:
    """As docs/parts.md says."""
    built = build(graph)
    plain = timeless(form(built))
    for configurable in ({"passages": 0}, {"approve_search": True}):
        assert timeless(form(built, config={"configurable": configurable})) == plain
    for empty in ([], "", 0):
        refused(BadSettings, "holds no settings", lambda e=empty: form(built, context=e))
    refused(BadSettings, "1: ", lambda: form(built, context={1: 2}))
    refused(BadSettings, "1: ", lambda: build(graph, {1: 2}))


FOREIGN_KNOBS = [
    (graph, other, knob)
    for graph, other in itertools.permutations(PARTS, 2)
    for knob in PARTS[other][1].model_fields
    if knob not in PARTS[graph][1].model_fields
]


@pytest.mark.parametrize("graph", PARTS)
@both_forms
def test_knobs_that_the_graph_does_not_have(graph: str, form: Any) -> None:
    for other, knob in {(o, k) for g, o, k in FOREIGN_KNOBS if g == graph}:
        value = getattr(PARTS[other][1](), knob)
        _both_ways(graph, form, {knob: value}, f"{knob}: {PARTS[graph][1].graph} has no such knob")
        refused(BadSettings, knob, lambda k=knob, v=value: PARTS[graph][1](**{k: v}))


@pytest.mark.parametrize("graph", PARTS)
@both_forms
def test_misspelt_knobs_are_told_the_right_one(graph: str, form: Any) -> None:
    for knob in PARTS[graph][1].model_fields:
        _both_ways(graph, form, {f"{knob}x": 1}, f"did you mean {knob}?")
    _both_ways(graph, form, {"pasages": 3}, "pasages: ")
    _both_ways(graph, form, {"q": 3}, "it has max_model_calls, max_tokens, ")


@pytest.mark.parametrize("graph", PARTS)
@both_forms
def test_values_out_of_bounds_are_one_line(graph: str, form: Any) -> None:
    _both_ways(graph, form, {"passages": 0}, "passages: Input should be greater than or equal to 1")
    _both_ways(graph, form, {"max_tokens": "many"}, "max_tokens: Input should be a valid integer")


@pytest.mark.parametrize("graph", ["crag", "self_crag"])
@both_forms
def test_thresholds_that_are_none_with_the_evaluators_own(graph: str, form: Any) -> None:
    refused(BadSettings, "lower <= upper", lambda: form(build(graph), context={"upper": -0.9}))


@pytest.mark.parametrize(
    ("graph", "other"), [pair for one in sorted(RELATED) for pair in (one, one[::-1])]
)
@both_forms
def test_self_crags_settings_are_those_of_both_graphs(graph: str, other: str, form: Any) -> None:
    related = PARTS[other][1]
    for settings, context in ((related(passages=1), None), (None, related(passages=1))):
        built = build(graph, settings, retriever=lambda query: [DOCUMENT, PAGE])
        assert form(built, context=context)["passages"] == [DOCUMENT]


@pytest.mark.parametrize(
    ("graph", "knob"), [("crag", {"beam_width": 1}), ("self_rag", {"contexts": "all"})]
)
@both_forms
def test_what_self_crags_settings_set_beyond_the_graph(graph: str, form: Any, knob: Any) -> None:
    (name,) = knob
    _both_ways(graph, form, SelfCRAGSettings(**knob), f"{name}: {PARTS[graph][1].graph} has no")


@both_forms
def test_settings_of_a_users_own_class_hold_more(form: Any) -> None:
    given = Tenant(tenant="Dorothea", passages=1)
    for settings, context in ((given, None), (None, given)):
        built = build("crag", settings, retriever=lambda query: [DOCUMENT, PAGE])
        assert form(built, context=context)["passages"] == [DOCUMENT]


@pytest.mark.parametrize("graph", PARTS)
@both_forms
def test_limits_alone_are_for_every_graph(graph: str, form: Any) -> None:
    limits = {"max_model_calls": 2}
    assert timeless(form(build(graph), context=Settings(**limits))) == timeless(
        form(build(graph), context=limits)
    )


@pytest.mark.parametrize(("graph", "other"), FOREIGN)
def test_agents_refuse_settings_before_they_run(graph: str, other: str) -> None:
    built, given = build(graph), PARTS[other][1]()
    refused(BadSettings, "is for", lambda: as_tool(built, context=given))
    refused(BadSettings, "is for", lambda: GroundingMiddleware(built, context=given))
    refused(BadSettings, "no such knob", lambda: as_tool(built, context={"pasages": 1}))
