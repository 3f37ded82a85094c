"""What corrects a retrieval: options for the evaluator and the web search, and what they name."""

import argparse
from pathlib import Path

from langchain_core.documents import Document

from selfcorrect_rag.commands.graphs import CORRECTING
from selfcorrect_rag.commands.knobs import BadKnob, refuse_unless
from selfcorrect_rag.errors import WebSearchFailed
from selfcorrect_rag.models import ChatEvaluator, RetrievalEvaluator, T5Evaluator
from selfcorrect_rag.models.by_name import find_language_model
from selfcorrect_rag.nano import demo_web, load_evaluator
from selfcorrect_rag.search import RetrieverWebSearch, TavilyWebSearch, WebSearch, open_retriever
from selfcorrect_rag.settings import CRAGSettings


def add_evaluator_option(parser: argparse._ActionsContainer) -> None:
    """Add the option that :func:`opened_evaluator` takes."""
    parser.add_argument(
        "--evaluator",
        metavar="NAME",
        help="a folder or hub name of a T5 with a regression head, or of any sequence classifier "
        "with one label; or a chat model: provider:model, or module:attribute of your own. The "
        "shipped one by default",
    )


def add_correction_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`opened_evaluator` and :func:`opened_web` take."""
    group = parser.add_argument_group(f"the correction ({', '.join(CORRECTING)})")
    add_evaluator_option(group)
    group.add_argument(
        "--web",
        metavar="tavily|none|DIR",
        help="what is searched where the index does not do: Tavily, with TAVILY_API_KEY of the "
        "environment; nothing; or an index that plays the web. Default: the demo's second corpus "
        "for the demo corpus, none for other indexes.",
    )


def check_correction(args: argparse.Namespace) -> None:
    """Refuse an evaluator or a web for a graph that has no use for it.

    Raises:
        BadKnob: the option is given.
    """
    for option, given in (("--evaluator", args.evaluator), ("--web", args.web)):
        refuse_unless(given is None or args.graph in CORRECTING, option, CORRECTING)


def opened_evaluator(name: str | None) -> RetrievalEvaluator:
    """The evaluator called ``name``, or the shipped one.

    Raises:
        ModelNotFound, NotAnEvaluator, MissingExtra: see ``T5Evaluator.from_pretrained``.
        NoLanguageModel: see :func:`~selfcorrect_rag.models.by_name.find_language_model`.
    """
    if name is None:
        return load_evaluator()
    if ":" in name and not Path(name).exists():
        return ChatEvaluator(find_language_model(name))
    return T5Evaluator.from_pretrained(name)


def opened_web(web: str | None, k: int, *, demo: bool) -> WebSearch:
    """What ``--web`` names, for at most ``k`` pages a search; ``demo`` is its default's corpus.

    Raises:
        WebSearchFailed: there is no key for Tavily.
        NoIndex, EmbedderMismatch: see ``open_index``.
    """
    if web == "tavily":
        return TavilyWebSearch()
    if web == "none" or (web is None and not demo):
        return NoWebSearch()
    if web is not None:
        return RetrieverWebSearch(open_retriever(Path(web), k), f"{web} in place of the web")
    return demo_web()


def check_thresholds(evaluator: RetrievalEvaluator, settings: CRAGSettings) -> None:
    """Refuse thresholds that are none, with those of the evaluator, before anything is asked.

    Raises:
        BadKnob: the lower is above the upper.
    """
    try:
        settings.thresholds(evaluator.thresholds)
    except ValueError as error:
        raise BadKnob(f"--upper, --lower: with the evaluator's own, {error}") from error


class NoWebSearch(WebSearch):
    """No web at all: the run goes on with what was retrieved, and says how to have one."""

    name = "the web"

    def search(self, query: str, k: int) -> list[Document]:
        raise WebSearchFailed("none was chosen: --web tavily, or --web DIR")

    async def asearch(self, query: str, k: int) -> list[Document]:
        return self.search(query, k)
