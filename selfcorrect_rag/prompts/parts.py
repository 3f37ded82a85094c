"""Prompts in parts, the papers' tables, and the quoting of untrusted text.

A question, a passage or a web page may contain the characters ``[Fully supported]``. In a
:class:`Prompt` they stay characters: only a part of kind ``control`` ever becomes a control token.
Servers and tokenizers turn marks such as ``<|im_end|>`` or ``[INST]`` into control tokens anywhere
in a text, and a ``</document>`` in a passage seems to end it: every prompt applies :func:`quoted`
once to untrusted text, as the last step.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.prompt_values import PromptValue

from selfcorrect_rag.intake import valid
from selfcorrect_rag.reflection import CONTROL_TOKENS

_TABLES = (Path(__file__).parent / "tables.txt").read_text(encoding="utf-8")
TABLES = dict(re.findall(r"(?sm)^=== (\w+)\n(.*?)\n(?==== |\Z)", _TABLES))
"""The papers' prompt templates, word for word; a name has its paper and table."""


def entries(table: str) -> dict[str, str]:
    """Return the lines of a table by the names that they begin with."""
    return dict(line.split(": ", 1) for line in TABLES[table].splitlines())


# Prompts in parts


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


_LOOK_ALIKE = re.compile(
    "|".join(f"{re.escape(t[0])}(?=\u200b*{re.escape(t[1:])})" for t in CONTROL_TOKENS)
)


class PromptString(str):
    """The text of a prompt, for callbacks, traces and caches, that keeps its parts.

    Look-alikes of control tokens in text get a zero-width space. Unlike quoting, this keeps
    prompts different that differ only in what is a control token.
    """

    prompt: Prompt

    def __new__(cls, prompt: Prompt) -> "PromptString":
        texts = (
            part.text if part.kind == "control" else _LOOK_ALIKE.sub("\\g<0>\u200b", part.text)
            for part in prompt.parts
        )
        string = super().__new__(cls, "".join(texts))
        string.prompt = prompt
        return string

    def __getnewargs__(self) -> tuple[Prompt]:  # type: ignore[override]
        return (self.prompt,)  # for copies and pickles


def prompt_of(text: str) -> Prompt:
    """Return the prompt of ``text``; a string other than a :class:`PromptString` is untrusted."""
    if isinstance(text, PromptString):
        return text.prompt
    return Prompt(parts=(Part(text, "untrusted", shorten=1),))


# Documents and messages as text


def passage_title(document: Document) -> str:
    """Return the title of :func:`passage_text`, on one line; empty without one."""
    return str(document.metadata.get("title") or "").replace("\n", " ")


def passage_text(document: Document) -> str:
    """Return title and text in a generator's format."""
    title = passage_title(document)
    return f"{title}\n{document.page_content}" if title else document.page_content


def in_one_text(documents: Iterable[tuple[str, str]]) -> str:
    """Return titles and texts joined to one text, each text behind its title."""
    return " ".join(f"{title}. {text}" if title else text for title, text in documents)


def numbered_document(number: int, document: Document) -> str:
    """Return a document in tags that its text cannot close."""
    return in_tags(passage_text(document), f' number="{number}"')


def in_tags(text: str, attributes: str = "") -> str:
    """Return ``text``, quoted, between ``<document>`` and ``</document>``."""
    return f"<document{attributes}>\n{quoted(text)}\n</document>"


def one_line(text: str) -> str:
    """Return ``text``, quoted, on one line."""
    return quoted(" ".join(text.split()))


def as_text(content: Any, between: str = "\n") -> str:
    """Return the text of a message's content, which may be a list of blocks, as valid Unicode;
    blocks of reasoning are left out. A model's blocks follow each other with nothing between."""
    texts = []
    for block in [content] if isinstance(content, str) else content:
        if isinstance(block, str):
            texts.append(block)
        elif not str(block.get("type")).startswith(("reasoning", "thinking")):
            texts.append(block.get("text"))
    return valid(between.join(text for text in texts if text and isinstance(text, str)))


# Quoting

FAMILIES: Mapping[str, tuple[str, ...]] = {
    family: tuple(tokens.split()) for family, tokens in entries("special_tokens").items()
}
"""Special tokens of the common chat templates, by model family. A number in a token stands for any
number. ``<|name|>`` is a mark whatever its name."""
LOOK_ALIKES: Mapping[str, str] = {"<": "\u2039", ">": "\u203a", "[": "\u2045"}
"""Replacements of a mark's first character, which no Unicode normalisation undoes."""
OPENINGS = "<\uff1c\ufe64\u226e>\uff1e\ufe65\u226f[\uff3b\ufe47"
"""Every character that a tokenizer may normalise to the first one of a mark."""

_OPENING = re.compile(f"[{re.escape(OPENINGS)}]")
# Possible marks in folded text. Each alternative ends where the next one may begin, so that each
# character is scanned only a few times.
_POSSIBLE = re.compile(
    r"<(?=\s*+/?\s*+document\b)|<(?=(?P<angle>[^<>]{1,64}>))|<(?=(?P<double><[^<>]{1,16}>>))"
    r"|\[(?=(?P<square>[^\[\]]{1,64}\]))|>(?=(?P<reversed>>[^<>]{1,32}<<))"
)
_BARS = re.compile(r"<\|[^\s<>]+\|>")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f]")
_INVISIBLE = "\ufffd\u115f\u1160\u3164\uffa0\u2800"


def quoted(text: str) -> str:
    """Return ``text`` with a look-alike in place of the first character of every mark.

    Marks are those of :data:`FAMILIES`, reflection tokens, and what prompts use themselves:
    ``<document``, ``<paragraph>`` and Search-R1's tags. They are also found in another case, in
    other forms of their letters, and with invisible characters inside, since tokenizers may
    normalise. Length and all other characters are unchanged. Idempotent, in time linear in the
    text.
    """
    if not _OPENING.search(text):
        return text
    opened = [found.start() for found in _POSSIBLE.finditer(_folded(text)) if _is_mark(found)]
    if not opened:
        return text
    characters = list(text)
    places = [place for place, character in enumerate(text) for _ in _fold(character)]
    for place in map(places.__getitem__, opened):
        characters[place] = LOOK_ALIKES[_fold(characters[place])]
    return "".join(characters)


def _is_mark(found: re.Match[str]) -> bool:
    if found.lastgroup is None:  # <document
        return True
    name = _named(found[0] + found[found.lastgroup])
    return name.replace(" ", "") in _OWN or name in _TEMPLATES or bool(_BARS.fullmatch(name))


def _named(folded: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\d+", "0", folded))


def _folded(text: str) -> str:
    """Return the text under the strongest normalisation of any tokenizer."""
    if text.isascii() and not _CONTROLS.search(text):
        return text.lower()
    return "".join(map(_fold, text))


@cache
def _fold(character: str) -> str:
    """Return a character without case and accents, in one form; nothing for an invisible one."""
    return "".join(
        " " if part == "\u2581" else part
        for part in unicodedata.normalize("NFKD", character).casefold()
        if part in "\t\n\r" or not (unicodedata.category(part)[0] in "CM" or part in _INVISIBLE)
    )


_TEMPLATES = {_named(_folded(token)) for tokens in FAMILIES.values() for token in tokens}
_SEARCH_R1 = [f"<{end}{tag}>" for tag in ("search", "information", "answer") for end in ("", "/")]
_OWN = {_named(_folded(token)).replace(" ", "") for token in [*CONTROL_TOKENS, *_SEARCH_R1]}
