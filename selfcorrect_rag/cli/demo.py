"""``selfcorrect-rag demo``: a few questions through every graph, offline."""

import click

from selfcorrect_rag.cli.terminal import show_answer, tell

DEMO = (
    ("self_rag", "Who discovered penicillin?"),
    ("self_rag", "Where was Harper Lee born?"),  # no passage says it, and Self-RAG says so
    ("self_crag", "Where was Harper Lee born?"),  # found by its search
    ("crag", "Who designed the Sydney Opera House?"),
    ("instruct_rag", "Who painted Guernica?"),
)
"""Graphs and questions of the demo."""


@click.command()
def demo_command() -> None:
    """Answer questions from the demo's documents, offline."""
    from selfcorrect_rag.search.demo import DEMO_INDEX, demo_index, demo_web
    from selfcorrect_rag.serving import Parts, ServingConfig

    with Parts(ServingConfig()) as parts:
        # Whatever index there is here, the demo reads its own.
        parts.retriever, parts.web_search = demo_index().as_retriever(), demo_web()
        for graph, question in DEMO:
            tell(f"{graph}: {question}", fg="cyan")
            show_answer(parts.graph(graph).invoke({"question": question}))
            tell()
    tell(
        f"All of it ran offline; the index is in {DEMO_INDEX}. Ask your own files: "
        'selfcorrect-rag index FOLDER, then selfcorrect-rag ask "..."',
        dim=True,
    )
