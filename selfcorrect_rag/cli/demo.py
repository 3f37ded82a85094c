"""``selfcorrect-rag demo``: a few questions through every graph, offline."""

import tempfile
from pathlib import Path

import click

from selfcorrect_rag.cli.terminal import tell

QUESTIONS = (
    ("self_rag", "Who discovered penicillin?"),
    ("self_rag", "Where was Harper Lee born?"),  # no passage says it, and Self-RAG says so
    ("self_crag", "Where was Harper Lee born?"),  # found by its search
    ("crag", "Who designed the Sydney Opera House?"),
    ("instruct_rag", "Who painted Guernica?"),
)
NOTES = {
    "staging.md": "# The staging server\n\nThe staging server runs on port 8443. Deployments "
    "happen every Tuesday at 10:00, and Priya Raman approves them.\n",
    "office.md": "# The office\n\nThe office is on the third floor of the old brewery. Tom waters "
    "the plants on Mondays.\n",
}
OWN_QUESTIONS = ("Who approves the deployments?", "How much is the rent of the office?")


@click.command()
def command() -> None:
    """Answer questions from the demo's documents and from two notes, offline."""
    from selfcorrect_rag.cli.show import show_answer
    from selfcorrect_rag.demo import DEMO_INDEX, demo_index, demo_web
    from selfcorrect_rag.search import index_paths, open_index
    from selfcorrect_rag.serving import Parts, ServingConfig

    def ask(parts: Parts, graph: str, question: str) -> None:
        tell(f"{graph}: {question}", fg="cyan")
        show_answer(parts.graph(graph).invoke({"question": question}))
        tell()

    with Parts(ServingConfig()) as parts, demo_index() as index:
        # Whatever index there is here, the demo reads its own.
        parts.retriever, parts.web_search = index.as_retriever(), demo_web()
        for graph, question in QUESTIONS:
            ask(parts, graph, question)
    with tempfile.TemporaryDirectory() as made:
        notes, folder = Path(made) / "notes", Path(made) / "index"
        notes.mkdir()
        for name, text in NOTES.items():
            (notes / name).write_text(text, encoding="utf-8")
            tell(f"{name}: {' '.join(text.split())}", dim=True)
        tell()
        with open_index(folder, create=True) as opened:
            index_paths([notes], opened)
        with Parts(ServingConfig(index=folder)) as parts:
            for question in OWN_QUESTIONS:
                ask(parts, "self_rag", question)
    tell(
        f"All of it ran offline; the index is in {DEMO_INDEX}. Ask your own files: "
        'selfcorrect-rag index FOLDER, then selfcorrect-rag ask "..."',
        dim=True,
    )
