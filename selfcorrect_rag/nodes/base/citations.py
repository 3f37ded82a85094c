"""Citations: the relevant texts that an answer was written from."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.prompts.marks import without_marks
from selfcorrect_rag.prompts.refusals import is_refusal
from selfcorrect_rag.reflection import Group
from selfcorrect_rag.state.common import Citation
from selfcorrect_rag.state.self_rag import Beam, Candidate, Source
from selfcorrect_rag.state.sources import source_of, title_of

RELEVANT = 0.5
"""Minimum ISREL score of a cited passage."""


def citation(number: int, passage: int, document: Document, segments: Sequence[int]) -> Citation:
    """A citation of a document, with title and source sanitised for display.

    Args:
        number: as printed in the answer.
        passage: index of the document in its list of the state.
        document: what is cited.
        segments: indices of the answer's segments that were written from it.
    """
    return Citation(
        number=number,
        passage=passage,
        title=title_of(document),
        source=source_of(document),
        text=document.page_content,
        segments=list(segments),
    )


def citations_of(
    segments: Sequence[Candidate], passages: Sequence[Document], irrelevant: Collection[int] = ()
) -> list[Citation]:
    """One citation per passage that segments were generated from, in order of appearance.

    A segment cites its passage if the critique calls it relevant (ISREL of at least 0.5). A segment
    that continues with the same passage and has no ISREL inherits the previous segment's. Without
    any ISREL the passage was not judged and is not cited. Segments without text and refusals cite
    nothing.

    Args:
        segments: an answer's segments, in order.
        passages: the list that the segments' indices refer to.
        irrelevant: indices of passages judged irrelevant elsewhere.
    """
    citations: dict[int, Citation] = {}
    for segment, passage in _evidence(segments):
        said = segment["text"]
        if passage in irrelevant or not said.strip() or is_refusal(said):
            continue
        if passage not in citations:
            citations[passage] = citation(len(citations) + 1, passage, passages[passage], [])
        citations[passage]["segments"].append(segment["depth"])
    return list(citations.values())


def _evidence(segments: Sequence[Candidate]) -> Iterator[tuple[Candidate, int]]:
    """The segments written from a relevant passage, each with that passage's index."""
    judged: float | None = None
    for segment in segments:
        isrel = segment["critique"].get(Group.ISREL)
        if segment["step"] != "continue" or isrel is not None:
            judged = isrel
        passage = segment["passage"]
        if passage is not None and judged is not None and judged >= RELEVANT:
            yield segment, passage


def cited_passages(
    segments: Sequence[Candidate], state: Mapping[str, Any], source: Source
) -> list[Citation]:
    """The citations of segments written from the passages at the state key ``source``.

    Knowledge that CRAG's evaluator has judged irrelevant is not cited.
    """
    judged = state["judged"] if source == "knowledge" else []
    irrelevant = {i for i, found in enumerate(judged) if found == "irrelevant"}
    return citations_of(segments, state[source], irrelevant)


def cited_text(segments: Sequence[Candidate], citations: Sequence[Citation]) -> str:
    """The segments, with ``[n]`` after each that cites a passage.

    Citation marks in a segment's own text, copied from a page, become ``[3?]``.
    """
    return " ".join(_cited(segment, citations) for segment in segments)


def settled(beams: Sequence[Beam]) -> list[Candidate]:
    """The common prefix of all beams: its segments are part of the answer whichever beam wins."""
    paths = [[_place(segment) for segment in beam["segments"]] for beam in beams]
    best = beams[0]["segments"]
    common = 0
    while common < len(best) and all(p[: common + 1] == paths[0][: common + 1] for p in paths):
        common += 1
    return best[:common]


def _place(segment: Candidate) -> tuple[int, int, int | None]:
    return segment["depth"], segment["beam"], segment["passage"]


def _cited(segment: Candidate, citations: Sequence[Citation]) -> str:
    numbers = [c["number"] for c in citations if segment["depth"] in c["segments"]]
    return without_marks(segment["text"]) + "".join(f" [{number}]" for number in numbers)
