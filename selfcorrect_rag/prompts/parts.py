"""Prompts that keep trusted text, untrusted text and control tokens apart.

A question, a passage or a web page may contain the characters ``[Fully supported]``. In a
:class:`Prompt` they stay characters: only a part of kind ``control`` ever becomes a control token.
"""

import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.prompt_values import PromptValue

from selfcorrect_rag.intake import valid
from selfcorrect_rag.prompts.quoting import quoted
from selfcorrect_rag.reflection import CONTROL_TOKENS

_LOOK_ALIKE = re.compile(
    "|".join(f"{re.escape(t[0])}(?=\u200b*{re.escape(t[1:])})" for t in CONTROL_TOKENS)
)


class Part(NamedTuple):
    """A part of a prompt: trusted text, untrusted text, or a control token."""

    text: str
    kind: Literal["trusted", "untrusted", "control"]
    shorten: int = 0
    """If a prompt is too long, parts are cut at their end in ascending order of this; 0 is never
    cut."""
    title: str = ""
    """The title that a passage's part begins with; empty if the passage has none."""


class Prompt(PromptValue):
    """A prompt in parts, for a :class:`~selfcorrect_rag.models.ReflectionLLM` to continue."""

    parts: tuple[Part, ...]

    def to_string(self) -> "PromptString":
        return PromptString(self)

    def to_messages(self) -> list[BaseMessage]:
        return [HumanMessage(self.to_string())]


class PromptString(str):
    """The text of a prompt, for callbacks, traces and caches, that keeps its parts.

    Look-alikes of control tokens in text get a zero-width space, so that prompts which differ only
    in what is a control token have different texts.
    """

    prompt: Prompt

    def __new__(cls, prompt: Prompt) -> "PromptString":
        string = super().__new__(
            cls,
            "".join(
                # Unlike quoting, this keeps different texts different.
                part.text if part.kind == "control" else _LOOK_ALIKE.sub("\\g<0>\u200b", part.text)
                for part in prompt.parts
            ),
        )
        string.prompt = prompt
        return string


def prompt_of(text: str) -> Prompt:
    """Return the prompt of ``text``; a string other than a :class:`PromptString` is untrusted."""
    if isinstance(text, PromptString):
        return text.prompt
    return Prompt(parts=(Part(text, "untrusted", shorten=1),))


def passage_title(document: Document) -> str:
    """Return the title of :func:`passage_text`, on one line; empty without one."""
    return str(document.metadata.get("title") or "").replace("\n", " ")


def passage_text(document: Document) -> str:
    """Return title and text in a generator's format."""
    title = passage_title(document)
    return f"{title}\n{document.page_content}" if title else document.page_content


def in_one_text(documents: Iterable[tuple[str, str]]) -> str:
    """Join titles and texts to one text, each text behind its title."""
    return " ".join(f"{title}. {text}" if title else text for title, text in documents)


def numbered_document(number: int, document: Document) -> str:
    """Return a document in tags that its text cannot close."""
    return f'<document number="{number}">\n{quoted(passage_text(document))}\n</document>'


def as_text(content: Any) -> str:
    """Return the text of a message's content, which may be a list of blocks, as valid Unicode.

    Blocks of reasoning are left out.
    """
    blocks = [content] if isinstance(content, str) else content
    texts = []
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
        elif not str(block.get("type")).startswith(("reasoning", "thinking")):
            texts.append(block.get("text"))
    return valid("\n".join(text for text in texts if text and isinstance(text, str)))
