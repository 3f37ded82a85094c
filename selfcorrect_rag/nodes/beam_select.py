"""beam_select: keep the best partial answers, finished ones among them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.from_name import Model, as_reflection_llm
from selfcorrect_rag.nodes.generate_and_critique import NO_TEXT, UNREADABLE, scored
from selfcorrect_rag.nodes.limits import is_ended, limit_met, stopped
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.reflection import best_path_score
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Beam, Candidate


def beam_select(
    llm: ReflectionLLM | Model, settings: SelfRAGSettings | None = None
) -> Node[SelfRAGSettings]:
    """Keep the ``beam_width`` best partial answers and the best finished one (section 3.3).

    A finished answer does not count towards ``beam_width``, since partial ones have no ISUSE score
    yet. Beams that cannot beat it are not continued. A beam whose candidates are all dropped, or
    for which a limit leaves no call, ends as it is. Ties go to the passage retrieved first.
    """
    model = as_reflection_llm(llm)

    def step(state: Mapping[str, Any], run: Run[SelfRAGSettings]) -> Update:
        if is_ended(state):  # a model that failed late has ended the beams
            return {}
        settings, depth = run.settings, state["candidates"][-1]["depth"]
        new = [c for c in state["candidates"] if c["depth"] == depth]
        update = selected(state["beams"], settings, new)
        beams: list[Beam] = update["beams"]
        if any(beam["next"] for beam in beams) and (
            limit := limit_met(state, settings, model.most_calls(1), settings.segment_tokens)
        ):
            written = len(beams[0]["segments"])
            marks = stopped(run, limit, f"the answer ends after segment {written}")
            beams = [{**beam, "next": None} for beam in beams]
            update |= {**marks, "beams": beams}
        path, score = beams[0]["segments"], beams[0]["score"]
        answer = " ".join(segment["text"] for segment in path)
        last = {"text": path[-1]["text"], "passage": path[-1]["passage"]}
        run.emit("segment_chosen", **last, score=score, answer=answer)
        return update

    return Node("beam_select", step, SelfRAGSettings.of(settings))


def selected(beams: Sequence[Beam], settings: SelfRAGSettings, new: Sequence[Candidate]) -> Update:
    """Return the beams after the segment whose candidates are ``new``, best first, and what else
    that changes: ``notes``, ``options``, ``constraints_met``."""
    allowed = [c for c in new if c["dropped"] is None]
    if settings.closed and allowed:
        return _best_option(beams, allowed)
    racing = [beam for beam in beams if beam["next"] is None]
    racing += [_extended(beams, candidate) for candidate in allowed]
    racing += _ended(beams, new)
    if racing and not settings.closed:
        return {"beams": surviving(racing, settings, settings.depth - new[0]["depth"] - 1)}
    best = max(new, key=lambda candidate: (bool(candidate["text"]), candidate["path_score"]))
    return {
        "beams": [{**_extended(beams, best), "next": None}],
        "constraints_met": best["dropped"] in (NO_TEXT, UNREADABLE),
        "notes": [f"every candidate was dropped ({best['dropped']}): answered with the best"],
    }


def surviving(racing: Sequence[Beam], settings: SelfRAGSettings, further: int) -> list[Beam]:
    """Return the best finished beam and the ``beam_width`` best others that can beat it, best
    first; only the best of all, ended, if no ``further`` segment is allowed."""
    finished = _best_first(beam for beam in racing if beam["next"] is None)[:1]
    going = _best_first(beam for beam in racing if beam["next"] is not None)
    if further < 1:
        cut = f"the answer was cut at its limit of {settings.depth} segments"
        ended: list[Beam] = [{**beam, "next": None, "cut": cut} for beam in going]
        return _best_first([*finished, *ended])[:1]
    if finished:
        weights, rule, to_beat = settings.weights, settings.path_rule, finished[0]["score"]
        going = [
            beam
            for beam in going
            if best_path_score(scored(beam["segments"]), further, weights, rule) > to_beat
        ]
    return _best_first([*finished, *going[: settings.beam_width]])


def _ended(beams: Sequence[Beam], new: Sequence[Candidate]) -> list[Beam]:
    """The beams that cannot go on, because all their candidates are dropped."""
    ended: list[Beam] = []
    for index, beam in enumerate(beams):
        reasons = [c["dropped"] for c in new if c["beam"] == index]
        if beam["next"] is not None and beam["segments"] and all(reasons):
            why = ", ".join(dict.fromkeys(reason for reason in reasons if reason))
            ends = f"the answer ends after segment {len(beam['segments'])}"
            cut = f"{ends}: all candidates for the next dropped ({why})"
            # Without reasons, a limit left the beam no candidates and is noted already.
            ended.append({**beam, "next": None, "cut": cut if reasons else None})
    return ended


def _best_first(beams: Iterable[Beam]) -> list[Beam]:
    return sorted(beams, key=lambda beam: -beam["score"])


def _extended(beams: Sequence[Beam], candidate: Candidate) -> Beam:
    return Beam(
        segments=[*beams[candidate["beam"]]["segments"], candidate],
        score=candidate["path_score"],
        next=candidate["next"],
        cut=None,
        retrieved=[],
    )


def _best_option(beams: Sequence[Beam], allowed: Sequence[Candidate]) -> Update:
    """Sum the scores of the candidates that give the same answer (section 3.3; B.2)."""
    backing: dict[str, list[Candidate]] = {}
    for candidate in allowed:
        if candidate["option"] is not None:
            backing.setdefault(candidate["option"], []).append(candidate)
    if not backing:
        best = max(allowed, key=lambda candidate: candidate["score"])
        note = "no candidate gave one of the options: answered with the best candidate"
        return {"beams": [{**_extended(beams, best), "next": None}], "notes": [note]}
    sums = {a: math.fsum(c["score"] for c in candidates) for a, candidates in backing.items()}
    ranked = dict(sorted(sums.items(), key=lambda item: -item[1]))
    winner, score = next(iter(ranked.items()))
    best = max(backing[winner], key=lambda candidate: candidate["score"])
    beam = {**_extended(beams, best), "next": None, "score": score}
    unread = len(allowed) - sum(map(len, backing.values()))
    note = f"{unread} of {len(allowed)} candidates match no option; ignored"
    return {"beams": [beam], "options": ranked, "notes": [note] if unread else []}
