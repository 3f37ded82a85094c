"""generate_and_critique: one segment for each beam and passage, all in one call."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from langchain_core.documents import Document
from typing_extensions import TypedDict

from selfcorrect_rag.errors import Fault
from selfcorrect_rag.events import CandidateScored
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.from_name import Model, as_reflection_llm
from selfcorrect_rag.nodes.base.limits import best_so_far, limit_met, stopped, with_first_beam
from selfcorrect_rag.nodes.base.node import Node, Update, Work, call, callbacks, current, emit
from selfcorrect_rag.nodes.base.usage import attempted, counter, used
from selfcorrect_rag.nodes.decide_retrieval import next_step
from selfcorrect_rag.prompts.parts import Prompt
from selfcorrect_rag.prompts.self_rag import question_text, segment_prompt
from selfcorrect_rag.reflection import (
    Group,
    Reflection,
    ScoredSegment,
    Term,
    critique,
    is_readable,
    path_score,
    path_terms,
    probabilities,
    segment_score,
    segment_terms,
    sequence_probability,
)
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state.costs import Limit
from selfcorrect_rag.state.self_rag import Candidate, Segment, SelfRAGState, Source, Step

NO_TEXT, UNREADABLE = "no text", "log-probabilities that are not numbers"
PRUNED = "pruned by ISREL"
"""Why a candidate is dropped, besides hard constraints and pruning."""


class _Ask(NamedTuple):
    """A segment to be written."""

    beam: int
    step: Step
    passage: int | None


class _Batch(NamedTuple):
    """The segments that one model call writes."""

    asks: list[_Ask]
    critique: bool
    limit: Limit | None
    """The limit that made it smaller than the beams need, if any."""
    wanted: int


def generate_and_critique(
    llm: ReflectionLLM | Model, settings: SelfRAGSettings | None = None, source: Source = "passages"
) -> Node:
    """Write and criticise the candidates of all unfinished beams in one batch.

    (Algorithm 1, lines 5-6 and 9-10.) A beam that retrieved gets one candidate per passage, any
    other beam one. In short form a candidate is a whole answer. ``source`` is the state key of the
    passages.

    Where a limit does not allow for all, the first ones of the best beam are written; a single
    candidate may go without critique. A model that fails before anything is written fails the run;
    later the best answer so far is used.
    """
    settings = SelfRAGSettings.of_step(settings)
    model = as_reflection_llm(llm)

    def run(state: SelfRAGState) -> Work:
        count = len(cast(Mapping[str, Any], state)[source])
        state = with_first_beam(state, "retrieve", range(count))
        chosen = current(settings)
        batch = _batch(model, state, chosen)
        segments = yield from call(
            model.generate_segments,
            model.agenerate_segments,
            _prompts(state, chosen, batch.asks, source),
            max_tokens=chosen.segment_tokens,
            prune_below=chosen.prune_below,
            critique=batch.critique,
            whole=chosen.short,
            callbacks=callbacks(),
            within=attempted(),
        )
        return _update(state, chosen, batch, segments, model.groups)

    return Node("generate_and_critique", run, settings, _failed)


def _batch(llm: ReflectionLLM, state: SelfRAGState, settings: SelfRAGSettings) -> _Batch:
    """As many segments as the limits allow, and at least one."""

    def limit(number: int) -> Limit | None:
        tokens = number * settings.segment_tokens
        return limit_met(state, settings, llm.most_calls(number), tokens)

    asks = _asks(state)
    number = next((n for n in range(len(asks), 1, -1) if not limit(n)), 1)
    critique = limit(number) != "max_model_calls"
    return _Batch(asks[:number], critique, limit(len(asks)), len(asks))


def _asks(state: SelfRAGState) -> list[_Ask]:
    asks: list[_Ask] = []
    for index, beam in enumerate(state["beams"]):
        match beam["next"]:
            case None:
                continue
            case "retrieve" if beam["retrieved"]:
                asks += [_Ask(index, "retrieve", passage) for passage in beam["retrieved"]]
            case "continue":
                asks.append(_Ask(index, "continue", beam["segments"][-1]["passage"]))
            case _:  # no evidence wanted, or none found
                asks.append(_Ask(index, "none", None))
    return asks


def _prompts(
    state: SelfRAGState, settings: SelfRAGSettings, asks: Sequence[_Ask], source: Source
) -> list[Prompt]:
    question = question_text(state["question"], settings.instruction)
    passages: list[Document] = cast(Mapping[str, Any], state)[source]
    return [
        segment_prompt(question, state["beams"][beam]["segments"], passages, step, passage)
        for beam, step, passage in asks
    ]


def _update(
    state: SelfRAGState,
    settings: SelfRAGSettings,
    batch: _Batch,
    segments: Sequence[Segment],
    groups: Sequence[str],
) -> Update:
    candidates = []
    for ask, segment in zip(batch.asks, segments, strict=True):
        candidate = _candidate(state, settings, ask, segment, groups)
        candidates.append(candidate)
        emit(
            CandidateScored(
                event="candidate_scored",
                depth=candidate["depth"],
                beam=candidate["beam"],
                passage=candidate["passage"],
                text=candidate["text"],
                critique=candidate["critique"],
                score=candidate["score"],
            )
        )
    notes = list(state["notes"])
    if shortened := [segment["shortened"] for segment in segments if segment["shortened"]]:
        notes.append(
            f"{len(shortened)} of {len(segments)} prompts were longer than the model's context: "
            f"up to {max(shortened)} tokens were cut, passages first"
        )
    notes += [note for note in prompted_notes(segments) if note not in notes]
    marks: Update = {}
    if batch.limit:
        what = f"{len(segments)} of {batch.wanted} candidates were written"
        what += "" if batch.critique else ", without critique"
        marks = stopped({**state, "notes": notes}, settings, batch.limit, what)
    return {
        "candidates": [*state["candidates"], *candidates],
        "notes": notes,
        **marks,
        "usage": used(state["usage"], segments),
    }


def _failed(state: SelfRAGState, fault: Fault) -> Update:
    update = best_so_far(state, fault)
    counter().add_attempt()
    calls = state["usage"]["model_calls"] + counter().model_calls
    return {**update, "usage": {**state["usage"], "model_calls": calls}}


def _candidate(
    state: SelfRAGState,
    settings: SelfRAGSettings,
    ask: _Ask,
    segment: Segment,
    groups: Sequence[str],
) -> Candidate:
    reflections = _of_passage(segment) if settings.short else segment["reflections"]
    scores = critique(reflections, groups)
    sequence = sequence_probability(segment["logprob"], segment["tokens"])
    written = state["beams"][ask.beam]["segments"]
    path = [*scored(written), ScoredSegment(scores, sequence, ask.step == "retrieve")]
    going_on: Step | None = None
    if segment["next"] is not None and is_readable(segment["next"]):
        going_on = next_step(segment["next"], settings, has_evidence=ask.passage is not None)
    return Candidate(
        depth=state["depth"],
        beam=ask.beam,
        parent=state["candidates"].index(written[-1]) if written else None,
        step=ask.step,
        passage=ask.passage,
        text=segment["text"],
        pieces=segment["pieces"],
        judgements=_judgements(reflections),
        critique=scores,
        sequence_probability=sequence,
        hard=[r["group"] for r in segment["reflections"] if r.get("prompted") == "hard"],
        **weighed(path, settings),
        next=going_on,
        finish_reason=segment["finish_reason"],
        dropped=_dropped(segment, reflections, settings),
        chosen=False,
    )


class Weighed(TypedDict):
    """The fields of a candidate that weights and the path rule decide."""

    score: float
    terms: list[Term]
    path_score: float
    path_rule: str
    path_terms: list[float]


def weighed(path: Sequence[ScoredSegment], settings: SelfRAGSettings) -> Weighed:
    """The scores of the last segment of ``path``, alone and as the end of the path."""
    last, weights, rule = path[-1], settings.weights, settings.path_rule
    return Weighed(
        score=segment_score(last.critique, last.sequence, weights),
        terms=segment_terms(last.critique, last.sequence, weights),
        path_score=path_score(path, weights, rule),
        path_rule=rule,
        path_terms=path_terms(path, weights, rule),
    )


def scored(path: Sequence[Candidate]) -> list[ScoredSegment]:
    """The segments of a path as inputs of its path score."""
    return [
        ScoredSegment(c["critique"], c["sequence_probability"], c["step"] == "retrieve")
        for c in path
    ]


def _of_passage(segment: Segment) -> list[Reflection]:
    """The reflections of a whole answer that judge its own passage.

    ISREL is given before the first word. A later one is about a passage that the model made up,
    behind a [Retrieval] of its own.
    """
    return [r for r in segment["reflections"] if r["group"] != Group.ISREL or r["position"] == 0]


def prompted_notes(segments: Sequence[Segment]) -> list[str]:
    """Notes on reflection tokens that were prompted for, not generated."""
    reflections = [r for s in segments for r in (*s["reflections"], s["next"]) if r is not None]
    kinds = {reflection.get("prompted") for reflection in reflections}
    notes = []
    if kinds & {"soft", "hard"}:
        notes.append("the model has no reflection tokens: prompts asked for what they say")
    if "hard" in kinds:
        notes.append("its provider gave no probabilities: critiques are hard labels")
    return notes


def _judgements(reflections: Sequence[Reflection]) -> dict[str, dict[str, float]]:
    first: dict[str, dict[str, float]] = {}
    for reflection in filter(is_readable, reflections):
        first.setdefault(reflection["group"], probabilities(reflection["logprobs"]))
    return first


def _dropped(
    segment: Segment, reflections: Sequence[Reflection], settings: SelfRAGSettings
) -> str | None:
    """Why a candidate is dropped: hard constraints (section 3.3) test the chosen tokens, not
    scores."""
    if segment["finish_reason"] == "pruned":
        return PRUNED
    given = [*reflections, *([segment["next"]] if segment["next"] else [])]
    if not (segment["logprob"] or 0.0) < math.inf or not all(map(is_readable, given)):  # or NaN
        return UNREADABLE
    return barred([r["token"] for r in reflections], segment["text"], settings)


def barred(tokens: Sequence[str], text: str, settings: SelfRAGSettings) -> str | None:
    """Why a readable candidate may not be chosen: a reflection token of it that a hard constraint
    forbids, or no text; None if it may."""
    if broken := [token for token in tokens if token in settings.hard_constraints]:
        return f"hard constraint {broken[0]}"
    return None if text else NO_TEXT
