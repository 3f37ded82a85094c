"""The route of a run: the steps that ran, in order, as the result records them; and in Mermaid."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from selfcorrect_rag.render.reading import (
    Result,
    action,
    counted,
    decision,
    graph_of,
    number,
    records,
    rows,
    strips_kept,
)


class Step(NamedTuple):
    """A step that ran."""

    node: str
    outcome: str
    """Numbers and words of this package, never text of the run."""
    after: tuple[int, ...]
    """The steps that it followed, as indices; two steps after one ran side by side."""


WORDS = {
    "read_question": "Read the question",
    "rewrite_follow_up": "Related the question to those before",
    "decide_retrieval": "Decided whether to retrieve",
    "retrieve": "Retrieved",
    "grade_documents": "Graded the documents",
    "rewrite_query": "Wrote a search query",
    "web_search": "Searched the web",
    "refine_strips": "Kept the best strips of the documents",
    "select_web_strips": "Kept the best strips of the pages",
    "recompose_knowledge": "Put the knowledge together",
    "judge_sufficiency": "Judged whether that is enough",
    "read_knowledge": "Read the knowledge",
    "generate": "Wrote the answer",
    "generate_and_critique": "Wrote and criticised candidates",
    "beam_select": "Chose the best",
    "write_answer": "Put the answer together",
    "choose_demonstrations": "Chose demonstrations",
    "write_rationale": "Wrote a rationale",
    "read_rationale": "Read the answer off the rationale",
}
"""What each step does, for people."""


def in_words(node: object) -> str:
    """What a step does; the name of a step of one's own, with spaces."""
    return WORDS.get(str(node)) or _node(node).replace("_", " ")


def route_of(result: Result) -> list[Step]:
    """The steps of a run of any of the graphs; empty where the result has no ``route``."""
    runs = records(result, "route")
    names = [_node(run.get("step")) for run in runs]
    return [
        Step(
            names[i],
            "failed" if run.get("failed") else _outcome(result, names[i], names[:i]),
            _after(names, i),
        )
        for i, run in enumerate(runs)
    ]


def render_route(result: Result) -> str:
    """The steps that ran as a Mermaid flowchart, for documents that render it.

    Args:
        result: of any of the graphs, also of a run that was interrupted.

    Returns:
        A ``flowchart`` with how often each step and each edge was taken, and without a fence
        around it. It holds names of nodes, numbers and words of this package: no text of the run.
    """
    steps = route_of(result)
    visits = Counter(step.node for step in steps)
    outcomes: dict[str, list[str]] = {}
    edges: Counter[tuple[str, str]] = Counter()
    for step in steps:
        outcomes.setdefault(step.node, []).append(step.outcome)
        edges.update((steps[before].node, step.node) for before in step.after)
    lines = ["flowchart TD"]
    for node, times in visits.items():
        words = [f"{times} times"] if times > 1 else [word for word in outcomes[node] if word]
        lines.append(f'    {node}["{"<br/>".join([node, *words])}"]')
    for (before, node), times in edges.items():
        lines.append(f"    {before} -->{f'|{times} times|' if times > 1 else ''} {node}")
    return "\n".join(lines) + "\n"


def _node(name: object) -> str:
    """The name of a node, with nothing in it that is markup anywhere."""
    return re.sub(r"\W+", "_", str(name), flags=re.ASCII)[:60]


BRANCHES = {
    "refine_strips": ("grade_documents", "rewrite_query"),
    "web_search": ("rewrite_query", "web_search"),
    "select_web_strips": ("web_search",),
}
"""Steps that may run side by side, and those that they follow: the last of these that ran."""


def _after(names: Sequence[str], i: int) -> tuple[int, ...]:
    last = {name: j for j, name in enumerate(names[:i])}
    if names[i] == "recompose_knowledge":  # it waits for both branches
        ends = [last[name] for name in ("refine_strips", "select_web_strips") if name in last]
    else:
        ends = [last[name] for name in BRANCHES.get(names[i], ()) if name in last]
        ends = [max(ends)] if ends else []
    return tuple(sorted(ends)) or ((i - 1,) if i else ())


def _outcome(result: Result, node: str, before: Sequence[str]) -> str:
    """The outcome of a step in a few words; ``before`` are the steps that ran before it."""
    depth = before.count("generate_and_critique")
    match node:
        case "rewrite_follow_up":
            same = result.get("question") == result.get("original_question")
            return "as it was asked" if same else "rewritten"
        case "decide_retrieval":
            decided = decision(result)
            return decided[0] if decided else ""
        case "grade_documents":
            taken = action(result)
            return taken[0] if taken else ""
        case "retrieve" if graph_of(result) == "self_rag":
            return counted(_found(result, depth, "passages"), "passage")
        case "retrieve":
            noun = "document" if graph_of(result) == "instruct_rag" else "passage"
            return counted(len(rows(result, "passages")), noun)
        case "read_knowledge":
            return counted(_found(result, depth, "knowledge"), "piece")
        case "generate_and_critique":
            return counted(len(_candidates(result, depth)), "candidate")
        case "beam_select":
            chosen = any(c.get("chosen") for c in _candidates(result, depth - 1))
            return "segment chosen" if chosen else ""
        case "refine_strips":
            return strips_kept(result, "strips")
        case "select_web_strips":
            return strips_kept(result, "web_strips")
        case "web_search":
            pages = counted(len(rows(result, "web_results")), "page")
            return "failed" if result.get("web_failure") else pages
        case "recompose_knowledge":
            return counted(len(rows(result, "knowledge")), "piece")
        case "judge_sufficiency":
            found = number(result.get("sufficiency"))
            return "" if found is None else f"enough: {found:.2f}"
        case "choose_demonstrations":
            return counted(len(rows(result, "demonstrations")), "demonstration")
        case "write_rationale":
            read = len(rows(result, "numbering"))
            return f"read {counted(read, 'document')}" if read else ""
    return ""


def _candidates(result: Result, depth: int) -> list[Mapping[str, object]]:
    found = records(result, "candidates")
    return [c for c in found if (number(c.get("depth")) or 0) == depth]


def _found(result: Result, depth: int, key: str) -> int:
    """How many texts were there for the segment at ``depth``: those its candidates begin with."""
    new = _candidates(result, depth)
    if not new and not depth:  # nothing was written
        return len(rows(result, key))
    return len({c.get("passage") for c in new if c.get("step") == "retrieve"})
