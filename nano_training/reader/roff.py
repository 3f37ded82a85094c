"""Manual pages as text: the part of roff that most of them are written in."""

import re
import textwrap

from nano_training.reader.pages import Block, Page, entry

SPECIAL = {
    "lq": '"',
    "rq": '"',
    "oq": "'",
    "cq": "'",
    "aq": "'",
    "dq": '"',
    "em": "—",
    "en": "–",
    "hy": "-",
    "mi": "-",
    "bu": "•",
    "co": "©",
    "rg": "®",
    "tm": "™",
    "ha": "^",
    "ti": "~",
    "ga": "`",
    "rs": "\\",
    "sl": "/",
    "ua": "^",
    "pl": "+",
    "mu": "x",
    "<=": "<=",
    ">=": ">=",
    "->": "->",
    "Fo": "«",
    "Fc": "»",
    "sq": "'",
    "at": "@",
    "sh": "#",
    "Do": "$",
    "or": "|",
    "ba": "|",
    "la": "<",
    "ra": ">",
    "lB": "[",
    "rB": "]",
    "lC": "{",
    "rC": "}",
}
STRINGS = {"lq": '"', "rq": '"', "L": '"', "R": '"', "C": "", "-": "-", "(Aq": "'", "Aq": "'"}
ALTERNATE = {"BR", "RB", "IR", "RI", "BI", "IB"}
ONE_FONT = {"B", "I", "SM", "SB", "R"}
PARAGRAPH = {"PP", "LP", "P", "sp", "Sp", "br", "SP"}
SKIPPED_BLOCKS = {"de": "..", "TS": ".TE", "ig": "..", "de1": ".."}
CODE_STARTS, CODE_ENDS = {"EX", "nf", "Vb"}, {"EE", "fi", "Ve"}
BULLETS = {"•", "—", "·", "*", "o", "-", "+", "", "1.", "2.", "3.", "4.", "5."}


def unescaped(text: str) -> str:
    """Text without roff's escapes."""
    text = re.sub(r"\\\".*", "", text)
    text = re.sub(r"\\f(?:\(..|\[[^\]]*\]|.)", "", text)
    text = re.sub(r"\\s(?:[-+]?\d|\(..|\[[^\]]*\])", "", text)
    text = re.sub(r"\\[mFk](?:\(..|\[[^\]]*\]|.)", "", text)
    text = re.sub(r"\\[XhvwlLoZ]'[^']*'", "", text)
    text = re.sub(r"\\\*(?:\((..)|\[([^\]]*)\]|(.))", _string, text)
    text = re.sub(r"\\(?:\((..)|\[([^\]]*)\])", _special, text)
    text = re.sub(r"\\[ ~0]", " ", text).replace(r"\-", "-").replace(r"\'", "'")
    text = text.replace(r"\(", "(").replace(r"\`", "`").replace(r"\.", ".")
    return re.sub(r"\\[&/,:%|^c)p!]", "", text).replace("\\e", "\\")


def _string(found: re.Match[str]) -> str:
    return STRINGS.get(found[1] or found[2] or found[3], "")


def _special(found: re.Match[str]) -> str:
    name = found[1] or found[2] or ""
    if re.fullmatch(r"u[0-9A-F]{4}", name):
        return chr(int(name[1:], 16))
    return SPECIAL.get(name, "")


def _arguments(text: str) -> list[str]:
    found = re.findall(r'"((?:[^"]|"")*)"?|((?:\\ |\S)+)', text)
    return [unescaped(quoted or bare) for quoted, bare in found]


class _Reader:
    """The state of the conversion of one page."""

    def __init__(self, width: int) -> None:
        self.blocks: list[Block] = []
        self._width = width
        self._section = ""
        self._text: list[str] = []
        self._code: list[str] | None = None
        self._head: str | None = None
        """None outside entries; empty while an entry's head is awaited."""
        self._names = ""
        self._body: list[str] = []
        self._nested = 0

    @property
    def awaits_head(self) -> bool:
        """Whether the next line of text is an entry's head."""
        return self._head == ""

    def begin_tag(self) -> None:
        """One more name of the entry is the next line of text."""
        self._names, self._head = f"{self._head}, ", ""

    def text(self, line: str) -> None:
        """A line of running text."""
        if self._code is not None:
            self._code.append(line.rstrip())
        elif line.strip():
            if self._head == "":
                self._head = self._names + " ".join(line.split())
                self._names = ""
            else:
                self._text.append(line.strip())

    def paragraph(self) -> None:
        """The end of a paragraph."""
        if self._code is not None or not self._text:
            return
        text = " ".join(" ".join(self._text).split())
        self._text = []
        if self._head:
            self._body.append(text)
        elif text.startswith("$ "):
            self.blocks.append(
                Block(re.sub(r" \\\\? +(?=-)", " ", text), "code", section=self._section)
            )
        elif not re.fullmatch(r"\d+\.|•", text):
            self.blocks.append(Block(self._filled(text), section=self._section))

    def end_entry(self) -> None:
        """The end of an entry, if one is open."""
        self.paragraph()
        if self._head and self._body:
            self.blocks.append(self._entry())
        elif self._head and self._head not in BULLETS:
            self.blocks.append(Block(self._filled(self._head), section=self._section))
        self._head, self._body = None, []

    def _entry(self) -> Block:
        assert self._head
        if self._head in BULLETS:
            return Block(f"{self._head} {' '.join(self._body)}".strip(), section=self._section)
        body = "\n\n".join(map(self._filled, self._body))
        return entry(self._head, body, self._section)

    def _filled(self, text: str) -> str:
        return (
            textwrap.fill(text, self._width, break_long_words=False, break_on_hyphens=False)
            if self._width
            else text
        )

    def end_top_entry(self) -> None:
        """The end of an entry by a paragraph that is not indented."""
        if not self._nested:
            self.end_entry()

    def begin_entry(self, head: str) -> None:
        """The start of an entry; an empty head is the next line of text. Heads that follow each
        other are names of one entry."""
        self.paragraph()
        if self._head and not self._body and self._head not in BULLETS:
            self._names = f"{self._head}, "
            head = self._names + head if head else ""
        self.end_entry()
        self._head = head

    def heading(self, text: str) -> None:
        """A section."""
        self.end_code()
        self.end_entry()
        self._section, self._nested = text, 0
        self.blocks.append(Block(text, "heading", section=text))

    def begin_code(self) -> None:
        """The start of lines that stay as they are."""
        self.paragraph()
        self._code = []

    def end_code(self) -> None:
        """The end of such lines."""
        lines, self._code = self._code, None
        if lines and any(lines):
            text = "\n".join(lines).strip("\n")
            if self._head and self._body:
                self._body.append(text)
            else:
                self.blocks.append(Block(text, "code", section=self._section))

    def begin_indented(self) -> None:
        """Indented text: the body of an entry whose head is the last paragraph, as DocBook does."""
        self._nested += 1
        if self._head is None and self._text and len(self._text) < 4:
            head = " ".join(self._text)
            if len(head.split()) <= 8 and not head.endswith((".", ":")):
                self._text = []
                self._head = head
                self._nested = 1
                return
        self.paragraph()

    def end_indented(self) -> None:
        """The end of indented text."""
        self._nested -= 1
        if self._nested <= 0:
            self.end_entry()
        else:
            self.paragraph()


def manual_page(name: str, section: str, source: str, *, width: int = 0) -> Page | None:
    """A page from its roff; None where it only refers to another, or is written in mdoc."""
    if re.search(r"^\.(?:so|Dd) ", source[:4000], re.MULTILINE):
        return None
    reader = _Reader(width)
    skipped_to = ""
    for line in source.split("\n"):
        found = re.match(r"^[.'] *([A-Za-z]\w*|\\\")? *(.*)$", line)
        if skipped_to:
            skipped_to = "" if line.startswith(skipped_to) else skipped_to
        elif not line.strip() or re.match(r"\\[{}]", line):
            if not reader.awaits_head:
                reader.paragraph()
        elif not found:
            reader.text(unescaped(line))
        elif found[1] in SKIPPED_BLOCKS:
            skipped_to = SKIPPED_BLOCKS[found[1]]
        else:
            _apply(reader, found[1] or "", found[2])
    reader.end_code()
    reader.end_entry()
    return Page(name, f"{name}({section})", reader.blocks)


def _apply(reader: _Reader, macro: str, rest: str) -> None:
    """A macro of the man package."""
    if macro in ("SH", "SS"):
        reader.heading(" ".join(_arguments(rest)))
    elif macro in ALTERNATE:
        reader.text("".join(_arguments(rest)))
    elif macro in ONE_FONT:
        reader.text(" ".join(_arguments(rest)))
    elif macro in ("UR", "MT", "URL", "MTO"):
        reader.text(" ".join(_arguments(rest)[:2]).strip())
    elif macro in CODE_STARTS:
        reader.begin_code()
    elif macro in CODE_ENDS:
        reader.end_code()
    elif macro == "TP":
        reader.begin_entry("")
    elif macro == "TQ":
        reader.begin_tag()
    elif macro == "IP":
        _indented_paragraph(reader, _arguments(rest))
    elif macro == "HP":
        reader.begin_entry("")
    elif macro == "RS":
        reader.begin_indented()
    elif macro == "RE":
        reader.end_indented()
    elif macro in PARAGRAPH:
        reader.paragraph()
        if macro in ("PP", "LP", "P"):
            reader.end_top_entry()


def _indented_paragraph(reader: _Reader, arguments: list[str]) -> None:
    tag = arguments[0].strip() if arguments else ""
    if tag:
        reader.begin_entry(tag)
    else:
        reader.paragraph()
