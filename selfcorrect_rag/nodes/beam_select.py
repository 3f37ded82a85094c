"""beam_select: keep the best partial answers, finished ones among them."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.documents import Document

from selfcorrect_rag.closed_set import closed_answer
from selfcorrect_rag.events import SegmentChosen
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.nodes.base import Node, Update, current, emit, plain_node
from selfcorrect_rag.nodes.citing import citations_of, cited_text, settled
from selfcorrect_rag.nodes.limits import limit_met, stopped
from selfcorrect_rag.nodes.reply import say
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Beam, Candidate, SelfRAGState, Source


def beam_select(
    llm: ReflectionLLM, settings: SelfRAGSettings, source: Source = "passages"
) -> Node[SelfRAGState]:
    """Rank by path score and keep the ``beam_width`` best (section 3.3, tree decoding).

    A finished beam stays in the race with its score. Dropped candidates cannot be chosen; a beam
    all of whose candidates are dropped ends where it is. Ties go to the earlier candidate, which
    is the one whose passage was retrieved first. Where a limit leaves ``llm`` no call for one more
    segment, the beams end as they are. A reply streams by segment, as soon as all beams agree on
    one. ``source`` is where in the state the passages stand.
    """

    def run(state: SelfRAGState) -> Update:
        chosen = current(settings)
        new = [c for c in state["candidates"] if c["depth"] == state["depth"]]
        update = _closed(state, chosen, new) if chosen.closed else _open(llm, state, chosen, new)
        best = update["beams"][0]
        if best["segments"]:
            emit(
                SegmentChosen(
                    event="segment_chosen",
                    text=best["segments"][-1]["text"],
                    passage=best["segments"][-1]["passage"],
                    score=best["score"],
                    answer=" ".join(segment["text"] for segment in best["segments"]),
                    settled=len(settled(update["beams"])),
                )
            )
            _say(state, update["beams"], cast(Mapping[str, Any], state)[source])
        return {**update, "depth": state["depth"] + 1}

    return plain_node(run)


def _say(state: SelfRAGState, beams: Sequence[Beam], passages: Sequence[Document]) -> None:
    """Stream what is settled now and was not before."""
    now, before = settled(beams), settled(state["beams"])
    citations = citations_of(now, passages)
    said = cited_text(before, citations)
    say(state, cited_text(now, citations)[len(said) :])


def _open(
    llm: ReflectionLLM, state: SelfRAGState, settings: SelfRAGSettings, new: Sequence[Candidate]
) -> Update:
    racing = [beam for beam in state["beams"] if beam["next"] is None]
    racing += [_extended(state["beams"][c["beam"]], c) for c in new if c["dropped"] is None]
    alive = {c["beam"] for c in new if c["dropped"] is None}
    for index, beam in enumerate(state["beams"]):
        if beam["next"] is not None and index not in alive and beam["segments"]:
            racing.append({**beam, "next": None})
    update: Update = {}
    if not racing:
        racing, update = _best_dropped(state, new)
    ranked = sorted(racing, key=lambda beam: -beam["score"])[: settings.beam_width]
    if not any(beam["next"] for beam in ranked):
        return {**update, "beams": ranked}
    limit = limit_met(state, settings, llm.most_calls(1), settings.segment_tokens)
    if state["depth"] + 1 >= settings.depth:
        update["notes"] = [
            *update.get("notes", state["notes"]),
            f"the answer was cut at its limit of {settings.depth} segments",
        ]
    elif limit:
        what = f"the answer ends after segment {state['depth'] + 1}"
        update |= stopped({**state, **update}, settings, limit, what)
    else:
        return {**update, "beams": ranked}
    return {**update, "beams": [{**beam, "next": None} for beam in ranked]}


def _extended(beam: Beam, candidate: Candidate) -> Beam:
    return Beam(
        segments=[*beam["segments"], candidate],
        score=candidate["path_score"],
        next=candidate["next"],
        retrieved=[],
    )


def _best_dropped(state: SelfRAGState, new: Sequence[Candidate]) -> tuple[list[Beam], Update]:
    """The best of the first segments although all are dropped, and a word about it."""
    best = max(new, key=lambda candidate: (bool(candidate["text"]), candidate["path_score"]))
    beam = _extended(state["beams"][best["beam"]], best)
    note = (
        f"every candidate was dropped ({best['dropped']}): the best of them is given all the same"
    )
    met = best["dropped"] == "no text"
    return [{**beam, "next": None}], {"constraints_met": met, "notes": [*state["notes"], note]}


def _closed(state: SelfRAGState, settings: SelfRAGSettings, new: Sequence[Candidate]) -> Update:
    """Sum the scores of the candidates that give the same answer (section 3.3; B.2)."""
    allowed = [c for c in new if c["dropped"] is None]
    scores: dict[str, float] = {}
    for candidate in allowed:
        answer = closed_answer(candidate["text"], settings.options)
        if answer is not None:
            scores[answer] = scores.get(answer, 0.0) + candidate["score"]
    if not scores:
        beams, update = _best_dropped(state, new) if not allowed else _open_ended(state, allowed)
        return {**update, "beams": beams}
    ranked = dict(sorted(scores.items(), key=lambda item: -item[1]))
    winner = next(iter(ranked))
    backing = [c for c in allowed if closed_answer(c["text"], settings.options) == winner]
    best = max(backing, key=lambda candidate: candidate["score"])
    beam = {**_extended(state["beams"][best["beam"]], best), "next": None, "score": ranked[winner]}
    return {"beams": [beam], "options": ranked}


def _open_ended(state: SelfRAGState, allowed: Sequence[Candidate]) -> tuple[list[Beam], Update]:
    best = max(allowed, key=lambda candidate: candidate["score"])
    beam = _extended(state["beams"][best["beam"]], best)
    note = "no candidate gave one of the options: the best candidate is given as it is"
    return [{**beam, "next": None}], {"notes": [*state["notes"], note]}
