"""Citations in the form of LangChain's standard content blocks."""

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.messages import content as blocks

from selfcorrect_rag.prompts.marks import marks_in
from selfcorrect_rag.state.common import Citation
from selfcorrect_rag.state.sources import shown_source, title_line, web_address

LONGEST_EXCERPT = 400
"""Maximum characters of a cited text that is not a quote; the whole is in ``citations``."""
STANDARD = {"output_version": "v1"}
"""The metadata of a message whose content is standard blocks: integrations convert them for their
provider."""


def cited_content(text: str, citations: Sequence[Citation]) -> list[str | dict[str, Any]]:
    """A text as one standard block, with its citations as annotations.

    An annotation spans a mark ``[n]`` of the text, or all of it for a citation without a mark.
    ``url`` is the first web address of the source, empty without one. ``cited_text`` is the quote,
    or how the cited text begins.
    """
    block = blocks.TextContentBlock(type="text", text=text)
    if citations:
        block["annotations"] = list(_annotations(text, citations))
    return [dict(block)]


def cited_message(message: AIMessage, citations: Sequence[Citation]) -> AIMessage:
    """The message with the citations that its text has a mark of; itself if there are none.

    Its provider is left out of the metadata: integrations send the annotations of their own
    provider back to it, which knows nothing of these. A message with anything but text, such as
    reasoning, stays as it is.
    """
    text = str(message.text)
    most = max((citation["number"] for citation in citations), default=0)
    marked = {number for mark in marks_in(text, most) for number in mark.numbers}
    cited = [citation for citation in citations if citation["number"] in marked]
    if not cited or any(block["type"] != "text" for block in message.content_blocks):
        return message
    metadata = {k: v for k, v in message.response_metadata.items() if k != "model_provider"}
    content = cited_content(text, cited)
    return message.model_copy(
        update={"content": content, "response_metadata": {**metadata, **STANDARD}}
    )


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
                cited_text=citation.get("quote") or citation["text"][:LONGEST_EXCERPT],
                start_index=start,
                end_index=end,
            )
