"""Citations of an answer that was written segment by segment, each from one passage."""

from collections.abc import Sequence

from langchain_core.documents import Document

from selfcorrect_rag.state import Beam, Candidate, Citation


def citations_of(segments: Sequence[Candidate], passages: Sequence[Document]) -> list[Citation]:
    """One for each passage the segments were generated from, in order of appearance.

    A passage that its segment's critique calls irrelevant is no evidence and is not cited.
    """
    citations: dict[int, Citation] = {}
    for segment in segments:
        passage = segment["passage"]
        if passage is None or _irrelevant(segment):
            continue
        if passage not in citations:
            metadata = passages[passage].metadata
            citations[passage] = Citation(
                number=len(citations) + 1,
                passage=passage,
                title=str(metadata.get("title") or ""),
                source=str(metadata.get("source") or passages[passage].id or ""),
                text=passages[passage].page_content,
                segments=[],
            )
        citations[passage]["segments"].append(segment["depth"])
    return list(citations.values())


def cited_text(segments: Sequence[Candidate], citations: Sequence[Citation]) -> str:
    """The segments with ``[n]`` after each that was generated from a passage."""
    return " ".join(_cited(segment, citations) for segment in segments)


def settled(beams: Sequence[Beam]) -> list[Candidate]:
    """The segments that all beams begin with: whichever wins, they are part of the answer."""
    paths = [[_place(segment) for segment in beam["segments"]] for beam in beams]
    best = beams[0]["segments"]
    common = 0
    while common < len(best) and all(p[: common + 1] == paths[0][: common + 1] for p in paths):
        common += 1
    return best[:common]


def _place(segment: Candidate) -> tuple[int, int, int | None]:
    return segment["depth"], segment["beam"], segment["passage"]


def _irrelevant(segment: Candidate) -> bool:
    return segment["isrel"] is not None and segment["isrel"] < 0.5


def _cited(segment: Candidate, citations: Sequence[Citation]) -> str:
    numbers = [c["number"] for c in citations if segment["depth"] in c["segments"]]
    return segment["text"] + "".join(f" [{number}]" for number in numbers)
