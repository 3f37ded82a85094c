"""What a finished run would have been with other settings, as far as no model is needed to say so.

The graphs' own functions do the work: scores (:mod:`selfcorrect_rag.reflection`), the beam
(:func:`~selfcorrect_rag.nodes.beam_select.selected`), actions, strips, knowledge, citations. With
the run's own settings the replay is the run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, cast

from langchain_core.documents import Document

from selfcorrect_rag.nodes.base.strips import keep
from selfcorrect_rag.nodes.beam_select import selected
from selfcorrect_rag.nodes.decide_retrieval import wants_evidence
from selfcorrect_rag.nodes.generate_and_critique import (
    PRUNED,
    UNREADABLE,
    barred,
    scored,
    weighed,
)
from selfcorrect_rag.nodes.grade_documents import branches_of, triggered
from selfcorrect_rag.nodes.recompose_knowledge import recompose_knowledge
from selfcorrect_rag.nodes.write_answer import write_answer
from selfcorrect_rag.reflection import GROUP_OF, Group, best_path_score
from selfcorrect_rag.settings import CRAGSettings, SelfRAGSettings, Settings
from selfcorrect_rag.state.documents import as_documents
from selfcorrect_rag.state.self_rag import Beam, Candidate, Source
from selfcorrect_rag.thresholds import Thresholds

Result = Mapping[str, Any]

SELF_RAG_KNOBS = (
    "weight_sequence",
    "weight_isrel",
    "weight_issup",
    "weight_isuse",
    "group_weights",
    "path_rule",
    "beam_width",
    "threshold",
    "hard_constraints",
)
CRAG_KNOBS = ("upper", "lower", "strip_threshold", "strips")


class Replay(NamedTuple):
    """A run with other settings."""

    result: dict[str, Any]
    """Its result; documents are objects."""
    unknown: list[str]
    """What only a model, a search or an evaluator could say, a sentence each."""
    stale: bool = False
    """Whether the answer is still the run's although other settings would have written another."""
    origins: Sequence[int] = ()
    """For each of its candidates the index in the run: some may be left out."""


def knobs_of(settings: Settings) -> tuple[str, ...]:
    """The settings of a graph that a replay can change."""
    reflects = SELF_RAG_KNOBS if isinstance(settings, SelfRAGSettings) else ()
    return (*reflects, *(CRAG_KNOBS if isinstance(settings, CRAGSettings) else ()))


def replay(result: Result, settings: Settings) -> Replay:
    """The result of a finished run, had its settings been these.

    Only the settings of :func:`knobs_of` are looked at; any other is taken as the run's own.

    Args:
        result: of any of the graphs, or its JSON.
        settings: the run's, with some of them changed.
    """
    replayed = {**result}
    for key in ("passages", "knowledge", "web_results"):
        if key in result:
            replayed[key] = _documents(result[key])
    unknown: list[str] = []
    stale = False
    origins: Sequence[int] = range(len(result.get("candidates") or []))
    if isinstance(settings, CRAGSettings) and result.get("thresholds"):
        is_other, origins = _correct(replayed, settings, unknown)
        stale = is_other and not replayed.get("candidates")
    if isinstance(settings, SelfRAGSettings):
        stale |= _decide(replayed, settings, unknown)
        if replayed.get("candidates"):
            source: Source = "knowledge" if isinstance(settings, CRAGSettings) else "passages"
            _choose(replayed, settings, source, unknown)
    return Replay(replayed, unknown, stale, origins)


def is_faithful(result: Result, settings: Settings) -> bool:
    """Whether the replay with the run's own settings is the run: not where steps of one's own
    chose otherwise, or another version did."""
    again = replay(result, settings)
    return not again.unknown and _choices(again.result) == _choices(result)


def _choices(result: Result) -> list[Any]:
    rows = (
        ("candidates", ("path_score", "dropped", "chosen")),
        *((key, ("kept",)) for key in ("strips", "web_strips")),
    )
    found = [
        [[row.get(key) for key in keys] for row in result.get(name) or []] for name, keys in rows
    ]
    cited = [citation.get("passage") for citation in result.get("citations") or []]
    return [*found, cited, *(result.get(key) for key in ("answer", "action", "score"))]


def _documents(given: Any) -> list[Document]:
    """Documents of a result, or of its JSON."""
    return [
        Document(d["text"], id=d.get("id"), metadata=d.get("metadata") or {})
        if isinstance(d, Mapping) and "text" in d
        else as_documents([d], "the result's documents")[0]
        for d in given
    ]


def _decide(replayed: dict[str, Any], settings: SelfRAGSettings, unknown: list[str]) -> bool:
    """Whether the first segment would have had evidence; True where that is another decision."""
    decided = replayed.get("retrieval") or {}
    probability = decided.get("probability")
    if probability is None or decided.get("mode") != "adaptive":
        return False
    retrieve = wants_evidence(probability, settings)
    is_other = retrieve != bool(decided["retrieve"])
    if is_other:
        unknown.append(
            "It would have retrieved before it wrote: what it would have written is not known."
            if retrieve
            else "It would not have retrieved: what it would have written without is not known."
        )
    later = any(candidate.get("next") for candidate in replayed.get("candidates") or [])
    if later and settings.threshold != decided.get("threshold"):
        unknown.append("Whether later segments would have retrieved too is not known.")
    threshold = settings.threshold
    replayed["retrieval"] = {**decided, "retrieve": retrieve, "threshold": threshold}
    return is_other


def _correct(
    replayed: dict[str, Any], settings: CRAGSettings, unknown: list[str]
) -> tuple[bool, list[int]]:
    """The action, the strips that are kept, the knowledge, and what of it is cited; True where the
    knowledge is another, and the indices of the candidates that are left."""
    before = {key: replayed.get(key) or [] for key in ("knowledge", "judged")}
    thresholds = settings.thresholds(Thresholds(**replayed["thresholds"]))
    action = triggered(settings, thresholds, [grade["score"] for grade in replayed["grades"]])
    branches = branches_of(settings, action)
    steps = replayed.get("costs") or {}
    replayed |= {"action": action, "thresholds": asdict(thresholds)}
    if "refine" not in branches:
        replayed["strips"] = []
    elif "refine_strips" in steps:
        replayed["strips"] = _kept(replayed["strips"], settings)
    elif replayed["passages"]:
        unknown.append("It would have cut the passages into strips: which are kept is not known.")
    if "search" not in branches:
        replayed |= {"web_strips": [], "web_results": [], "web_query": "", "web_failure": ""}
    elif "web_search" in steps:
        replayed["web_strips"] = _kept(replayed["web_strips"], settings)
    else:
        unknown.append("It would have searched the web: what that would have found is not known.")
    state = {**replayed, "branches": branches, "notes": [], "web_notes": [], "beams": []}
    made = recompose_knowledge(settings).invoke(state)
    replayed |= {"knowledge": made["knowledge"], "judged": made["judged"]}
    return _follow(replayed, before, unknown)


def _kept(strips: Sequence[Any], settings: CRAGSettings) -> list[Any]:
    """Strips, filtered anew; those that nothing scored are all kept."""
    if not any(strip["score"] is not None for strip in strips):
        return [*strips]
    return [*keep(strips, settings.strip_threshold, settings.strips)]


def _follow(
    replayed: dict[str, Any], before: Mapping[str, Any], unknown: list[str]
) -> tuple[bool, list[int]]:
    """Point citations and candidates to the knowledge there is now; leave out those whose text is
    not in it. True where the knowledge is another, and the indices of the candidates left."""
    knowledge, judged = replayed["knowledge"], replayed["judged"]
    now: dict[int, int] = {}
    for old, document in enumerate(before["knowledge"]):
        same = (i for i, d in enumerate(knowledge) if d == document and i not in now.values())
        if (found := next(same, None)) is not None:
            now[old] = found
    is_other = len(now) < len(before["knowledge"]) or len(now) < len(knowledge)
    cited = [c for c in replayed["citations"] if c["passage"] in now]
    left = [
        {**c, "passage": now[c["passage"]]}
        for c in cited
        if judged[now[c["passage"]]] != "irrelevant"
    ]
    if len(left) < len(replayed["citations"]):
        replayed["cited_answer"] = replayed["answer"]  # without marks that lead nowhere
    replayed["citations"] = left
    if is_other and replayed.get("sufficiency") is not None:
        unknown.append("Whether this knowledge is enough to answer is not known.")
    if not replayed.get("candidates"):
        if is_other:
            unknown.append(
                "The answer would be written from other knowledge: it is still the run\u2019s."
            )
        return is_other, []
    gone = {
        i
        for i, c in enumerate(replayed["candidates"])
        if c["passage"] is not None and c["passage"] not in now
    }
    written = replayed["candidates"]
    replayed["candidates"], origins = _without(written, gone, now)
    if left_out := len(written) - len(origins):
        unknown.append(
            f"{left_out} of the candidates read knowledge that is now another, or dropped: they "
            "are left out."
        )
    read = {c["passage"] for c in replayed["candidates"]}
    if new := len(set(range(len(knowledge))) - set(now.values()) - read):
        pieces = "a piece" if new == 1 else f"{new} pieces"
        unknown.append(f"What would be written from {pieces} of new knowledge is not known.")
    return is_other, origins


def _without(
    candidates: Sequence[Any], gone: set[int], now: Mapping[int, int]
) -> tuple[list[Any], list[int]]:
    """Candidates without those ``gone`` and what continues them, and the indices of those left;
    passages become those ``now``."""
    place: dict[int, int] = {}
    left: list[Any] = []
    for i, c in enumerate(candidates):
        parent = c["parent"]
        if i in gone or (parent is not None and parent not in place):
            continue
        place[i] = len(left)
        passage = None if c["passage"] is None else now[c["passage"]]
        left.append({**c, "parent": None if parent is None else place[parent], "passage": passage})
    return left, [*place]


def _choose(
    replayed: dict[str, Any], settings: SelfRAGSettings, source: Source, unknown: list[str]
) -> None:
    """The candidates' scores, the beams that survive, and the answer of the best."""
    candidates = _weighed(replayed["candidates"], settings)
    beams, update = _survivors(replayed, candidates, settings, unknown)
    state = {**replayed, **update, "beams": beams, "candidates": candidates}
    made = write_answer(settings, source).invoke({**state, "notes": []})
    for key in ("answer", "cited_answer", "citations", "score"):
        replayed[key] = made[key]
    path = {cast(Any, segment)["at"] for segment in beams[0]["segments"]}
    replayed["candidates"] = [
        {**{key: value for key, value in c.items() if key != "at"}, "chosen": c["at"] in path}
        for c in cast(Any, candidates)
    ]
    replayed["options"] = update.get("options", {})
    replayed["constraints_met"] = update.get("constraints_met", True)


def _weighed(candidates: Sequence[Any], settings: SelfRAGSettings) -> list[Candidate]:
    """The candidates with new scores, and the hard constraints that they break; ``at`` is their
    index."""
    new: list[Any] = []
    for at, c in enumerate(candidates):
        path = [c]
        while (parent := path[0]["parent"]) is not None:
            path.insert(0, candidates[parent])
        dropped = c["dropped"]
        if dropped not in (PRUNED, UNREADABLE):
            dropped = barred(_judging(c, settings), c["text"], settings)
        new.append({**c, **weighed(scored(path), settings), "dropped": dropped, "at": at})
    return new


def _judging(candidate: Candidate, settings: SelfRAGSettings) -> list[str]:
    """The reflection tokens of a candidate. In short form an ISREL behind its first piece is of a
    passage that the model made up."""
    tokens = []
    for i, piece in enumerate(candidate["pieces"]):
        group = GROUP_OF.get(piece["text"]) if piece["kind"] == "control" else None
        if group and not (settings.short and i and group == Group.ISREL):
            tokens.append(piece["text"])
    return tokens


def _survivors(
    replayed: dict[str, Any],
    candidates: Sequence[Candidate],
    settings: SelfRAGSettings,
    unknown: list[str],
) -> tuple[list[Beam], dict[str, Any]]:
    """The beams at the end, best first, and what else the selections said.

    A beam that the run did not continue is set aside; in a run that was cut short it ends.
    """
    after: dict[int | None, list[Any]] = {}
    for c in candidates:
        after.setdefault(c["parent"], []).append(c)
    step: Any = "retrieve" if candidates[0]["step"] == "retrieve" else "none"
    beams = [Beam(segments=[], score=0.0, next=step, cut=None, retrieved=[])]
    aside: list[Beam] = []
    said: dict[str, Any] = {}
    depth = 0
    while any(beam["next"] for beam in beams):
        new: list[Any] = []
        going: list[Beam] = []
        for beam in beams:
            last = cast(Any, beam["segments"][-1])["at"] if beam["segments"] else None
            written = after.get(last, []) if beam["next"] else []
            if beam["next"] and not written and not replayed.get("stopped"):
                aside.append(beam)
                continue
            new += [cast(Candidate, {**c, "beam": len(going)}) for c in written]
            going.append(beam)
        if not going:
            break
        if not new:  # nothing goes on, or the run was cut short here
            beams = [{**beam, "next": None} for beam in going]
            break
        state: Any = {"beams": going, "depth": depth, "notes": []}
        said |= selected(state, settings, new)
        beams, depth = said["beams"], depth + 1
    return _ended(beams, aside, settings, unknown), said


def _ended(
    beams: list[Beam], aside: list[Beam], settings: SelfRAGSettings, unknown: list[str]
) -> list[Beam]:
    """The beams that ended, best first; those set ``aside`` are told where they might be better."""
    ended = [beam for beam in beams if beam["next"] is None]
    best = max((beam["score"] for beam in ended), default=float("-inf"))
    rule, weights = settings.path_rule, settings.weights
    rivals = [
        beam
        for beam in aside
        if best_path_score(
            scored(beam["segments"]), settings.depth - len(beam["segments"]), weights, rule
        )
        > best
    ]
    if rivals:
        beginnings = "One beginning" if len(rivals) == 1 else f"{len(rivals)} beginnings"
        unknown.append(
            f"{beginnings} would be continued that the run dropped: how good the end would be is "
            "not known."
        )
    if ended:
        return ended
    first = max(aside, key=lambda beam: beam["score"])
    return [{**first, "next": None}]
