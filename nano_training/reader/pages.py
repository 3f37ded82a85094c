"""Files as pages of blocks (headings, entries of lists, paragraphs, code), and the passages that a
chunker might cut from them."""

import re
import textwrap
from random import Random
from typing import Literal, NamedTuple

SHORTEST, LONGEST = 45, 200
"""Words of a passage."""


class Block(NamedTuple):
    """A part of a page that is not cut."""

    text: str
    kind: Literal["heading", "entry", "code", "text"] = "text"
    head: str = ""
    """What an entry explains: an option, parameter, variable or file."""
    body: str = ""
    """An entry's explanation."""
    section: str = ""
    """The heading above."""
    gap: str = "\n\n"
    """What stands before it."""


class Page(NamedTuple):
    """A file."""

    name: str
    """The tool, package or module that it is about."""
    title: str
    blocks: list[Block]


class Cut(NamedTuple):
    """A passage: neighbouring blocks of a page."""

    start: int
    stop: int
    text: str


def cut(page: Page, first: int, last: int, random: Random) -> Cut | None:
    """A passage with the blocks from ``first`` to ``last`` and some of their neighbours; None where
    they are too long."""
    blocks = page.blocks
    start, stop = first, last + 1
    words = sum(len(block.text.split()) for block in blocks[start:stop])
    if words > LONGEST:
        return None
    wanted = random.randint(SHORTEST, LONGEST - 40)
    before = random.random()
    while words < wanted:
        earlier = start > 0 and (random.random() < before or stop == len(blocks))
        if not earlier and stop == len(blocks):
            break
        added = blocks[start - 1] if earlier else blocks[stop]
        words += len(added.text.split())
        if words > LONGEST:
            break
        start, stop = (start - 1, stop) if earlier else (start, stop + 1)
    while stop - 1 > last and blocks[stop - 1].kind == "heading":
        stop -= 1
    text = blocks[start].text + "".join(
        block.gap + block.text for block in blocks[start + 1 : stop]
    )
    return Cut(start, stop, text)


def located(answer: str, passage: str) -> str:
    """The answer as it stands in the passage, whose white space may differ; empty where it does
    not."""
    if not answer.strip():
        return ""
    words = r"\s+".join(map(re.escape, answer.split()))
    edges = (r"(?<![\w-])" if answer[0].isalnum() or answer[0] == "-" else "") + words
    found = re.search(
        edges + (r"(?![\w-]*\w)" if answer[-1].isalnum() or answer[-1] == "-" else ""), passage
    )
    return found[0] if found else ""


def entry(head: str, body: str, section: str = "", *, indent: str = "       ") -> Block:
    """An entry, its body below its head."""
    return Block(f"{head}\n{textwrap.indent(body, indent)}", "entry", head, body, section)


BADGE = re.compile(r"\[?!\[|^\.\. (?:image|\|)|img\.shields|^\s*<|badge|^:target:|^\[[^\]]+\]: ")
HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$")
UNDERLINE = re.compile(r"^([=\-~^\"'*+`#])\1{2,}\s*$")
ITEM = re.compile(r"^\s{0,6}(?:[-*+•]|\d{1,2}[.)]) +")
DEFINITION = re.compile(
    r"^\s{0,6}[-*+•] +(?P<head>\*\*[^*`]{2,40}\*\*|\*\*`[^`]+`\*\*|`{1,2}[^`]{2,40}`{1,2}|"
    r"-{1,2}[\w-]+(?:[ =,][\w<>,= -]{1,30})?)(?: \([^)]*\))?"
    r"(?:\s*:|\s+[-–—]+|\*\*:)\s+(?P<body>\S.*)$",
    re.DOTALL,
)
PROMPT = re.compile(r"^\s*(?:[$>%#] )")


def text_page(name: str, title: str, text: str) -> Page:
    """A README, changelog or other text in Markdown, reStructuredText or none."""
    blocks: list[Block] = []
    section = ""
    for chunk in _chunks(text.expandtabs(4).replace("\r", "")):
        lines = chunk.split("\n")
        heading = HEADING.match(lines[0])
        if heading or (len(lines) == 2 and UNDERLINE.match(lines[1])):
            section = (heading[2] if heading else lines[0]).strip("*`_ ")
            blocks.append(Block(chunk, "heading", section=section))
        elif lines[0].startswith(("```", "~~~", ".. code", "::code")) or _is_code(lines):
            blocks.append(Block(chunk, "code", section=section))
        elif ITEM.match(lines[0]):
            for number, item in enumerate(_items(lines)):
                found = DEFINITION.match(item)
                gap = "\n" if number else "\n\n"
                head, body = (found["head"].strip("*`"), found["body"]) if found else ("", "")
                kind: Literal["entry", "text"] = "entry" if found else "text"
                blocks.append(Block(item, kind, head, body, section, gap))
        else:
            blocks.append(Block(chunk, section=section))
    return Page(name, title, blocks)


def _is_code(lines: list[str]) -> bool:
    return all(line.startswith("    ") or not line for line in lines) or bool(
        PROMPT.match(lines[0]) and not HEADING.match(lines[0])
    )


def _chunks(text: str) -> list[str]:
    """Paragraphs; fenced code stays in one, headings stand alone, badges and pictures fall."""
    chunks: list[str] = []
    lines: list[str] = []
    fence = ""

    def close() -> None:
        if any(line.strip() for line in lines):
            chunks.append("\n".join(lines).strip("\n"))
        lines.clear()

    for line in text.split("\n"):
        line = line.rstrip()
        if fence:
            lines.append(line)
            if line.strip() == fence:
                fence = ""
                close()
        elif line.lstrip().startswith(("```", "~~~")):
            close()
            lines.append(line)
            fence = line.strip()[:3]
        elif not line or BADGE.search(line):
            close()
        elif HEADING.match(line):
            close()
            lines.append(line)
            close()
        elif UNDERLINE.match(line) and len(lines) == 1 and not ITEM.match(lines[0]):
            lines.append(line)
            close()
        else:
            lines.append(line)
    close()
    return chunks


def _items(lines: list[str]) -> list[str]:
    items: list[list[str]] = []
    for line in lines:
        if ITEM.match(line) or not items:
            items.append([])
        items[-1].append(line)
    return ["\n".join(item) for item in items]
