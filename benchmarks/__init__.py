"""Each benchmark is a module to run, and ends in one line of JSON; docs/performance.md and the
pages on quality have the figures."""

from collections.abc import Iterable

from langchain_core.documents import Document

from selfcorrect_rag.evaluation.statistics import bootstrap_mean


def documents(pages: Iterable[tuple[str, str]]) -> list[Document]:
    """Make passages of titles and texts."""
    return [Document(text, metadata={"title": title}) for title, text in pages]


def share(values: Iterable[float]) -> list[float | None]:
    """Return the mean with its 95 % bootstrap interval."""
    found = bootstrap_mean([*map(float, values)])
    return [round(found.value, 6), *(end and round(end, 6) for end in found.ends)]
