"""beam_select: keep the best partial answers, finished ones among them."""

import math
from collections.abc import Iterable, Sequence
from typing import cast

from selfcorrect_rag.events import SegmentChosen
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.from_name import Model, as_reflection_llm
from selfcorrect_rag.nodes.base.citations import cited_passages, cited_text, settled
from selfcorrect_rag.nodes.base.limits import limit_met, stopped
from selfcorrect_rag.nodes.base.node import Node, Update, current, emit
from selfcorrect_rag.nodes.base.reply import say
from selfcorrect_rag.nodes.generate_and_critique import NO_TEXT, UNREADABLE, scored
from selfcorrect_rag.prompts.closed_set import closed_answer
from selfcorrect_rag.reflection import best_path_score
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state.self_rag import Beam, Candidate, SelfRAGState, Source


def beam_select(
    llm: ReflectionLLM | Model,
    settings: SelfRAGSettings | None = None,
    source: Source = "passages",
) -> Node:
    """Keep the ``beam_width`` best partial answers and the best finished one (section 3.3).

    A finished answer does not count towards ``beam_width``, since partial ones have no ISUSE score
    yet. Beams that cannot beat the best finished answer are not continued. Dropped candidates
    cannot be chosen; a beam whose candidates are all dropped ends where it is. Ties go to the
    earlier candidate, whose passage was retrieved first. Where a limit leaves ``llm`` no call for
    another segment, the beams end as they are. The reply is streamed by segment, as soon as all
    beams share one. ``source`` is the state key of the passages.
    """
    settings = SelfRAGSettings.of_step(settings)
    model = as_reflection_llm(llm)

    def run(state: SelfRAGState) -> Update:
        chosen = current(settings)
        new = [c for c in state["candidates"] if c["depth"] == state["depth"]]
        update = selected(state, chosen, new)
        if any(beam["next"] for beam in update["beams"]):
            update |= _limited(model, cast(SelfRAGState, {**state, **update}), chosen)
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
            if not chosen.closed:  # a closed set streams the option, not the segment
                _say(state, update["beams"], source)
        return {**update, "depth": state["depth"] + 1}

    return Node("beam_select", run)


def _say(state: SelfRAGState, beams: Sequence[Beam], source: Source) -> None:
    """Stream the newly settled segments."""
    now, before = settled(beams), settled(state["beams"])
    citations = cited_passages(now, state, source)
    said = cited_text(before, citations)
    say(state, cited_text(now, citations), len(said))


def selected(state: SelfRAGState, settings: SelfRAGSettings, new: Sequence[Candidate]) -> Update:
    """The beams after the segment whose candidates are ``new``, best first, and what else that
    changes: ``notes``, ``options``, ``constraints_met``.

    Reads ``beams``, ``depth`` and ``notes`` of the state; a candidate's ``beam`` is an index into
    these beams.
    """
    if settings.closed:
        return _closed(state, settings, new)
    racing = [beam for beam in state["beams"] if beam["next"] is None]
    racing += [_extended(state["beams"][c["beam"]], c) for c in new if c["dropped"] is None]
    racing += _ended(state, new)
    update: Update = {}
    if not racing:
        racing, update = _best_dropped(state, new)
    beams = surviving(racing, settings, further=settings.depth - state["depth"] - 1)
    return {**update, "beams": beams}


def _limited(llm: ReflectionLLM, state: SelfRAGState, settings: SelfRAGSettings) -> Update:
    """The update that ends the beams, if a limit leaves no call for another segment."""
    limit = limit_met(state, settings, llm.most_calls(1), settings.segment_tokens)
    if not limit:
        return {}
    beams = state["beams"]
    ends = f"the answer ends after segment {state['depth'] + 1}"
    what = ends if beams[0]["next"] else "no further segment was tried"
    ended = _best_first({**beam, "next": None} for beam in beams)
    return {"beams": ended, **stopped(state, settings, limit, what)}


def surviving(racing: Sequence[Beam], settings: SelfRAGSettings, further: int) -> list[Beam]:
    """The best finished beam and the ``beam_width`` best others, best first.

    Beams that cannot beat the finished one are left out. Where no ``further`` segment is allowed,
    only the best of all is returned, ended.
    """
    finished = _best_first(beam for beam in racing if beam["next"] is None)[:1]
    going = _best_first(beam for beam in racing if beam["next"] is not None)
    if further < 1:
        cut = f"the answer was cut at its limit of {settings.depth} segments"
        ended: list[Beam] = [{**beam, "next": None, "cut": cut} for beam in going]
        return _best_first([*finished, *ended])[:1]
    if finished:
        to_beat = finished[0]["score"]
        going = [beam for beam in going if _best_possible(beam, settings, further) > to_beat]
    return _best_first([*finished, *going[: settings.beam_width]])


def _best_possible(beam: Beam, settings: SelfRAGSettings, further: int) -> float:
    path, rule = scored(beam["segments"]), settings.path_rule
    return best_path_score(path, further, settings.weights, rule)


def _ended(state: SelfRAGState, new: Sequence[Candidate]) -> list[Beam]:
    """The beams that cannot go on, because all their candidates are dropped."""
    ended: list[Beam] = []
    for index, beam in enumerate(state["beams"]):
        reasons = [c["dropped"] for c in new if c["beam"] == index]
        if beam["next"] is None or not beam["segments"] or not all(reasons):
            continue
        why = ", ".join(dict.fromkeys(reason for reason in reasons if reason))
        count = len(beam["segments"])
        cut = f"the answer ends after segment {count}: all candidates for the next dropped ({why})"
        # Without reasons, a limit left the beam no candidates and is noted already.
        ended.append({**beam, "next": None, "cut": cut if reasons else None})
    return ended


def _best_first(beams: Iterable[Beam]) -> list[Beam]:
    return sorted(beams, key=lambda beam: -beam["score"])


def _extended(beam: Beam, candidate: Candidate) -> Beam:
    return Beam(
        segments=[*beam["segments"], candidate],
        score=candidate["path_score"],
        next=candidate["next"],
        cut=None,
        retrieved=[],
    )


def _best_dropped(state: SelfRAGState, new: Sequence[Candidate]) -> tuple[list[Beam], Update]:
    """The best first segments although all are dropped, with a note."""
    best = max(new, key=lambda candidate: (bool(candidate["text"]), candidate["path_score"]))
    beam = _extended(state["beams"][best["beam"]], best)
    note = (
        f"every candidate was dropped ({best['dropped']}): the best of them is given all the same"
    )
    met = best["dropped"] in (NO_TEXT, UNREADABLE)
    return [{**beam, "next": None}], {"constraints_met": met, "notes": [*state["notes"], note]}


def _closed(state: SelfRAGState, settings: SelfRAGSettings, new: Sequence[Candidate]) -> Update:
    """Sum the scores of the candidates that give the same answer (section 3.3; B.2)."""
    allowed = [c for c in new if c["dropped"] is None]
    backing: dict[str, list[Candidate]] = {}
    for candidate in allowed:
        answer = closed_answer(candidate["text"], settings.options)
        if answer is not None:
            backing.setdefault(answer, []).append(candidate)
    if not backing:
        beams, update = _best_dropped(state, new) if not allowed else _open_ended(state, allowed)
        return {**update, "beams": beams}
    sums = {a: math.fsum(c["score"] for c in candidates) for a, candidates in backing.items()}
    ranked = dict(sorted(sums.items(), key=lambda item: -item[1]))
    winner = next(iter(ranked))
    best = max(backing[winner], key=lambda candidate: candidate["score"])
    beam = {**_extended(state["beams"][best["beam"]], best), "next": None, "score": ranked[winner]}
    update = {"beams": [beam], "options": ranked}
    if unread := len(allowed) - sum(map(len, backing.values())):
        note = f"{unread} of {len(allowed)} candidates give no one option: they do not count"
        update["notes"] = [*state["notes"], note]
    return update


def _open_ended(state: SelfRAGState, allowed: Sequence[Candidate]) -> tuple[list[Beam], Update]:
    best = max(allowed, key=lambda candidate: candidate["score"])
    beam = _extended(state["beams"][best["beam"]], best)
    note = "no candidate gave one of the options: the best candidate is given as it is"
    return [{**beam, "next": None}], {"notes": [*state["notes"], note]}
