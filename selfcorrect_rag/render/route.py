"""The route of a run: which nodes ran, in order, read off the result alone.

A node leaves its trace in the result. Those that can leave none are taken to have run where a
later one did.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from selfcorrect_rag.render.reading import (
    Result,
    counted,
    graph_of,
    index,
    number,
    record,
    records,
    rows,
)

ACTIONS = ("correct", "incorrect", "ambiguous")


class Step(NamedTuple):
    """A node that ran."""

    node: str
    said: str
    """What came of it: numbers and words of ours, never text of the run."""
    after: tuple[int, ...]
    """The steps that it followed, as indices; two steps after one ran side by side."""


def route_of(result: Result) -> list[Step]:
    """The steps of a run of any of the graphs, in order; empty for an empty result.

    A step that failed after the first segment is shown last, whichever beam asked for it.
    """
    steps = _Steps(result)
    steps.then("read_question", traced=bool(result.get("question")))
    match graph_of(result):
        case "self_rag" | "self_crag":
            _self_rag(steps, result)
        case "crag":
            _correction(steps, result)
            steps.then("generate", traced=bool(result.get("answer")))
        case "instruct_rag":
            _instruct_rag(steps, result)
    return steps.ran()


class _Steps:
    """Steps as they are planned, and whether each left a trace."""

    def __init__(self, result: Result) -> None:
        self._steps: list[Step] = []
        self._traced: list[bool] = []
        self.passages = len(rows(result, "passages"))

    def then(
        self, node: str, said: str = "", *, traced: bool = False, after: tuple[int, ...] = ()
    ) -> int:
        """Plan a step, after the one before where nothing else is said, and return its index."""
        before = (len(self._steps) - 1,) if self._steps else ()
        self._steps.append(Step(node, said, after or before))
        self._traced.append(traced)
        return len(self._steps) - 1

    def planned(self) -> list[str]:
        """The nodes so far."""
        return [step.node for step in self._steps]

    def ran(self) -> list[Step]:
        """The steps up to the last that left a trace."""
        last = max((i for i, traced in enumerate(self._traced) if traced), default=-1)
        return self._steps[: last + 1]


def _self_rag(steps: _Steps, result: Result) -> None:
    decision = record(result, "retrieval")
    wanted = bool(decision.get("retrieve"))
    said = ("retrieve" if wanted else "no retrieval") if decision else ""
    steps.then("decide_retrieval", said, traced=bool(decision))
    candidates = records(result, "candidates")
    depths = sorted({number(c.get("depth")) or 0 for c in candidates})
    if not depths and wanted:
        _evidence(steps, result, steps.passages)
    for depth in depths:
        new = [c for c in candidates if (number(c.get("depth")) or 0) == depth]
        if wanted if depth == 0 else any(_retrieved(c, candidates) for c in new):
            found = {c.get("passage") for c in new if c.get("step") == "retrieve"}
            _evidence(steps, result, len(found))
        steps.then("generate_and_critique", counted(len(new), "candidate"), traced=True)
        kept = sum(bool(c.get("chosen")) for c in new)
        steps.then("beam_select", "segment chosen" if kept else "", traced=depth != depths[-1])
    if depths:
        _fault(steps, result, [c for c in candidates if number(c.get("depth")) == depths[-1]])
    steps.then(
        "write_answer", traced=bool(result.get("answer")) or number(result.get("score")) is not None
    )


FAILED = {
    "retriever": "retrieve",
    "evaluator": "grade_documents",
    "model": "generate_and_critique",
}
"""Which step failed, by what stopped a run in which something had been written."""


def _fault(steps: _Steps, result: Result, last: list[Mapping[str, Any]]) -> None:
    """The step that cut the answer short after the candidates ``last``."""
    failed = FAILED.get(str(result.get("stopped")))
    for note in map(str, rows(result, "notes")):
        node, took, _ = note.partition(" took longer than step_timeout")
        failed = node if took and node in FAILED.values() else failed
    if failed is None:
        return
    wanted = any(c.get("next") == "retrieve" and not c.get("dropped") for c in last)
    if wanted and failed == "generate_and_critique":
        _evidence(steps, result, 0)
    elif failed == "grade_documents":
        if result.get("action") in ACTIONS:  # the grades are there: it failed at strips
            _correction(steps, result)
            return
        steps.then("retrieve", counted(steps.passages, "passage"))
    steps.then(failed, "failed", traced=True)


def _retrieved(candidate: Mapping[str, Any], candidates: list[Mapping[str, Any]]) -> bool:
    """Whether the beam asked for passages, found or not."""
    parent = index(candidate.get("parent"), candidates)
    before = {} if parent is None else candidates[parent]
    return "retrieve" in (candidate.get("step"), before.get("next"))


def _evidence(steps: _Steps, result: Result, found: int) -> None:
    """From a beam that wants evidence to its passages: Self-CRAG corrects the first retrieval."""
    if graph_of(result) == "self_rag":
        steps.then("retrieve", counted(found, "passage"), traced=found > 0)
        return
    if "recompose_knowledge" not in steps.planned():
        _correction(steps, result)
    steps.then("read_knowledge", counted(found, "piece") if found else "")


def _correction(steps: _Steps, result: Result) -> None:
    action = result.get("action")
    action = action if action in ACTIONS else ""
    passages = steps.passages
    steps.then("retrieve", counted(passages, "passage"), traced=passages > 0)
    graded = steps.then("grade_documents", action, traced=bool(action))
    searches = bool(result.get("web_query")) or action in ("incorrect", "ambiguous")
    refines = bool(rows(result, "strips")) or action in ("correct", "ambiguous")
    ends, branch = [], graded
    if searches:
        branch = steps.then("rewrite_query", traced=bool(result.get("web_query")))
    if refines:
        said = _kept(result, "strips")
        ends.append(steps.then("refine_strips", said, traced=bool(said), after=(branch,)))
    if searches:
        pages, failed = len(rows(result, "web_results")), bool(result.get("web_failure"))
        said = "failed" if failed else counted(pages, "page")
        steps.then("web_search", said, traced=failed or pages > 0, after=(branch,))
        said = _kept(result, "web_strips")
        ends.append(steps.then("select_web_strips", said, traced=bool(said)))
    pieces = len(rows(result, "knowledge"))
    # Without knowledge a note says so; the answer follows either way.
    steps.then(
        "recompose_knowledge", counted(pieces, "piece"), traced=pieces > 0, after=tuple(ends)
    )


def _kept(result: Result, key: str) -> str:
    strips = records(result, key)
    kept = sum(bool(strip.get("kept")) for strip in strips)
    return f"{kept} of {counted(len(strips), 'strip')} kept" if strips else ""


def _instruct_rag(steps: _Steps, result: Result) -> None:
    mode, shown = result.get("mode"), rows(result, "demonstrations")
    notes = [str(note) for note in rows(result, "notes")]
    nothing_found = any(note.startswith("no document was found") for note in notes)
    if mode != "no_retrieval" or nothing_found:
        steps.then("retrieve", counted(steps.passages, "document"), traced=steps.passages > 0)
    if shown or (mode in ("icl", "few_shot") and steps.passages):
        said = counted(len(shown), "demonstration") if shown else ""
        steps.then("choose_demonstrations", said, traced=bool(shown))
    read = rows(result, "numbering")
    said = f"read {counted(len(read), 'document')}" if read else ""
    steps.then("write_rationale", said, traced=bool(read))
    steps.then("read_rationale", traced=bool(result.get("answer")))
