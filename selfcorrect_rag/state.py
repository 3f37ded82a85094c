"""The state of the graphs: TypedDicts and reducers. A turn is one question and its answer."""

import operator
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, Required, cast

from langchain_core.documents import Document
from langchain_core.messages import AnyMessage
from langgraph.channels import BinaryOperatorAggregate, EphemeralValue
from langgraph.graph.message import add_messages
from pydantic import Field
from typing_extensions import TypedDict  # pydantic, which makes the schemas, needs it on 3.11

from selfcorrect_rag.intake import as_documents
from selfcorrect_rag.reflection import Reflection, Term
from selfcorrect_rag.settings import Mode
from selfcorrect_rag.thresholds import Action

Limit = Literal["max_model_calls", "max_tokens"]
Stop = Limit | Literal["max_searches", "retriever", "evaluator", "model"]
"""Why an answer can be cut short: a limit of the settings, or a failed part."""
Step = Literal["retrieve", "continue", "none"]
"""How a segment begins: with a new passage, with the previous segment's passage, or without one."""
Source = Literal["passages", "knowledge"]
"""State key of the texts that segments are written from."""
Judged = Literal["relevant", "irrelevant"]


class Usage(TypedDict):
    """Costs of a run or of one of its steps. Tokens are None if a model did not report them."""

    model_calls: int
    """Batches sent to a local model, and requests to a provider; a failed batch counts as one."""
    prompts: int
    """Prompts of a ReflectionLLM, several of which make a batch."""
    prompt_tokens: int | None
    generated_tokens: int | None
    retrievals: int
    pruned: int
    """Passages dropped by their ISREL before their segment was decoded."""
    seconds: float


class StepRun(Usage):
    """One run of a step, with its costs."""

    step: str
    failed: str | None
    """The part whose fault it recovered from, such as ``retriever``; None if nothing failed."""
    cached: bool
    """Whether its result came from the cache, at no cost."""
    turn: str
    """An id of the turn, by which the costs of a cached result are told from this turn's."""


FREE = cast(Usage, {**dict.fromkeys(Usage.__annotations__, 0), "seconds": 0.0})


def total(route: Sequence[Usage]) -> Usage:
    """Add up the costs of steps; tokens are None if any of them is."""
    counts = {key: [step[key] for step in route] for key in FREE}  # type: ignore[literal-required]
    return cast(Usage, {key: None if None in each else sum(each) for key, each in counts.items()})


def known_tokens(route: Sequence[Usage]) -> int:
    """Add up prompt and generated tokens, without those of models that did not report them."""
    return sum((step["prompt_tokens"] or 0) + (step["generated_tokens"] or 0) for step in route)


def add_to_route(route: list[StepRun], runs: list[StepRun]) -> list[StepRun]:
    """Reducer: append runs; one of another turn came from the cache and costs nothing."""
    turn = route[0]["turn"] if route else None
    hit: Any = {"cached": True, **FREE, "turn": turn}
    added: Any = [run if turn in (None, run["turn"]) else {**run, **hit} for run in runs]
    return [*route, *added]


def add_notes(notes: list[str], new: list[str]) -> list[str]:
    """Reducer: append the notes that are not there yet."""
    return list(dict.fromkeys([*notes, *new]))


def replace_documents(_: list[Document], new: object) -> list[Document]:
    """Reducer: the last documents written, which clients of a server send as JSON objects."""
    return as_documents(new, "the state")


# Channels with reducers have types that are quick to call, as LangGraph does for each copy of one.
Documents = Annotated[list[Document], BinaryOperatorAggregate(list, replace_documents)]


class Input(TypedDict, total=False):
    """Give ``question``, or ``messages`` that end with a human message."""

    question: Annotated[str, Field(description="The question; none in a chat."), EphemeralValue]
    messages: Annotated[
        list[AnyMessage],
        Field(description="The chat; its last message, from a human, is the question."),
        BinaryOperatorAggregate(list, add_messages),
    ]
    documents: Annotated[
        list[Document],
        Field(description="Documents for this turn, best first: then nothing is retrieved."),
        EphemeralValue,
    ]


class Citation(TypedDict):
    """A relevant text that a part of the answer was written from."""

    number: int
    """The number printed in the answer, from 1."""
    passage: int
    """Index into ``passages``; for CRAG and Self-CRAG, into ``knowledge``."""
    title: str
    source: str
    """An http, https or file address, or a file's path; empty if it is anything else."""
    text: str
    quote: str
    """The sentence of ``text`` that states the answer or a segment word for word, else empty."""
    segments: list[int]
    """Indices of the answer's segments that were generated from it."""
    page: NotRequired[int]
    heading: NotRequired[str]


class Output(TypedDict, total=False):
    """The output of every graph."""

    question: Annotated[str, EphemeralValue]
    """The question that was answered: for a follow-up, the standalone rewrite."""
    original_question: str
    messages: Annotated[list[AnyMessage], BinaryOperatorAggregate(list, add_messages)]
    answer: str
    """Plain text, without citation marks but those that InstructRAG's model writes."""
    cited_answer: str
    """The answer with ``[n]`` after each part that cites a text."""
    citations: list[Citation]
    score: float | None
    """How sure the answer is, for ``score_above``; other models' scores do not compare. Self-RAG
    and Self-CRAG: of the chosen path. CRAG: of a ReflectionLLM's answer, Eq. 3; of another model's
    the evaluator's best, and its probability if known. InstructRAG: the text's probability."""
    passages: Documents
    """Every document retrieved or given, in the order of retrieval."""
    notes: Annotated[list[str], BinaryOperatorAggregate(list, add_notes)]
    """Notes for a reader: fallbacks taken, limits met, prompts shortened."""
    route: Annotated[list[StepRun], BinaryOperatorAggregate(list, add_to_route)]
    """The steps of this turn in order, parallel ones by name."""
    usage: Usage
    stopped: Annotated[Stop | None, BinaryOperatorAggregate(Any, lambda _, last: last)]
    """The limit or failed part that cut the answer short; ``notes`` say at which step."""


class TurnState(Input, Output, total=False):
    standalone_question: str
    """The question that the nodes work on; ``question`` is there in the input and at the end."""
    settings: dict[str, Any]
    """The settings that the factory or this turn's context set; fixed when a turn begins."""
    human_message_id: str | None
    """The id of the message that asked; None if ``question`` did."""
    fixed: bool
    """Whether the caller gave the documents."""


class Piece(TypedDict):
    """One control token, or text."""

    kind: Literal["control", "text"]
    text: str


class Segment(TypedDict):
    """A model's output up to the next retrieval token, the end of text or the token limit."""

    text: str
    """Without control tokens, stripped."""
    pieces: list[Piece]
    """The full output in order."""
    reflections: list[Reflection]
    next: Reflection | None
    """The retrieval token that ended the segment; it is not among ``pieces``."""
    finish_reason: Literal["end", "retrieval", "length", "stop", "pruned"]
    tokens: int
    logprob: float | None
    """Sum of the natural log-probabilities of the ``tokens``; None if a provider gives none."""
    prompt_tokens: int
    shortened: int
    """Prompt tokens cut so that the prompt fits the model's context."""
    requests: int
    """Requests sent to a provider for it; 0 if the whole batch was one call."""


class Candidate(TypedDict):
    """A segment for one passage, with its critique."""

    depth: int
    beam: int
    """Index of the beam that it continues."""
    parent: int | None
    """Index into ``candidates`` of the beam's last candidate; None for a first segment."""
    step: Step
    passage: int | None
    """Index into ``passages``."""
    text: str
    pieces: list[Piece]
    judgements: dict[str, dict[str, float]]
    """Group to token to probability, normalised over the group."""
    critique: dict[str, float | None]
    """Score by group: ISREL and ISSUP in [0, 1], ISUSE in [-1, 1]; None without such a token."""
    sequence_probability: float | None
    hard: list[str]
    """The groups that a chat model judged by a label alone, without probabilities."""
    score: float
    """Score of this segment alone, Eq. 3."""
    terms: list[Term]
    """The terms that ``score`` sums, each with its weight."""
    path_score: float
    """Score of the beam that ends with it; beams are compared by it."""
    path_rule: str
    path_terms: list[float]
    """The segment scores that the rule combined."""
    next: Step | None
    """The next step that the model asks for; None if it has finished."""
    finish_reason: str
    option: str | None
    """The answer of a closed set that it gives; None if it gives none of them."""
    dropped: str | None
    """Why it may not be chosen: a hard constraint, pruning, or no text."""
    chosen: bool


class Beam(TypedDict):
    """A partial answer: segments, and the passages for its next one."""

    segments: list[Candidate]
    score: float
    next: Step | None
    """None if the beam has ended."""
    cut: str | None
    """Why it ended before the model finished it; None if the model did."""
    retrieved: list[int]
    """The passages that its next segment may read, best first."""


class Decision(TypedDict):
    """Whether to retrieve before the first segment, and why."""

    retrieve: bool
    probability: float | None
    """P(Retrieval) / (P(Retrieval) + P(No Retrieval)); None if the model was not asked."""
    threshold: float | None
    mode: str


class SelfRAGOutput(Output, total=False):
    """The answer, and Self-RAG's intermediate results."""

    candidates: Annotated[list[Candidate], BinaryOperatorAggregate(list, operator.add)]
    retrieval: Decision
    options: dict[str, float]
    """For closed sets: the summed score of each answer, best first."""
    constraints_met: bool
    """False if every candidate broke a hard constraint and the best of them was used anyway."""


class SelfRAGState(TurnState, SelfRAGOutput, total=False):
    beams: list[Beam]


class Grade(TypedDict):
    """The evaluator's score of one retrieved document, in [-1, 1]."""

    document: int
    """Index into ``passages``."""
    title: str
    score: float


class Strip(TypedDict):
    """Sentences of a document, and whether they were kept."""

    document: int
    """Index into the documents that it was cut from: ``passages``, or ``web_results``."""
    text: str
    score: float | None
    """In [-1, 1]; None if the evaluator was not asked and all is kept."""
    kept: bool


class CRAGOutput(Output, total=False):
    """The answer, and CRAG's intermediate results. Web keys are empty without a search."""

    grades: list[Grade]
    action: Action | None
    """None if no evidence was wanted, or a cost limit left no call for grading."""
    thresholds: dict[Literal["upper", "lower"], float]
    """Those that chose the action; empty without one."""
    strips: list[Strip]
    web_query: str
    web_source: str
    """Name of the search, such as Tavily or a local corpus that replaces the web."""
    web_results: Documents
    web_strips: list[Strip]
    web_failure: str
    """Why the search returned nothing; empty if it succeeded or did not run."""
    knowledge: Documents
    """The documents that the answer is written from: internal first, then external."""
    judged: list[Judged | None]
    """Judgement of each piece of ``knowledge``; None if nothing scored it. Irrelevant are pieces
    with all scores below the lower threshold, and those used although all strips were dropped."""


class CRAGState(TurnState, CRAGOutput, total=False):
    branches: list[Literal["refine", "search"]]
    """The branches that the action, or the settings, ask for."""


class SelfCRAGOutput(SelfRAGOutput, CRAGOutput, total=False):
    """Both graphs' outputs; candidates and citations point into ``knowledge``."""


class SelfCRAGState(SelfRAGState, CRAGState, total=False):
    """The whole state of Self-CRAG."""


class Demonstration(TypedDict, total=False):
    """An example of how to answer; it has no documents (InstructRAG, section 2.3)."""

    question: Required[str]
    rationale: str
    answers: list[str]
    """Aliases of one answer; ``few_shot`` shows the first."""


class InstructRAGOutput(Output, total=False):
    """The answer, and InstructRAG's intermediate results."""

    rationale: str
    """The model's whole output, conclusion included; empty for a baseline."""
    useful_documents: list[int]
    """Documents that the conclusion names by number, as indices into ``passages``."""
    prompt_mode: Mode
    """The one that was used; ``no_retrieval`` if nothing was found."""
    demonstrations: list[Demonstration]
    numbering: list[int]
    """Indices into ``passages`` of the documents shown as Document [1], [2] and so on."""


class InstructRAGState(TurnState, InstructRAGOutput, total=False):
    """The whole state of InstructRAG."""


def blank_state() -> dict[str, Any]:
    """Return the values with which a turn of any graph begins, for nodes used elsewhere too."""
    texts = ("answer", "cited_answer", "rationale", "web_query", "web_source", "web_failure")
    lists = (
        *("passages", "citations", "notes", "route", "candidates", "beams", "grades", "branches"),
        *("strips", "web_results", "web_strips", "knowledge", "judged"),
        *("useful_documents", "demonstrations", "numbering"),
    )
    blank: dict[str, Any] = dict.fromkeys(("stopped", "score", "action"))
    blank |= dict.fromkeys(texts, "") | {key: [] for key in lists}
    blank |= {"options": {}, "thresholds": {}, "usage": FREE, "fixed": False}
    return blank | {"prompt_mode": "instruct", "constraints_met": True}
