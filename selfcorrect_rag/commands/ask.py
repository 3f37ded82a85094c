"""``selfcorrect-rag ask``: a question through Self-RAG, with all that led to the answer."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from selfcorrect_rag.commands.engines import add_model_options, opened_model
from selfcorrect_rag.commands.index import DEFAULT_INDEX
from selfcorrect_rag.commands.knobs import add_knobs, settings_from
from selfcorrect_rag.commands.show import console, show_result
from selfcorrect_rag.nano import demo_index
from selfcorrect_rag.search.opening import find_embeddings, open_retriever
from selfcorrect_rag.self_rag import create_self_rag
from selfcorrect_rag.settings import SelfRAGSettings


def add_parser(subparsers: Any) -> None:
    """Register ``ask``."""
    parser = subparsers.add_parser(
        "ask", help="answer a question from an index", description=__doc__
    )
    parser.add_argument("question")
    parser.add_argument(
        "--index",
        type=Path,
        metavar="DIR",
        help=f"an index that `selfcorrect-rag index` made; {DEFAULT_INDEX} where it exists, else "
        "the demo corpus",
    )
    parser.add_argument(
        "--embeddings",
        metavar="MODULE:ATTRIBUTE",
        help="the LangChain embeddings that the index was made with, where they are your own",
    )
    add_model_options(parser)
    parser.add_argument("--json", action="store_true", help="print the whole result as JSON")
    add_knobs(parser, SelfRAGSettings)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Answer ``args.question``."""
    settings = settings_from(args, SelfRAGSettings)
    retriever, source = _retriever(args.index, args.embeddings, settings.passages)
    with opened_model(args) as llm:
        graph = create_self_rag(llm, retriever, settings=settings)
        started = time.perf_counter()
        result = graph.invoke({"question": args.question})
        seconds = time.perf_counter() - started
    if args.json:
        json.dump(as_json(result, seconds), sys.stdout, ensure_ascii=False, indent=2)
        print()
    else:
        show_result(console(), result, seconds, source)
    return 0


def as_json(result: dict[str, Any], seconds: float) -> dict[str, Any]:
    """A result of JSON values only; passages become objects of id, text and metadata."""
    passages = [
        {"id": passage.id, "text": passage.page_content, "metadata": passage.metadata}
        for passage in result["passages"]
    ]
    rest = {key: value for key, value in result.items() if key not in ("passages", "messages")}
    return {**rest, "passages": passages, "seconds": round(seconds, 3)}


def _retriever(
    index: Path | None, embeddings: str | None, k: int
) -> tuple[Runnable[str, list[Document]], str]:
    if index is None and not DEFAULT_INDEX.exists():
        return demo_index().as_retriever(k), "the demo corpus"
    path = index or DEFAULT_INDEX
    found = None if embeddings is None else find_embeddings(embeddings)
    return open_retriever(path, k, found), str(path)
