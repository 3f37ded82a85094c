"""Methods to compare: each answers a Question with an Outcome, over one retriever and one model."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables import Runnable, RunnableConfig

from selfcorrect_rag.errors import BadSettings, SelfCorrectError, describe_error, find_named
from selfcorrect_rag.evaluation.outcomes import Outcome, outcome_of
from selfcorrect_rag.evaluation.plain_rag import KNOBS, create_plain_rag
from selfcorrect_rag.evaluation.tasks import Question, asked
from selfcorrect_rag.prompts import instruct_rag, self_rag
from selfcorrect_rag.settings import (
    CRAGSettings,
    InstructRAGSettings,
    SelfCRAGSettings,
    SelfRAGSettings,
    Settings,
)


class BadMethod(SelfCorrectError, ValueError):
    """A specification does not name a method, or sets knobs that it does not have."""


class Kind(NamedTuple):
    """A method, as its name gives it."""

    settings: type[Settings]
    graph: str = ""
    """A graph of the parts; empty: plain RAG."""
    fixed: Mapping[str, Any] = {}
    """The settings that make it what it is."""
    knobs: frozenset[str] | None = None
    """The settings that it takes; None: all."""


KINDS: dict[str, Kind] = {
    "no_retrieval": Kind(CRAGSettings, knobs=KNOBS - {"passages"}),
    "rag_first": Kind(CRAGSettings, "", {"passages": 1}, KNOBS),
    "rag": Kind(CRAGSettings, knobs=KNOBS),
    "ralm": Kind(InstructRAGSettings, "instruct_rag", {"mode": "ralm"}),
    "self_rag": Kind(SelfRAGSettings, "self_rag"),
    "crag": Kind(CRAGSettings, "crag"),
    "self_crag": Kind(SelfCRAGSettings, "self_crag"),
    "instruct_rag": Kind(InstructRAGSettings, "instruct_rag"),
}
"""The methods: the model alone, plain RAG with the first passage and with all, in-context RALM
(InstructRAG, section 3.1), and the four graphs."""
NAMES = f"methods are {', '.join(KINDS)}, and MODULE:ATTRIBUTE of a compiled graph"
WEIGHTS = ("weight_sequence", "weight_isrel", "weight_issup", "weight_isuse", "path_rule")
"""Knobs of Self-RAG whose sweep weighs recorded candidates again and asks no model."""
ABLATIONS = (
    *("without_action=correct", "without_action=incorrect", "without_action=ambiguous"),
    *("refine=false", "rewrite=false", "select=false", "upper=-1,lower=-1"),
)
"""CRAG's ablations (Tables 2 and 3); the last: without search."""


USAGE = ("model_calls", "prompt_tokens", "generated_tokens")


class Parts(Protocol):
    """The parts of methods; ``selfcorrect_rag.serving.parts.Parts`` is one."""

    @property
    def llm(self) -> Any:
        """The model that answers."""

    @property
    def chat_model(self) -> Any:
        """A chat model that answers instead where no reflection is needed, or None."""

    @property
    def retriever(self) -> Any:
        """The retriever of all methods."""

    def settings(self, name: str, **given: Any) -> Settings:
        """The settings of the graph called ``name``: the configuration's, then ``given``."""

    def graph(self, name: str, settings: Settings | None = None) -> Any:
        """The graph called ``self_rag``, ``crag``, ``self_crag`` or ``instruct_rag``."""


class Spec(NamedTuple):
    """A variant of a method: ``self_rag``, ``mine=crag:upper=0.6,lower=-0.9``."""

    name: str
    """Unique within a run."""
    kind: str
    """A key of ``KINDS``, or ``module:attribute`` of a compiled graph."""
    settings: Settings | None
    """None for a graph of the user's."""
    reweighs: str = ""
    """The method whose recorded candidates it weighs again; it is not asked itself."""

    def as_json(self) -> dict[str, Any]:
        """The variant with all its settings, as JSON values."""
        settings = None if self.settings is None else self.settings.model_dump(mode="json")
        return {"kind": self.kind, "settings": settings}


class Sweep(NamedTuple):
    """A method at several values of one knob."""

    method: str
    """The name of the method that is swept, with which its variants are compared."""
    knob: str
    """The setting, or ``ablations``."""
    values: list[str]
    variants: list[str]
    """Their names, one a value."""


def read_spec(text: str, passages: int | None = None) -> Spec:
    """Read ``[NAME=]METHOD[:KNOB=VALUE,...]`` or ``[NAME=]MODULE:ATTRIBUTE``.

    Values are JSON or plain text; ``none`` unsets a knob. ``passages`` is for methods that do not
    say how many they read; None: their own default.

    Raises:
        BadMethod: there is no such method, or it does not take such a knob or value.
    """
    found = re.fullmatch(r"(?:([^:=,]+)=)?([^:=,]+)(?::(.+))?", text.strip(), re.DOTALL)
    if found is None:
        raise BadMethod(f"method must be NAME or NAME:KNOB=VALUE,..., got {text!r}; {NAMES}")
    name, kind, rest = found[1], found[2].strip(), found[3] or ""
    if kind not in KINDS:
        if not rest or "=" in rest:
            raise BadMethod(f"unknown method {kind!r}; {NAMES}")
        return Spec(name or f"{kind}:{rest}", f"{kind}:{rest}", None)
    of, knobs = KINDS[kind], {}
    known = set(of.settings.model_fields if of.knobs is None else of.knobs) - of.fixed.keys()
    for part in re.split(r",(?=\s*\w+\s*=)", rest) if rest else []:
        knob, _, value = (piece.strip() for piece in part.partition("="))
        if knob not in known or not value:
            raise BadMethod(f"{text}: give KNOB=VALUE with one of {', '.join(sorted(known))}")
        knobs[knob] = None if value == "none" else _json_or_text(value)
    if passages is not None and "passages" in known:
        knobs.setdefault("passages", passages)
    try:
        settings = of.settings(**{**knobs, **of.fixed})
    except BadSettings as error:
        raise BadMethod(f"{text}: {error}") from error
    if getattr(settings, "approve_search", False):
        raise BadMethod(f"{text}: approve_search waits for a person; leave it out")
    return Spec((name or (f"{kind}:{rest}" if rest else kind)).strip(), kind, settings)


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def read_specs(texts: Sequence[str], passages: int | None = None) -> list[Spec]:
    """Read the variants of a run.

    Raises:
        BadMethod: there are none, two have one name, or see :func:`read_spec`.
    """
    specs = [read_spec(text, passages) for text in texts]
    names = [spec.name for spec in specs]
    if not specs:
        raise BadMethod(f"give at least one method; {NAMES}")
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadMethod(f"two methods are called {twice[0]}: rename one with NAME={twice[0]}")
    return specs


def read_sweep(text: str, passages: int | None = None) -> tuple[Sweep, list[Spec]]:
    """Read ``METHOD[:KNOB=VALUE,...]:KNOB=V1,V2,...``, or ``METHOD:ablations`` of CRAGs.

    Returns:
        The sweep, and its specs: the method itself first, then a variant for each value.

    Raises:
        BadMethod: it cannot be read.
    """
    base_text, _, swept = text.strip().rpartition(":")
    knob, _, values = swept.partition("=")
    if not base_text or not (values or swept == "ablations"):
        raise BadMethod(f"sweep must be METHOD:KNOB=V1,V2,... or METHOD:ablations, got {text!r}")
    base = read_spec(base_text, passages)
    if swept == "ablations" and base.kind not in ("crag", "self_crag"):
        raise BadMethod(f"{text}: ablations are of crag or self_crag")
    changes = [f"{knob}={value.strip()}" for value in values.split(",")] if values else [*ABLATIONS]
    specs, names = [base], []
    for change in changes:
        joint = "," if ":" in base_text else ":"
        spec = read_spec(f"{base_text}{joint}{change}", passages)
        name = f"{base.name}{',' if ':' in base.name else ':'}{change}"
        weighed = base.name if base.kind == "self_rag" and knob in WEIGHTS else ""
        specs.append(spec._replace(name=name, reweighs=weighed))
        names.append(name)
    given = [change.partition("=")[2] for change in changes] if values else changes
    return Sweep(base.name, knob, given, names), specs


class Method:
    """A variant that can be asked."""

    def __init__(self, spec: Spec, graph: Runnable[Any, Any]) -> None:
        self.spec, self._graph = spec, graph
        self._takes = set(graph.get_input_jsonschema().get("properties", ()))
        if spec.settings is None and not self._takes & {"question", "messages"}:
            raise BadMethod(f"{spec.kind} must take question or messages as its input")

    @property
    def name(self) -> str:
        """Its name within the run."""
        return self.spec.name

    async def answer(self, question: Question) -> Outcome:
        """Ask it; if it raises, the outcome has the error and no answer."""
        text, settings, counter = asked(question), self.spec.settings, _CallCounter()
        given: dict[str, Any] = {"question": text}
        if "question" not in self._takes:
            given = {"messages": [HumanMessage(text)]}
        reads = "documents" in self._takes and self.spec.kind != "no_retrieval"
        if question.passages is not None and reads:
            limit = getattr(settings, "passages", None)
            given["documents"] = list(question.passages[:limit])
        started = time.perf_counter()
        try:
            if settings is None:
                config = RunnableConfig(callbacks=[counter])
                result = dict(await self._graph.ainvoke(given, config))
                result.setdefault("usage", counter.usage)
            else:
                context = _context(question, settings)
                result = await self._graph.ainvoke(given, context=context or None)
            return outcome_of(question, self.name, result, time.perf_counter() - started)
        except Exception as error:  # the other questions go on
            seconds = round(time.perf_counter() - started, 3)
            return Outcome(question.id, self.name, "", seconds=seconds, error=describe_error(error))


def _context(question: Question, settings: Settings) -> dict[str, Any]:
    """Return the instruction and the options that the task asks for."""
    instructions: Mapping[str, str] = self_rag.TASK_INSTRUCTIONS
    if isinstance(settings, InstructRAGSettings):
        # InstructRAG's (Table 8) are for the modes that write rationales.
        explains = settings.mode in (None, "instruct", "icl")
        instructions = instruct_rag.TASK_INSTRUCTIONS if explains else {}
    context: dict[str, Any] = {}
    if question.task in instructions and getattr(settings, "instruction", None) is None:
        context["instruction"] = instructions[question.task]
    if question.choices and isinstance(settings, SelfRAGSettings) and not settings.closed:
        context["options"] = tuple(labelled_options(question))
    return context


def labelled_options(question: Question) -> list[str]:
    """The choices as an answer names them: a label with its text, or one word for both."""
    return [key if key == text else f"{key}: {text}" for key, text in question.choices.items()]


class _CallCounter(BaseCallbackHandler):
    """Counts the model calls of a graph that does not count its own."""

    def __init__(self) -> None:
        self.usage: dict[str, Any] = dict.fromkeys(USAGE, 0)

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        message = getattr(response.generations[0][0], "message", None)
        usage = getattr(message, "usage_metadata", None) or {}
        more = (1, usage.get("input_tokens"), usage.get("output_tokens"))
        for key, count in zip(USAGE, more, strict=True):
            known = self.usage[key]
            self.usage[key] = None if None in (known, count) else known + count


def open_method(spec: Spec, parts: Parts) -> Method:
    """Open a variant over the retriever and the models of ``parts``.

    Raises:
        BadMethod: ``module:attribute`` is not a graph that takes a question.
    """
    if spec.settings is None:
        return Method(spec, find_graph(spec.kind))
    if graph := KINDS[spec.kind].graph:
        spec = resolve_spec(spec, parts)
        return Method(spec, parts.graph(graph, spec.settings))
    retriever = None if spec.kind == "no_retrieval" else parts.retriever
    settings = CRAGSettings.of(spec.settings)
    model = parts.chat_model or parts.llm
    return Method(spec, create_plain_rag(model, retriever, settings=settings, name=spec.kind))


def resolve_spec(spec: Spec, parts: Parts) -> Spec:
    """The variant with the settings that ``parts`` gives the graph where it sets nothing itself."""
    kind = KINDS.get(spec.kind)
    if spec.settings is None or kind is None or not kind.graph:
        return spec
    return spec._replace(settings=parts.settings(kind.graph, **spec.settings.set_fields()))


def find_graph(name: str) -> Runnable[Any, Any]:
    """The graph at ``module:attribute``, or that which the function there returns.

    Raises:
        BadMethod: it cannot be imported, or is not a graph.
    """
    try:
        made = find_named(name, Runnable)
    except Exception as error:  # any code runs when a module is imported
        raise BadMethod(f"cannot open {name} ({describe_error(error)}); {NAMES}") from error
    if not isinstance(made, Runnable):
        raise BadMethod(f"{name} must be a compiled graph, got {type(made).__name__}")
    return made
