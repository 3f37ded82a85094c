"""``selfcorrect-rag demo``: the demo corpus into Chroma, and a few questions answered from it."""

import argparse
import time
from pathlib import Path
from typing import Any

from selfcorrect_rag.commands.engines import add_model_options, opened_model
from selfcorrect_rag.commands.show import console, show_result
from selfcorrect_rag.nano import demo_index
from selfcorrect_rag.nano.embedded import DEMO_INDEX
from selfcorrect_rag.self_rag import create_self_rag

QUESTIONS = (
    "Who wrote Middlemarch?",
    "Who designed the Sydney Opera House?",
    "Thank you very much!",
    "Where was Harper Lee born?",  # passages on her novel and other writers: none says it
)


def add_parser(subparsers: Any) -> None:
    """Register ``demo``."""
    parser = subparsers.add_parser("demo", help="see Self-RAG work, offline", description=__doc__)
    parser.add_argument("--index", type=Path, default=DEMO_INDEX, metavar="DIR")
    add_model_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Answer the demo's questions, and say what each part took."""
    screen = console()
    started = time.perf_counter()
    index = demo_index(args.index)
    indexed = time.perf_counter()
    with opened_model(args) as llm:
        screen.print(
            f"[dim]index of {len(index)} passages in {args.index}: {indexed - started:.1f} s; "
            f"{Path(args.model or 'generator').name} on {args.engine}: "
            f"{time.perf_counter() - indexed:.1f} s[/dim]\n"
        )
        graph = create_self_rag(llm, index.as_retriever())
        for question in QUESTIONS:
            asked = time.perf_counter()
            result = graph.invoke({"question": question})
            show_result(screen, result, time.perf_counter() - asked, "the demo corpus")
    screen.print(
        f"[dim]{time.perf_counter() - started:.1f} s in all, offline. Ask your own: "
        'selfcorrect-rag ask "Who painted Guernica?"[/dim]'
    )
    return 0
