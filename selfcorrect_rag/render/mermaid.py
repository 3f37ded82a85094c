"""The route of a run as a Mermaid flowchart, for documents that render it."""

from collections import Counter

from selfcorrect_rag.render.reading import Result
from selfcorrect_rag.render.route import route_of


def render_route(result: Result) -> str:
    """The nodes that ran and the ways between them, with how often each was gone.

    Args:
        result: of any of the graphs, also of a run that was interrupted.

    Returns:
        A ``flowchart``, without a fence around it. It holds names of nodes, numbers and words of
        this package: no text of the run.
    """
    steps = route_of(result)
    visits = Counter(step.node for step in steps)
    said: dict[str, list[str]] = {}
    ways: Counter[tuple[str, str]] = Counter()
    for i, step in enumerate(steps):
        said.setdefault(step.node, []).append(step.said)
        ways.update((steps[before].node, step.node) for before in step.after if before < i)
    lines = ["flowchart TD"]
    for node, times in visits.items():
        words = [f"{times} times"] if times > 1 else [word for word in said[node] if word]
        lines.append(f'    {node}["{"<br/>".join([node, *words])}"]')
    for (before, node), times in ways.items():
        lines.append(f"    {before} -->{f'|{times} times|' if times > 1 else ''} {node}")
    return "\n".join(lines) + "\n"
