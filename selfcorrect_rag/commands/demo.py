"""``selfcorrect-rag demo``: the demo corpus into Chroma, and a few questions answered from it."""

import argparse
import time
from pathlib import Path
from typing import Any

from selfcorrect_rag.commands.engines import add_model_options, opened_model
from selfcorrect_rag.commands.graphs import GRAPHS
from selfcorrect_rag.commands.show import console
from selfcorrect_rag.nano import (
    demo_index,
    demo_web,
    generator_path,
    load_evaluator,
    load_rationale_model,
)
from selfcorrect_rag.nano.embedded import DEMO_INDEX
from selfcorrect_rag.settings import CRAGSettings, InstructRAGSettings

QUESTIONS = (
    ("self-rag", "Who wrote Middlemarch?"),
    ("self-rag", "Thank you very much!"),
    # The passages are on her novel and other writers: none says it, and Self-RAG says so.
    ("self-rag", "Where was Harper Lee born?"),
    ("self-crag", "Where was Harper Lee born?"),
    ("crag", "Who designed the Sydney Opera House?"),
    ("crag", "Who wrote The Sea-Wolf?"),
    ("crag", "Who designed the Williamsburg Bridge?"),
    ("instruct-rag", "Who wrote Don Quixote?"),
)


def add_parser(subparsers: Any) -> None:
    """Register ``demo``."""
    parser = subparsers.add_parser("demo", help="see the graphs work, offline", description=__doc__)
    parser.add_argument("--index", type=Path, default=DEMO_INDEX, metavar="DIR")
    add_model_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Answer the demo's questions, and say what each part took."""
    screen = console()
    started = time.perf_counter()
    index = demo_index(args.index)
    web = demo_web(args.index.with_name(f"{args.index.name}-web"))
    indexed = time.perf_counter()
    with opened_model(args, generator_path()) as llm:
        rationale_model = llm if args.model else load_rationale_model()
        evaluator = load_evaluator()
        screen.print(
            f"[dim]index of {len(index)} passages in {args.index}: {indexed - started:.1f} s; "
            f"{Path(args.model or 'nano models').name} on {args.engine}, and an evaluator: "
            f"{time.perf_counter() - indexed:.1f} s[/dim]\n"
        )
        for name, question in QUESTIONS:
            graph = GRAPHS[name]
            knobs: dict[str, Any] = {"passages": 5}  # enough here, and they fit on a screen
            model: Any = llm
            parts: tuple[Any, ...] = ()
            if issubclass(graph.settings, CRAGSettings):
                parts = (evaluator, web)
            elif issubclass(graph.settings, InstructRAGSettings):
                model, knobs["mode"] = rationale_model, "ft"
            settings = graph.settings.model_validate(knobs)
            runnable = graph.create(model, index.as_retriever(), *parts, settings=settings)
            asked = time.perf_counter()
            result = runnable.invoke({"question": question})
            screen.rule(f"[dim]{name}[/dim]", align="left")
            graph.show(screen, result, time.perf_counter() - asked, "the demo corpus")
    screen.print(
        f"[dim]{time.perf_counter() - started:.1f} s in all, offline. Ask your own: "
        'selfcorrect-rag ask "Who painted Guernica?" --graph self-crag[/dim]'
    )
    return 0
