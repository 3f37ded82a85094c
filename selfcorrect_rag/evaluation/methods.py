"""Methods to compare: each answers a Question with an Outcome, over one retriever and one model."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from langchain_core.messages import HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph.state import CompiledStateGraph

from selfcorrect_rag.errors import BadSettings, SelfCorrectError, describe_error, find_named
from selfcorrect_rag.evaluation.outcomes import outcome_of
from selfcorrect_rag.evaluation.plain_rag import KNOBS, create_plain_rag
from selfcorrect_rag.evaluation.remembered import saving
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.tasks import asked
from selfcorrect_rag.nodes.node import CallCounter
from selfcorrect_rag.prompts.instruct_rag import TASK_INSTRUCTIONS as INSTRUCT_INSTRUCTIONS
from selfcorrect_rag.prompts.self_rag import TASK_INSTRUCTIONS
from selfcorrect_rag.settings import (
    CRAGSettings,
    InstructRAGSettings,
    SelfCRAGSettings,
    SelfRAGSettings,
    Settings,
)

Graph = CompiledStateGraph[Any, Any, Any, Any]


_EXPLAINS = (None, "instruct", "icl")
"""InstructRAG's modes that ask for a rationale, as its instructions do (Table 8)."""


class BadMethod(SelfCorrectError, ValueError):
    """A specification that names no method, or one with knobs that it does not have."""


class Kind(NamedTuple):
    """What the name of a method stands for."""

    settings: type[Settings]
    graph: str = ""
    """Of the parts; empty: plain RAG."""
    knobs: Mapping[str, Any] = {}
    """The settings that make it what it is, which no variant may change."""
    known: frozenset[str] | None = None
    """The knobs that it takes; None: all of its settings."""


KINDS: dict[str, Kind] = {
    "no_retrieval": Kind(CRAGSettings, known=KNOBS - {"passages"}),
    "rag_first": Kind(CRAGSettings, knobs={"passages": 1}, known=KNOBS),
    "rag": Kind(CRAGSettings, known=KNOBS),
    "ralm": Kind(InstructRAGSettings, "instruct_rag", {"mode": "ralm"}),
    "self_rag": Kind(SelfRAGSettings, "self_rag"),
    "crag": Kind(CRAGSettings, "crag"),
    "self_crag": Kind(SelfCRAGSettings, "self_crag"),
    "instruct_rag": Kind(InstructRAGSettings, "instruct_rag"),
}
"""The methods by name: the model alone, plain RAG with the first passage and with all, in-context
RALM (InstructRAG, section 3.1), and the four graphs."""


class Parts(Protocol):
    """What methods are made of; ``selfcorrect_rag.serving.parts.Parts`` is one."""

    # Any: basedpyright takes no cached_property for a property of another type.

    @property
    def llm(self) -> Any:
        """The model that answers, a Runnable."""

    @property
    def chat_model(self) -> Any:
        """A Runnable that answers in its place in graphs that need no reflection, or None."""

    @property
    def retriever(self) -> Any:
        """The retriever of all methods."""

    def graph(self, name: str, settings: Settings | None = None) -> Graph:
        """The graph called ``name``: ``self_rag``, ``crag``, ``self_crag`` or ``instruct_rag``."""


class Spec(NamedTuple):
    """A variant as it is asked for: ``self_rag``, ``mine=crag:upper=0.6,lower=-0.9``."""

    name: str
    """Of its own within a run."""
    kind: str
    """A key of ``KINDS``, or ``module:attribute`` of a compiled graph."""
    settings: Settings | None
    """None for a graph of the user's."""

    @property
    def passages(self) -> int:
        """Most passages that it reads of a question."""
        return getattr(self.settings, "passages", 0)

    def as_json(self) -> dict[str, Any]:
        """The variant with all its settings, as JSON values."""
        settings = None if self.settings is None else self.settings.model_dump(mode="json")
        return {"kind": self.kind, "settings": settings}


_SPEC = re.compile(r"(?:(?P<name>[^:=,]+)=)?(?P<kind>[^:=,]+)(?::(?P<rest>.+))?", re.DOTALL)


def read_spec(text: str, passages: int | None = None) -> Spec:
    """A variant of ``[NAME=]METHOD[:KNOB=VALUE,...]`` or ``[NAME=]MODULE:ATTRIBUTE``.

    Values are JSON or plain text; ``none`` unsets a knob that may be unset.

    Args:
        text: the specification.
        passages: for methods that read several and whose specification does not say how many;
            None: their own default.

    Raises:
        BadMethod: there is no such method, or it has no such knob or value.
    """
    found = _SPEC.fullmatch(text.strip())
    if found is None:
        raise BadMethod(f"{text!r} is no method: give NAME, or NAME:KNOB=VALUE,...; {_NAMES}")
    kind, rest = found["kind"].strip(), found["rest"]
    if kind not in KINDS:
        if not rest or "=" in rest:
            raise BadMethod(f"there is no method {kind!r}; {_NAMES}")
        return Spec(found["name"] or f"{kind}:{rest}", f"{kind}:{rest}", None)
    of = KINDS[kind]
    knobs = _knobs(text, of, rest or "")
    if passages is not None and "passages" not in of.knobs and _takes(of, "passages"):
        knobs.setdefault("passages", passages)
    try:
        settings = of.settings(**{**knobs, **of.knobs})
    except BadSettings as error:
        raise BadMethod(f"{text}: {error}") from error
    if getattr(settings, "approve_search", False):
        raise BadMethod(f"{text}: approve_search waits for a person, which no evaluation has")
    name = found["name"] or (f"{kind}:{rest}" if rest else kind)
    return Spec(name.strip(), kind, settings)


_NAMES = f"there are {', '.join(KINDS)}, and MODULE:ATTRIBUTE of a compiled graph"


def read_specs(texts: Sequence[str], passages: int | None = None) -> list[Spec]:
    """The variants of a run.

    Raises:
        BadMethod: there are none, two have one name, or see :func:`read_spec`.
    """
    specs = [read_spec(text, passages) for text in texts]
    names = [spec.name for spec in specs]
    if not specs:
        raise BadMethod(f"name a method; {_NAMES}")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadMethod(
            f"two methods are called {twice[0]}: give one another name, NAME={twice[0]}"
        )
    return specs


def _knobs(text: str, of: Kind, rest: str) -> dict[str, Any]:
    knobs: dict[str, Any] = {}
    for part in re.split(r",(?=\s*\w+\s*=)", rest) if rest else []:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise BadMethod(f"{text}: {part!r} is no KNOB=VALUE")
        if name in of.knobs or not _takes(of, name):
            known = sorted(set(of.known or of.settings.model_fields) - of.knobs.keys())
            raise BadMethod(f"{text}: it takes no {name}; it takes {', '.join(known)}")
        knobs[name] = _value(value, of.settings.model_fields.get(name))
    return knobs


def _takes(of: Kind, name: str) -> bool:
    return of.known is None or name in of.known


def _value(text: str, field: Any) -> Any:
    if text == "none" and field is not None and field.default is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


class Method:
    """A variant that can be asked; failures are outcomes."""

    def __init__(self, spec: Spec, graph: Runnable[Any, Any]) -> None:
        """``graph`` is what the variant runs; see :func:`open_method`."""
        self.spec, self._graph = spec, graph
        self._takes = _inputs(graph)
        if spec.settings is None and not self._takes & {"question", "messages"}:
            raise BadMethod(f"{spec.kind} takes neither a question nor messages")

    @property
    def name(self) -> str:
        """Its name within the run."""
        return self.spec.name

    async def answer(self, question: Question) -> Outcome:
        """Ask it; where it raises, the outcome says why and has no answer."""
        counter = CallCounter()
        # A graph of ours counts itself, with calls that trigger no callbacks.
        counts = [counter] if self.spec.settings is None else []
        started = time.perf_counter()
        try:
            with saving() as saved:
                result = await self._graph.ainvoke(
                    self._input(question),
                    RunnableConfig(callbacks=[*counts]),
                    **self._options(question),
                )
            seconds = time.perf_counter() - started + saved.seconds
            outcome = outcome_of(question, self.name, result, seconds, counter.usage(seconds))
            return outcome._replace(remembered_calls=saved.calls, remembered_tokens=saved.tokens)
        except Exception as error:  # whatever it is, the other questions go on
            seconds = round(time.perf_counter() - started, 3)
            return Outcome(question.id, self.name, "", seconds=seconds, error=describe_error(error))

    def _input(self, question: Question) -> dict[str, Any]:
        """The graph's input; fixed passages are as many as it would retrieve."""
        text = asked(question)
        given: dict[str, Any] = {"question": text}
        if "question" not in self._takes:
            given = {"messages": [HumanMessage(text)]}
        reads = "documents" in self._takes and self.spec.kind != "no_retrieval"
        if question.passages is not None and reads:
            most = self.spec.passages or len(question.passages)
            given["documents"] = list(question.passages[:most])
        return given

    def _options(self, question: Question) -> dict[str, Any]:
        """The context that gives the graph what the task asks for, beside its own settings."""
        settings = self.spec.settings
        if settings is None:
            return {}
        instructions = TASK_INSTRUCTIONS
        if isinstance(settings, InstructRAGSettings):
            instructions = INSTRUCT_INSTRUCTIONS if settings.mode in _EXPLAINS else {}
        context: dict[str, Any] = {}
        if question.task in instructions and getattr(settings, "instruction", None) is None:
            context["instruction"] = instructions[question.task]
        if question.choices and isinstance(settings, SelfRAGSettings) and not settings.closed:
            context["options"] = tuple(labelled_options(question))
        return {"context": context} if context else {}


def labelled_options(question: Question) -> list[str]:
    """The choices as an answer names them: a label with its text, or the one word for both."""
    return [key if key == text else f"{key}: {text}" for key, text in question.choices.items()]


def open_method(spec: Spec, parts: Parts) -> Method:
    """The variant over the retriever and the models of ``parts``.

    Raises:
        BadMethod: ``module:attribute`` is no graph that takes a question.
    """
    if spec.settings is None:
        return Method(spec, find_graph(spec.kind))
    kind = KINDS[spec.kind]
    if kind.graph:
        return Method(spec, parts.graph(kind.graph, spec.settings))
    retriever = None if spec.kind == "no_retrieval" else parts.retriever
    settings = CRAGSettings.of(spec.settings)
    graph: Any = create_plain_rag(
        parts.chat_model or parts.llm, retriever, settings=settings, name=spec.kind
    )
    return Method(spec, graph)


def find_graph(name: str) -> Runnable[Any, Any]:
    """The graph at ``module:attribute``, or that which the function there makes.

    Raises:
        BadMethod: it cannot be imported, or is no graph.
    """
    try:
        made = find_named(name, Runnable)
    except Exception as error:  # any code runs where a module is imported
        raise BadMethod(f"{name} cannot be opened ({describe_error(error)}); {_NAMES}") from error
    if not isinstance(made, Runnable):
        raise BadMethod(f"{name} is a {type(made).__name__}, not a compiled graph")
    return made


def _inputs(graph: Runnable[Any, Any]) -> set[str]:
    """The keys of a graph's input."""
    return set(graph.get_input_jsonschema().get("properties", ()))
