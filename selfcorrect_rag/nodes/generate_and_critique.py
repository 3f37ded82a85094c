"""generate_and_critique: one segment for each beam and passage, all in one call."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from selfcorrect_rag.models import PromptedReflectionLLM, ReflectionLLM
from selfcorrect_rag.models.classification import ChatClassifier, Classification
from selfcorrect_rag.models.from_name import Model, as_reflection_llm
from selfcorrect_rag.nodes.decide_retrieval import next_step
from selfcorrect_rag.nodes.limits import best_so_far, first_beams, is_ended, limit_met, stopped
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.prompts.reading import closed_answer, option_labels, option_prompt
from selfcorrect_rag.prompts.self_rag import question_text, segment_prompt
from selfcorrect_rag.reflection import (
    Group,
    ScoredSegment,
    is_readable,
    join_terms,
    judgements,
    path_terms,
    scores_of,
    segment_terms,
    sequence_probability,
)
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Candidate, Limit, Segment, Source, Step

NO_TEXT, UNREADABLE = "no text", "log-probabilities that are not numbers"
"""Why a candidate is dropped, besides hard constraints and pruning."""
CALLS_AN_OPTION = 4
"""Most calls to ask which option a text gives: three ways of asking a provider, and one retry."""
Request = tuple[int, Step, int | None]
"""A segment to be written: its beam, how it begins, and its passage."""


def generate_and_critique(
    llm: ReflectionLLM | Model, settings: SelfRAGSettings | None = None, source: Source = "passages"
) -> Node[SelfRAGSettings]:
    """Write and critique the candidates of all unfinished beams in one batch.

    (Algorithm 1, lines 5-6 and 9-10.) A beam that retrieved gets one candidate per passage, any
    other beam one. In short form a candidate is a whole answer.

    If a limit does not allow for all, the first ones of the best beam are written; a single one may
    go without critique. A model that fails late ends the answer. Passages are read from ``source``.
    """
    model = as_reflection_llm(llm)

    async def step(state: Mapping[str, Any], run: Run[SelfRAGSettings]) -> Update:
        if is_ended(state):  # a retriever or an evaluator that failed late has ended the beams
            return {}
        settings, passages, number = run.settings, state[source], len(state[source])
        beams, known = first_beams(state, range(number)), state["candidates"]
        if source == "knowledge":  # all of it, for each beam that wants evidence (appendix B.2)
            beams = [{**beam, "retrieved": [*range(number)]} for beam in beams]
        # A person may have taken away what was retrieved.
        beams = [{**b, "retrieved": [i for i in b["retrieved"] if i < number]} for b in beams]
        requests, is_critiqued, limit, wanted = _batch(model, {**state, "beams": beams}, settings)
        question = question_text(state["question"], settings.instruction)
        prompts = await run.compute(
            lambda: [
                segment_prompt(question, beams[beam]["segments"], passages, step, passage)
                for beam, step, passage in requests
            ],
            texts=passages,
        )
        segments = await run.segments(
            model.generate_segments,
            model.agenerate_segments,
            prompts,
            max_tokens=settings.segment_tokens,
            prune_below=settings.prune_below,
            critique=is_critiqued,
            whole=settings.short,
        )
        candidates = []
        for request, segment in zip(requests, segments, strict=True):
            written = beams[request[0]]["segments"]
            candidate = _candidate(known, written, settings, request, segment)
            candidates.append(candidate)
            shown = ("depth", "beam", "passage", "text", "critique", "score")
            run.emit("candidate_scored", **{key: candidate[key] for key in shown})  # type: ignore[literal-required]
        if settings.closed:
            await _add_options(run, model, state, candidates)
        is_asked = is_critiqued and isinstance(model, PromptedReflectionLLM)
        update: Update = {"candidates": candidates, "notes": _notes(segments, is_asked)}
        if limit:
            what = f"the first {len(segments)} of {wanted} candidates were written"
            marks = stopped(run, limit, what + ("" if is_critiqued else ", without critique"))
            update = {**update, **marks, "notes": [*update["notes"], *marks["notes"]]}
        return update

    return Node("generate_and_critique", step, SelfRAGSettings.of(settings), best_so_far)


def _batch(
    llm: ReflectionLLM, state: Mapping[str, Any], settings: SelfRAGSettings
) -> tuple[list[Request], bool, Limit | None, int]:
    """Return as many segments as the limits allow, at least one, whether they are critiqued, the
    limit that did not allow all, and the number that the beams want."""

    def limit(number: int) -> Limit | None:
        tokens = number * settings.segment_tokens
        return limit_met(state, settings, llm.most_calls(number), tokens)

    requests: list[Request] = []
    for index, beam in enumerate(state["beams"]):
        if beam["next"] == "retrieve" and beam["retrieved"]:
            requests += [(index, "retrieve", passage) for passage in beam["retrieved"]]
        elif beam["next"] == "continue":
            requests.append((index, "continue", beam["segments"][-1]["passage"]))
        elif beam["next"] is not None:  # no evidence wanted, or none found
            requests.append((index, "none", None))
    met = limit(len(requests))
    if met is None:
        return requests, True, None, len(requests)
    number = next((n for n in range(len(requests) - 1, 1, -1) if not limit(n)), 1)
    return requests[:number], limit(number) != "max_model_calls", met, len(requests)


async def _add_options(
    run: Run[SelfRAGSettings],
    llm: ReflectionLLM,
    state: Mapping[str, Any],
    candidates: Sequence[Candidate],
) -> None:
    """Set the option that each candidate gives, word for word or as a chat model says."""
    options, most = run.settings.options, run.settings.max_model_calls
    for candidate in candidates:
        candidate["option"] = closed_answer(candidate["text"], options)
    asked = [c for c in candidates if c["option"] is None and c["text"].strip()]
    if most is not None:
        spent = sum(step["model_calls"] for step in (*state["route"], run.costs))
        asked = asked[: max(0, most - spent) // CALLS_AN_OPTION]
    if not (asked and options and isinstance(llm, PromptedReflectionLLM)):
        return
    classifier, label = ChatClassifier(llm.critic or llm.model), option_labels(options)
    prompts = [option_prompt(state["question"], c["text"], options) for c in asked]
    questions = [Classification(prompt, (label,)) for prompt in prompts]
    results = await run.call(classifier.classify, classifier.aclassify, questions)
    for candidate, result in zip(asked, results, strict=True):
        (said,) = result.predictions
        if said is not None and said.label.isdigit():
            candidate["option"] = options[int(said.label) - 1]


def _candidate(
    known: Sequence[Candidate],
    written: Sequence[Candidate],
    settings: SelfRAGSettings,
    request: Request,
    segment: Segment,
) -> Candidate:
    """The candidate, of which `_add_options` may find the ``option``."""
    beam, step, passage = request
    reflections = segment["reflections"]
    if settings.short:
        # ISREL is given before the first word. A later one is about a passage that the model made
        # up, behind a [Retrieval] of its own.
        reflections = [r for r in reflections if r["group"] != Group.ISREL or r["position"] == 0]
    readable = list(filter(is_readable, reflections))
    is_unreadable = len(readable) < len(reflections) or not (segment["logprob"] or 0.0) < math.inf
    following: Step | None = None
    if segment["next"] is not None and is_readable(segment["next"]):
        following = next_step(segment["next"], settings, has_evidence=passage is not None)
    elif segment["next"] is not None:
        is_unreadable = True
    dropped = None
    if segment["finish_reason"] == "pruned":
        dropped = "pruned by ISREL"
    elif is_unreadable:
        dropped = UNREADABLE
    elif broken := [r["token"] for r in reflections if r["token"] in settings.hard_constraints]:
        dropped = f"hard constraint {broken[0]}"  # section 3.3: of the chosen tokens
    elif not segment["text"]:
        dropped = NO_TEXT
    judged, weights, rule = judgements(readable), settings.weights, settings.path_rule
    scores = scores_of(judged)
    sequence = sequence_probability(segment["logprob"], segment["tokens"])
    terms = segment_terms(scores, sequence, weights)
    path = [*scored(written), ScoredSegment(scores, sequence, step == "retrieve")]
    each = path_terms(path, weights, rule)
    return Candidate(
        depth=known[-1]["depth"] + 1 if known else 0,
        beam=beam,
        parent=known.index(written[-1]) if written else None,
        step=step,
        passage=passage,
        text=segment["text"],
        pieces=segment["pieces"],
        judgements=judged,
        critique=scores,
        sequence_probability=sequence,
        hard=[str(r["group"]) for r in segment["reflections"] if r.get("prompted") == "hard"],
        score=sum(term["weight"] * term["value"] for term in terms),
        terms=terms,
        path_score=join_terms(each, rule),
        path_rule=rule,
        path_terms=each,
        next=following,
        finish_reason=segment["finish_reason"],
        option=None,
        dropped=dropped,
        chosen=False,
    )


def scored(path: Sequence[Candidate]) -> list[ScoredSegment]:
    """Return the segments of a path as inputs of its path score."""
    terms = [(c["critique"], c["sequence_probability"], c["step"] == "retrieve") for c in path]
    return [ScoredSegment(*each) for each in terms]


def _notes(segments: Sequence[Segment], is_asked: bool) -> list[str]:
    """Notes on shortened prompts, and on reflections that were prompted for, not generated."""
    notes, number = [], len(segments)
    if cut := [segment["shortened"] for segment in segments if segment["shortened"]]:
        longer = f"{len(cut)} of {number} prompts were longer than the model's context"
        notes.append(f"{longer}: up to {max(cut)} tokens were cut, passages first")
    if is_asked:
        notes.append("the model has no reflection tokens: it was prompted for its judgements")
        if unjudged := sum(not segment["reflections"] for segment in segments):
            notes.append(f"{unjudged} of {number} candidates have no readable judgement")
        if any(r.get("prompted") == "hard" for s in segments for r in s["reflections"]):
            notes.append("its provider gave no probabilities: critiques are hard labels")
    return notes
