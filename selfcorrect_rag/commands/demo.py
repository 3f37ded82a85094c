"""``selfcorrect-rag demo``: answers from the demo corpus and from two notes, and a comparison."""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfcorrect_rag.commands.demo_comparison import compare
from selfcorrect_rag.commands.show import console, say, show_run
from selfcorrect_rag.commands.training_options import count
from selfcorrect_rag.demo import demo_index, demo_web, load_rationale_model
from selfcorrect_rag.demo.loaders import DEMO_INDEX
from selfcorrect_rag.evaluation.remembered import Memory
from selfcorrect_rag.search import ChromaIndex, index_paths
from selfcorrect_rag.serving.options import GENERATOR_OPTIONS, add_options, config_from
from selfcorrect_rag.serving.parts import Parts
from selfcorrect_rag.settings import GRAPHS

if TYPE_CHECKING:
    from rich.console import Console

QUESTIONS = (
    ("self-rag", "Who discovered penicillin?"),
    ("self-rag", "Thank you very much!"),
    # The passages are on her novel and other writers: none says it, and Self-RAG says so.
    ("self-rag", "Where was Harper Lee born?"),
    ("self-crag", "Where was Harper Lee born?"),
    ("crag", "Who designed the Sydney Opera House?"),
    ("crag", "Who designed the Williamsburg Bridge?"),
    ("instruct-rag", "Who painted Guernica?"),
)
"""Graphs, and questions on the demo corpus."""

NOTES = {
    "staging.md": "# The staging server\n\nThe staging server runs on port 8443. Deployments "
    "happen every Tuesday at 10:00, and Priya Raman approves them.\n",
    "office.md": "# The office\n\nThe office is on the third floor of the old brewery. Tom waters "
    "the plants on Mondays.\n",
}
"""Two files as a person keeps them."""
OWN_QUESTIONS = (
    "Which port does the staging server run on?",
    "Who approves the deployments?",
    "How much is the rent of the office?",  # no note says
)


def add_parser(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Register ``demo``."""
    parser = add(
        usage="%(prog)s [options]",
        description="Answer from the demo's documents and from two notes, and compare plain RAG "
        "with the graphs.",
        examples=("selfcorrect-rag demo", "selfcorrect-rag demo --every 10"),
    )
    parser.add_argument(
        "--index",
        type=Path,
        default=DEMO_INDEX,
        metavar="DIR",
        help="Where the index of the demo corpus is or will be. Default: %(default)s.",
    )
    parser.add_argument(
        "--every",
        type=count,
        default=4,
        metavar="N",
        help="Compare plain RAG and the graphs on every Nth of 140 questions; 1: on all, which "
        "takes some minutes. Default: %(default)s.",
    )
    add_options(parser, GENERATOR_OPTIONS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Answer the demo's questions, and say what each part took."""
    config = config_from(args)
    screen = console()
    started = time.perf_counter()
    index = demo_index(args.index)
    web = demo_web(args.index.with_name(f"{args.index.name}-web"))
    indexed = time.perf_counter()
    memory = Memory()
    with Parts(config, each=memory.of) as parts:
        passages = memory.of(index.as_retriever())
        parts.retriever, parts.web = passages, memory.of(web)
        modes = {"self-rag": "adaptive", "self-crag": "adaptive", "instruct-rag": "ft"}
        if config.runs_on == "reader":
            del modes["instruct-rag"]
        elif config.model is None:
            parts.rationale_llm = load_rationale_model()
        _ = parts.llm, parts.evaluator
        screen.print(
            f"[dim]index of {len(index)} passages in {args.index}: {indexed - started:.1f} s; "
            f"{parts.answers}, and an evaluator: {time.perf_counter() - indexed:.1f} s[/dim]\n"
        )
        for graph, question in QUESTIONS:
            screen.rule(f"[dim]{graph}[/dim]", align="left")
            knobs = {"mode": modes[graph]} if graph in modes else {}
            _ask(screen, parts, graph, question, "the demo corpus", **knobs)
        compared = [
            f"{name}={name}:mode={modes[graph]}" if graph in modes else name
            for graph, name in ((name.replace("_", "-"), name) for name in GRAPHS)
        ]
        _ask_notes(screen, parts)
        parts.retriever = passages
        compare(screen, parts, compared, args.every)
    screen.print(
        f"[dim]{time.perf_counter() - started:.1f} s in all, offline. Ask your own files: "
        'selfcorrect-rag index FOLDER, then selfcorrect-rag ask "..."[/dim]'
    )
    return 0


def _ask(
    screen: "Console", parts: Parts, graph: str, question: str, source: str, **knobs: Any
) -> None:
    name = graph.replace("-", "_")
    made = parts.graph(name, GRAPHS[name](passages=5, **knobs))  # five fit on a screen
    begun = time.perf_counter()
    result = made.invoke({"question": question})
    show_run(screen, result, time.perf_counter() - begun, source, parts.answers)


def _ask_notes(screen: "Console", parts: Parts) -> None:
    """Index the notes as a person would, and answer from them."""
    screen.rule("[dim]two notes of a person's own[/dim]", align="left")
    with tempfile.TemporaryDirectory() as made:
        notes = Path(made) / "notes"
        notes.mkdir()
        for name, text in NOTES.items():
            (notes / name).write_text(text, encoding="utf-8")
            say(screen, (f"  {name}: {' '.join(text.split())}", "dim"))
        with ChromaIndex(Path(made) / "index") as index:
            index_paths([notes], index)
            screen.print()
            parts.retriever = index.as_retriever()
            for question in OWN_QUESTIONS:
                _ask(screen, parts, "self-rag", question, "the notes", mode="always")
