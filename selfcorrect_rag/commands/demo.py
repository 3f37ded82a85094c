"""``selfcorrect-rag demo``: the demo corpus into Chroma, and a few questions answered from it."""

import argparse
import time
from pathlib import Path
from typing import Any

from selfcorrect_rag.commands.show import console, show_run
from selfcorrect_rag.nano import demo_index, demo_web, load_rationale_model
from selfcorrect_rag.nano.loaders import DEMO_INDEX
from selfcorrect_rag.serving.options import GENERATOR_OPTIONS, add_options, config_from
from selfcorrect_rag.serving.parts import GRAPHS, Parts

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
    parser.add_argument(
        "--index",
        type=Path,
        default=DEMO_INDEX,
        metavar="DIR",
        help="Where the index of the demo corpus is or will be. Default: %(default)s.",
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
    with Parts(config) as parts:
        parts.retriever, parts.web = index.as_retriever(), web
        if config.model is None:
            parts.rationale_llm = load_rationale_model()
        _ = parts.llm, parts.evaluator
        screen.print(
            f"[dim]index of {len(index)} passages in {args.index}: {indexed - started:.1f} s; "
            f"{Path(config.model or 'nano models').name} on {config.engine}, and an evaluator: "
            f"{time.perf_counter() - indexed:.1f} s[/dim]\n"
        )
        for name, question in QUESTIONS:
            key = name.replace("-", "_")
            knobs: dict[str, Any] = {"passages": 5}  # enough here, and they fit on a screen
            if name == "instruct-rag":
                knobs["mode"] = "ft"
            graph = parts.graph(key, GRAPHS[key](**knobs))
            begun = time.perf_counter()
            result = graph.invoke({"question": question})
            screen.rule(f"[dim]{name}[/dim]", align="left")
            show_run(screen, result, time.perf_counter() - begun, "the demo corpus")
    screen.print(
        f"[dim]{time.perf_counter() - started:.1f} s in all, offline. Ask your own: "
        'selfcorrect-rag ask "Who painted Guernica?" --graph self-crag[/dim]'
    )
    return 0
