"""What finds passages: options that several commands share."""

import argparse
from pathlib import Path

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from selfcorrect_rag.commands.index import DEFAULT_INDEX
from selfcorrect_rag.nano import demo_index
from selfcorrect_rag.search.opening import NoIndex, find_embeddings, open_index


def add_index_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`opened_retriever` reads."""
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


def reads_demo(args: argparse.Namespace) -> bool:
    """Whether the options lead to the demo corpus."""
    return args.index is None and not DEFAULT_INDEX.exists()


def opened_retriever(args: argparse.Namespace, k: int) -> tuple[Runnable[str, list[Document]], str]:
    """What finds ``k`` passages, and what to call their source.

    Raises:
        NoIndex: there is none, or there is nothing in it; see ``open_index``.
        EmbedderMismatch, NoEmbeddings: see ``open_index``, ``find_embeddings``.
    """
    if reads_demo(args):
        return demo_index().as_retriever(k), "the demo corpus"
    path = args.index or DEFAULT_INDEX
    found = None if args.embeddings is None else find_embeddings(args.embeddings)
    index = open_index(path, found)
    if not len(index):
        index.close()
        raise NoIndex(f"{path} holds no passages: selfcorrect-rag index PATH... --index {path}")
    return index.as_retriever(k), str(path)
