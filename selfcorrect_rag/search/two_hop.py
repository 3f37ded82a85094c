"""Questions of two hops: look up what the first passages name, and read it behind the sentence that
names it."""

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.runnables.config import run_in_executor

from selfcorrect_rag.errors import BadArgument, Fault, ModelFailed, one_line, wrap_errors
from selfcorrect_rag.intake import name_of, source_of, title_of
from selfcorrect_rag.models.chat_model import QUIET, written_text
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.prompts.chat import bridge_prompt
from selfcorrect_rag.prompts.reading import sentence_stating
from selfcorrect_rag.reader.reader import Passage, Reader
from selfcorrect_rag.search.retriever import AnyRetriever, Retriever

MAX_QUERY = 200
"""Characters of a query of the second hop."""
_SPANS = 3
"""Spans of a passage that the reader may name."""
_LINE = re.compile(r"\W*(\d{1,3})[\s.:)]*\|([^|]+)\|([^|]+)")
_logger = logging.getLogger(__name__)


class Bridge(NamedTuple):
    """A query of the second hop, and the sentence that led to it."""

    query: str
    passage: int
    """Index of the passage that holds the sentence."""
    sentence: str


class BridgeFinder(ABC):
    """Names what to look up in the second hop."""

    @abstractmethod
    def find(self, question: str, passages: Sequence[Document]) -> list[Bridge]:
        """Return bridges from the passages of the first hop, best first; none ends the search."""

    async def afind(self, question: str, passages: Sequence[Document]) -> list[Bridge]:
        """Return bridges; by default `find` runs in a thread."""
        return await run_in_executor(None, self.find, question, passages)


class ReaderBridges(BridgeFinder):
    """Names the reader's answers that are names which the question lacks, the surest first.

    The query is the name with those words of the question that neither the sentence nor the title
    has: they are what is still asked.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def find(self, question: str, passages: Sequence[Document]) -> list[Bridge]:
        asked = _words(question)
        known = {word.casefold() for word in asked}
        given = [Passage(title_of(passage), passage.page_content) for passage in passages]
        found: list[tuple[float, str, Bridge]] = []
        for i, reading in enumerate(self._reader.read([(question, each) for each in given])):
            for span in reading.spans[:_SPANS]:
                name = " ".join(span.text.split())
                if any(w[0].isupper() and w.casefold() not in known for w in _words(name)):
                    sentence = " ".join(given[i].text[slice(*span.sentence)].split())
                    told = {word.casefold() for word in _words(f"{given[i].title} {sentence}")}
                    rest = [word for word in asked if word.casefold() not in told]
                    query = one_line(" ".join([name, *rest]), MAX_QUERY)
                    found.append((span.confidence, name.casefold(), Bridge(query, i, sentence)))
        best: dict[str, Bridge] = {}
        for _, name, bridge in sorted(found, key=lambda each: -each[0]):
            best.setdefault(name, bridge)
        return list(best.values())


class ChatBridges(BridgeFinder):
    """Asks a chat model what to look up; names that their passage does not hold are ignored."""

    def __init__(self, llm: Model) -> None:
        """Ask ``llm``, a model or its name."""
        self._llm = as_language_model(llm, "finder")

    def find(self, question: str, passages: Sequence[Document]) -> list[Bridge]:
        written = self._llm.invoke(bridge_prompt(question, passages), QUIET)
        return list(_read_bridges(written_text(written), question, passages))

    async def afind(self, question: str, passages: Sequence[Document]) -> list[Bridge]:
        written = await self._llm.ainvoke(bridge_prompt(question, passages), QUIET)
        return list(_read_bridges(written_text(written), question, passages))


def two_hop(
    retriever: Retriever,
    finder: BridgeFinder | Model,
    *,
    first: int = 5,
    bridges: int = 3,
    each: int = 3,
    second: int = 5,
) -> Runnable[str, list[Document]]:
    """Return a retriever that also retrieves for what the first passages name.

    A passage of the second hop begins with the sentence that led to it, so that it answers even if
    it is read alone. Its title names both passages, and its metadata has ``hop`` (2) and ``via``,
    title and source of the first one. Both hops' passages alternate. If the finder or the second
    hop fails, the passages of the first hop are returned, and a warning is logged.

    Args:
        retriever: what a graph takes as its ``retriever``; the run's filter holds in both hops.
        finder: names what to look up; a chat model or its name is asked for it.
        first: most passages of the first hop.
        bridges: most queries of the second hop.
        each: most passages of each of these queries.
        second: most passages of the second hop.
    """
    source = AnyRetriever(retriever)
    names = finder if isinstance(finder, BridgeFinder) else ChatBridges(finder)
    sizes = {"first": first, "bridges": bridges, "each": each, "second": second}
    if wrong := [f"{name}={size!r}" for name, size in sizes.items() if size < 1]:
        raise BadArgument(f"two_hop needs sizes of at least 1, got {', '.join(wrong)}")

    def join(found: list[Document], named: list[Bridge], lists: list[Any]) -> list[Document]:
        more = _second_hop(found, named, [some[:each] for some in lists])
        pairs = zip_longest(found, islice(more, second))
        return [document for pair in pairs for document in pair if document is not None]

    def find(question: str) -> list[Document]:
        found = source.invoke(question, k=first)[:first]
        try:
            with wrap_errors(ModelFailed, "the bridge finder"):
                named = names.find(question, found)[:bridges] if found else []
            lists = source.batch([bridge.query for bridge in named], k=each)
        except Fault as fault:
            return _warn(found, fault)
        return join(found, named, lists)

    async def afind(question: str) -> list[Document]:
        found = (await source.ainvoke(question, k=first))[:first]
        try:
            with wrap_errors(ModelFailed, "the bridge finder"):
                named = (await names.afind(question, found))[:bridges] if found else []
            lists = await source.abatch([bridge.query for bridge in named], k=each)
        except Fault as fault:
            return _warn(found, fault)
        return join(found, named, lists)

    # Its calls inherit the run's config, and so the filter.
    return RunnableLambda(find, afind, name="two_hop")


def _warn(found: list[Document], fault: Fault) -> list[Document]:
    _logger.warning("no second hop: %s", fault.reason)
    return found


def _second_hop(
    found: Sequence[Document], named: Sequence[Bridge], lists: Sequence[Sequence[Document]]
) -> Iterator[Document]:
    """Yield each passage once, behind the sentence that led to it, the best of each query first.

    One of the first hop comes again if another passage leads to it, since it is read with more."""
    made = set[tuple[str, str]]()
    for ranked in zip_longest(*lists):
        for bridge, document in zip(named, ranked, strict=True):
            origin = found[bridge.passage]
            if document is not None and _key(document) not in {_key(origin), *made}:
                made.add(_key(document))
                yield _behind(origin, bridge.sentence, document)


def _key(document: Document) -> tuple[str, str]:
    return title_of(document), document.page_content


def _behind(origin: Document, sentence: str, document: Document) -> Document:
    """Return a document behind a sentence of ``origin``; its title names both, since a quote from
    either is cited under it."""
    via = name_of(origin)
    added = {
        "title": f"{name_of(document)} (via {via})",
        "hop": 2,
        "via": {"title": via, "source": source_of(origin)},
    }
    text = f"{via}: {sentence}\n{document.page_content}"
    return Document(text, metadata={**document.metadata, **added}, id=document.id)


def _read_bridges(text: str, question: str, passages: Sequence[Document]) -> Iterator[Bridge]:
    for match in filter(None, map(_LINE.match, text.splitlines())):
        number, name, query = int(match[1]), match[2].strip(), one_line(match[3], MAX_QUERY)
        if query and 0 < number <= len(passages):
            sentence = sentence_stating(passages[number - 1].page_content, name, question)
            if sentence:
                yield Bridge(query, number - 1, sentence)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)
