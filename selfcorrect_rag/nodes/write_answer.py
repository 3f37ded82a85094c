"""write_answer: turn the best beam into text with citations; and what every answer ends with: a
message with citations, streamed as it is written."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages import content as blocks
from langchain_core.messages.ai import UsageMetadata, subtract_usage
from langgraph.graph.message import push_message
from langgraph.types import Overwrite

from selfcorrect_rag.errors import one_line
from selfcorrect_rag.intake import shown_source, source_of, title_line, title_of, web_address
from selfcorrect_rag.models.chat_model import model_name
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.prompts.parts import quoted
from selfcorrect_rag.prompts.reading import (
    REFUSAL,
    is_refusal,
    marks_in,
    sentence_stating,
    without_marks,
)
from selfcorrect_rag.settings import PROTOCOL, SelfRAGSettings
from selfcorrect_rag.state import Beam, Candidate, Citation, Source, Usage, add_notes

NO_ANSWER = "No answer: the model wrote nothing."
"""The text in place of an empty answer."""
SILENT = "the model wrote nothing: the answer says so"
"""The note about an empty answer."""
RELEVANT = 0.5
"""Minimum ISREL score of a cited passage."""
MAX_EXCERPT = 400
"""Maximum characters of a cited text that is not a quote; the whole is in ``citations``."""
STANDARD = {"output_version": "v1"}
"""Metadata of a message of standard blocks, which integrations convert for their provider."""


def write_answer(
    settings: SelfRAGSettings | None = None, source: Source = "passages", llm: object = None
) -> Node[SelfRAGSettings]:
    """Compose answer, citations and, if messages began the run, the reply, which names ``llm``.

    ``source`` is the state key of the passages that candidates index.
    """

    async def step(state: Mapping[str, Any], run: Run[SelfRAGSettings]) -> Update:
        best: Beam = state["beams"][0]
        segments = best["segments"]
        citations = await run.compute(cited_passages, segments, state, source, texts=state[source])
        notes = [best["cut"]] if best["cut"] else []
        if segments[-1]["finish_reason"] == "length":
            limit = run.settings.segment_tokens
            notes.append(f"the last segment was cut at its limit of {limit} tokens")
        if state["options"]:  # for a closed set the answer is the option itself
            segments = [{**segments[0], "text": next(iter(state["options"]))}]
        answer, cited = " ".join(s["text"] for s in segments), cited_text(segments, citations)
        if not answer.strip():
            answer = cited = NO_ANSWER
            notes.insert(0, SILENT)
        path = [(s["depth"], s["beam"], s["passage"]) for s in segments]
        candidates = [
            {**c, "chosen": (c["depth"], c["beam"], c["passage"]) in path}
            for c in state["candidates"]
        ]
        return {
            "candidates": Overwrite(candidates),
            **answered(state, run, answer, cited, citations, llm, score=best["score"], notes=notes),
        }

    return Node("write_answer", step, SelfRAGSettings.of(settings))


def answered(
    state: Mapping[str, Any],
    run: Run[Any],
    answer: str,
    cited: str,
    citations: Sequence[Citation],
    llm: object = None,
    *,
    text: str = "",
    score: float | None = None,
    notes: Sequence[str] = (),
) -> Update:
    """Return the update with the answer and the step's ``notes``, and the reply if a message asked;
    stream the reply.

    ``cited`` is the answer with marks, ``text`` the whole reply if it is more. The reply names
    ``llm``, which wrote it; if it was streamed, its message is ``run.message``. An answer whose
    ``score`` is not above the setting ``score_above`` is refused.
    """
    above = run.settings.score_above
    if above is not None and (score is None or score <= above) and not is_refusal(answer):
        answer = cited = text = REFUSAL
        citations = []
        found = "no score" if score is None else f"a score of {score:.4g}"
        run.notes.append(f"refused: the answer has {found}, and score_above is {above:.4g}")
    run.emit("answered", answer=answer, citations=len(citations))
    update: Update = {
        "question": state["question"],
        "answer": answer,
        "cited_answer": cited,
        "citations": citations,
        "score": score,
        "notes": [*notes],
    }
    asked = state.get("human_message_id")
    if asked is None and not run.is_heard:
        return update
    text, below = text or cited, ""
    if PROTOCOL in (run.config.get("configurable") or {}):  # its clients do not see annotations
        every = add_notes(state["notes"], [*notes, *run.notes])
        below = f"\n\n{sources_and_notes(citations, every)}"
    # A message of LangChain's model cache comes with the id of its first use.
    earlier = [getattr(message, "id", None) for message in state.get("messages") or ()]
    is_streamed = bool(run.message and run.message.id and run.message.id not in earlier)
    reply_id = f"reply-to-{asked}" if asked else f"answer-{uuid4()}"
    streamed = (is_streamed and run.message) or AIMessage("", id=reply_id)
    known = streamed.response_metadata
    name = known.get("model_name") or model_name(llm)
    message = AIMessage(
        cited_content(text, citations, below),
        id=streamed.id,
        usage_metadata=_usage([*state["route"], run.costs]),
        response_metadata={**({"model_name": name} if name else {}), **STANDARD},
    )
    if run.is_heard and (citations or below or not is_streamed):
        usage, metadata = message.usage_metadata, message.response_metadata
        part = {"text": below if is_streamed else text + below, "index": 0}
        chunk = AIMessageChunk(
            content=[{**message.content[0], **part}],  # type: ignore[dict-item]
            id=message.id,
            usage_metadata=subtract_usage(usage, streamed.usage_metadata) if usage else None,
            response_metadata={k: v for k, v in metadata.items() if k not in known},
        )
        push_message(chunk, state_key=None)
    return update if asked is None else {**update, "messages": [message]}


def _usage(route: Sequence[Usage]) -> UsageMetadata | None:
    called = [s for s in route if s["model_calls"]]
    tokens = [(s["prompt_tokens"], s["generated_tokens"]) for s in called]
    reported = [(p, g) for p, g in tokens if p is not None and g is not None]
    if not reported:
        return None
    read, written = map(sum, zip(*reported, strict=True))
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def sources_and_notes(citations: Sequence[Citation], notes: Sequence[str]) -> str:
    """Return the lines below a cited answer in plain text, quoted for a model."""
    sources = [f"[{each['number']}] {_source_line(each)}" for each in citations]
    cited = ["Sources:", *sources] if sources else ["Sources: none"]
    return quoted("\n".join([*cited, *(f"Note: {one_line(note)}" for note in notes)]))


def _source_line(citation: Citation) -> str:
    title, source = title_line(citation["title"]), shown_source(citation["source"])
    where = f"{title} ({source})" if title and source else title or source or "untitled"
    page = f", page {citation['page']}" if citation.get("page") else ""
    heading = title_line(citation.get("heading"))
    return f"{where}{page}, {heading}" if heading else where + page


def cited_content(
    text: str, citations: Sequence[Citation], below: str = ""
) -> list[str | dict[str, Any]]:
    """Return a text, and what is ``below`` it, as one standard block, with its citations as
    annotations of their marks ``[n]``, or of the whole text without a mark."""
    block = blocks.TextContentBlock(type="text", text=text + below)
    if citations:
        block["annotations"] = list(_annotations(text, citations))
    return [dict(block)]


def cited_message(message: AIMessage, citations: Sequence[Citation]) -> AIMessage:
    """Return the message with the citations that its text has a mark of.

    Its provider is left out of the metadata, since integrations would send the annotations back to
    it. A message with anything but text, such as reasoning, stays as it is.
    """
    text = str(message.text)
    most = max((citation["number"] for citation in citations), default=0)
    marked = {number for mark in marks_in(text, most) for number in mark.numbers}
    cited = [citation for citation in citations if citation["number"] in marked]
    if not cited or any(block["type"] != "text" for block in message.content_blocks):
        return message
    metadata = {k: v for k, v in message.response_metadata.items() if k != "model_provider"}
    metadata |= STANDARD
    content = cited_content(text, cited)
    return message.model_copy(update={"content": content, "response_metadata": metadata})


def _annotations(text: str, citations: Sequence[Citation]) -> Iterator[blocks.Citation]:
    # All fields are there, since some providers refuse annotations that lack one.
    marks = list(marks_in(text, max(citation["number"] for citation in citations)))
    for citation in citations:
        source = shown_source(citation["source"])
        places = [(m.bracket, m.end) for m in marks if citation["number"] in m.numbers]
        for start, end in places or [(0, len(text))]:
            yield blocks.Citation(
                type="citation",
                title=title_line(citation["title"]) or source or "untitled",
                url=web_address(source),
                cited_text=citation.get("quote") or citation["text"][:MAX_EXCERPT],
                start_index=start,
                end_index=end,
            )


def citation(
    number: int,
    passage: int,
    document: Document,
    segments: Sequence[int],
    said: Sequence[str],
    question: str,
) -> Citation:
    """Return a citation of a document, with title and source sanitised for display.

    ``said`` is what was written from it: the first that its text has word for word is quoted, and
    the question chooses among several sentences that say it.
    """
    text, found = document.page_content, document.metadata
    quotes = (sentence_stating(text, each, question) for each in said)
    cited = Citation(
        number=number,
        passage=passage,
        title=title_of(document),
        source=source_of(document),
        text=text,
        quote=next(filter(None, quotes), ""),
        segments=list(segments),
    )
    if isinstance(found.get("page"), int):
        cited["page"] = found["page"]
    if isinstance(found.get("heading"), str):
        cited["heading"] = title_line(found["heading"])
    return cited


def cited_passages(
    segments: Sequence[Candidate], state: Mapping[str, Any], source: Source
) -> list[Citation]:
    """Return one citation per passage that segments were generated from, in order of appearance.

    A segment cites its passage if the critique calls it relevant (ISREL of at least 0.5). One that
    continues with the same passage without an ISREL inherits the segment's before. Silence and
    refusals cite nothing; nor is knowledge cited that CRAG's evaluator has judged irrelevant.
    """
    judged = state["judged"] if source == "knowledge" else []
    written: dict[int, list[Candidate]] = {}
    relevance: float | None = None
    for segment in segments:
        isrel, passage, text = segment["critique"].get("ISREL"), segment["passage"], segment["text"]
        if segment["step"] != "continue" or isrel is not None:
            relevance = isrel
        if passage is None or relevance is None or relevance < RELEVANT:
            continue
        is_irrelevant = judged[passage : passage + 1] == ["irrelevant"]
        if not is_irrelevant and text.strip() and not is_refusal(text):
            written.setdefault(passage, []).append(segment)
    cited = []
    for number, (passage, its) in enumerate(written.items(), start=1):
        depths, said = [s["depth"] for s in its], [s["text"] for s in its]
        document = state[source][passage]
        cited.append(citation(number, passage, document, depths, said, state["question"]))
    return cited


def cited_text(segments: Sequence[Candidate], citations: Sequence[Citation]) -> str:
    """Return the text of segments, with ``[n]`` after each that cites a passage.

    Citation marks in a segment's own text, copied from a page, become ``[3?]``.
    """
    texts = []
    for segment in segments:
        numbers = [c["number"] for c in citations if segment["depth"] in c["segments"]]
        texts.append(without_marks(segment["text"]) + "".join(f" [{n}]" for n in numbers))
    return " ".join(texts)
