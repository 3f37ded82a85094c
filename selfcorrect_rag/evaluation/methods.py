"""Methods to compare: each answers a Question with an Outcome, over one retriever and one model."""

import re
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from langchain_core.runnables import Runnable
from langgraph.graph import END, START, StateGraph

from selfcorrect_rag.errors import BadSettings, SelfCorrectError, describe_error
from selfcorrect_rag.evaluation.tasks import Outcome, Question, asked, outcome_of
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes.generate import generate
from selfcorrect_rag.nodes.node import Node, Run, Update, add_node
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.retrieve import retrieve_documents
from selfcorrect_rag.prompts import instruct_rag, self_rag
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.serving.config import parse_value
from selfcorrect_rag.settings import GRAPHS, InstructRAGSettings, SelfRAGSettings, Settings
from selfcorrect_rag.state import CRAGState, Input, Output, total


class BadMethod(SelfCorrectError, ValueError):
    """A specification does not name a method, or sets knobs that it does not have."""


PLAIN = ("no_retrieval", "rag")
KINDS = {**dict.fromkeys(PLAIN, "crag"), **{name: name for name in GRAPHS}}
"""The methods, and the graph whose settings they take: the model alone, plain RAG, the graphs."""
NAMES = f"methods are {', '.join(KINDS)}"
PLAIN_KNOBS = frozenset({*Settings.model_fields, "passages", "instruction"})
"""The settings of CRAG that plain RAG has a use for."""
WEIGHTS = ("weight_sequence", "weight_isrel", "weight_issup", "weight_isuse", "path_rule")
"""Knobs of Self-RAG whose sweep weighs recorded candidates again and asks no model."""


class Spec(NamedTuple):
    """A variant of a method: ``self_rag``, ``mine=crag:upper=0.6,lower=-0.9``."""

    name: str
    """Unique within a run."""
    kind: str
    """A key of ``KINDS``."""
    settings: Settings
    reweighs: str = ""
    """The method whose recorded candidates it weighs again; it is not asked itself."""

    def as_json(self) -> dict[str, Any]:
        """The variant with all its settings, as JSON values."""
        return {"kind": self.kind, "settings": self.settings.model_dump(mode="json")}


class Sweep(NamedTuple):
    """A method at several values of one knob."""

    method: str
    """The name of the method that is swept, with which its variants are compared."""
    knob: str
    values: list[str]
    variants: list[str]
    """Their names, one a value."""


def read_spec(text: str) -> Spec:
    """Read ``[NAME=]METHOD[:KEY=VALUE,...]`` with values as for ``--set``; ``none`` unsets a knob.
    BadMethod if there is no such method, or it does not take such a knob or value."""
    found = re.fullmatch(r"(?:([^:=,]+)=)?([^:=,]+)(?::(.+))?", text.strip(), re.DOTALL)
    name, kind, rest = found.groups("") if found else ("", "", "")
    if (kind := kind.strip().replace("-", "_")) not in KINDS:
        raise BadMethod(f"method must be METHOD or METHOD:KEY=VALUE,..., got {text!r}; {NAMES}")
    model, knobs = GRAPHS[KINDS[kind]], dict[str, Any]()
    known = (PLAIN_KNOBS if kind in PLAIN else model.model_fields.keys()) - {"approve_search"}
    for part in re.split(r",(?=\s*\w+\s*=)", rest) if rest else []:
        knob, _, value = (piece.strip() for piece in part.partition("="))
        if knob not in known or not value:
            raise BadMethod(f"{text}: give KEY=VALUE with one of {', '.join(sorted(known))}")
        knobs[knob] = parse_value(knob, value, model)
    try:
        return Spec((name or f"{kind}:{rest}".rstrip(":")).strip(), kind, model(**knobs))
    except BadSettings as error:
        raise BadMethod(f"{text}: {error}") from error


def read_sweep(text: str) -> tuple[Sweep, list[Spec]]:
    """Read ``METHOD[:KEY=VALUE,...]:KEY=V1,V2,...``, and return its method and variants too."""
    base_text, _, swept = text.strip().rpartition(":")
    knob, _, given = swept.partition("=")
    if not (base_text and given):
        raise BadMethod(f"sweep must be METHOD:KEY=V1,V2,..., got {text!r}")
    base, values = read_spec(base_text), [value.strip() for value in given.split(",")]
    reweighs = base.name if base.kind == "self_rag" and knob in WEIGHTS else ""
    specs = [base]
    for value in values:
        spec = read_spec(f"{base_text}{',' if ':' in base_text else ':'}{knob}={value}")
        name = f"{base.name}{',' if ':' in base.name else ':'}{knob}={value}"
        specs.append(spec._replace(name=name, reweighs=reweighs))
    return Sweep(base.name, knob, values, [spec.name for spec in specs[1:]]), specs


def read_specs(methods: Sequence[str], sweeps: Sequence[Sequence[Spec]] = ()) -> list[Spec]:
    """Read the variants of a run, and add those of sweeps; equal ones are asked once."""
    specs: dict[str, Spec] = {}
    for spec in (*map(read_spec, methods), *(spec for variants in sweeps for spec in variants)):
        if specs.setdefault(spec.name, spec) != spec:
            raise BadMethod(f"{spec.name} is the name of two variants; rename one with NAME=")
    if not specs:
        raise BadMethod(f"give at least one method; {NAMES}")
    return list(specs.values())


class Method:
    """A variant that can be asked; anything with ``spec`` and ``answer`` can stand in."""

    def __init__(self, spec: Spec, graph: Runnable[Any, Any]) -> None:
        self.spec, self._graph = spec, graph

    async def answer(self, question: Question) -> Outcome:
        """Ask it; if it raises, the outcome has the error and no answer."""
        name, kind, settings, _ = self.spec
        given: dict[str, Any] = {"question": asked(question)}
        if question.passages is not None and kind != "no_retrieval":
            limit = getattr(settings, "passages", None)
            given["documents"] = list(question.passages[:limit])
        started, state = time.perf_counter(), dict[str, Any]()
        try:
            context = _context(question, settings) or None
            async for found in self._graph.astream(given, context=context, stream_mode="values"):
                state = found  # the last one is the result; after a fault, what was done before it
            return outcome_of(question, name, state, time.perf_counter() - started)
        except Exception as error:  # the other questions go on
            seconds = round(time.perf_counter() - started, 3)
            spent: Any = {**total(state.get("route", ())), "seconds": seconds}
            fields = {key: n for key, n in spent.items() if key in Outcome._fields}
            return Outcome(question.id, name, "", error=describe_error(error), **fields)


def _context(question: Question, settings: Settings) -> dict[str, Any]:
    """Return the instruction and the options that the task asks for."""
    instructions: Mapping[str, str] = self_rag.TASK_INSTRUCTIONS
    if isinstance(settings, InstructRAGSettings):
        # InstructRAG's (Table 8) are for the modes that write rationales.
        explains = settings.prompt_mode in (None, "instruct", "icl")
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


def open_method(spec: Spec, parts: Any) -> Method:
    """Open a variant over the retriever and the models of ``parts``.

    ``parts`` has ``llm``, ``chat_model``, ``retriever``, ``settings(name, **given)`` and
    ``graph(name, settings)``, as :class:`selfcorrect_rag.serving.parts.Parts` does.
    """
    spec = resolve_spec(spec, parts)
    if spec.kind not in PLAIN:
        return Method(spec, parts.graph(KINDS[spec.kind], spec.settings))
    retriever = None if spec.kind == "no_retrieval" else parts.retriever
    return Method(spec, create_plain_rag(parts.chat_model or parts.llm, retriever, spec.settings))


def resolve_spec(spec: Spec, parts: Any) -> Spec:
    """The variant with the settings that ``parts`` gives its graph where it sets nothing itself."""
    given = spec.settings.model_dump(exclude_unset=True)
    return spec._replace(settings=parts.settings(KINDS[spec.kind], **given))


def create_plain_rag(llm: Model, retriever: Retriever | None, settings: Any) -> Any:
    """Build plain RAG, the baseline of every comparison: retrieve, read all, answer.

    CRAG's last step writes the answer from all passages in one prompt (Self-RAG section 4.2); a
    ReflectionLLM reads them as one passage. Nothing is judged: every passage counts as relevant and
    may be cited. Without a retriever the model answers by itself.
    """
    graph = StateGraph(CRAGState, type(settings), input_schema=Input, output_schema=Output)
    steps = [read_question(settings)]
    if retriever is not None:
        steps += [retrieve_documents(retriever, settings), Node("read_all", _read_all, settings)]
    steps.append(generate(as_language_model(llm, "llm"), settings, apart=False))
    for step in steps:
        add_node(graph, step)
    for before, after in pairwise([START, *(str(step.name) for step in steps), END]):
        graph.add_edge(before, after)
    return graph.compile(name="rag")


def _read_all(state: Mapping[str, Any], run: Run[Any]) -> Update:
    passages = state["passages"]
    return {"knowledge": passages, "judged": ["relevant"] * len(passages)}
