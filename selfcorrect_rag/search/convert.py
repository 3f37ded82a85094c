"""Convert a file into sections of text and tables.

Run as a program, in a separate process, it imports nothing of this package. kreuzberg reads
office files and mail; what its version 4.10 gets wrong of Word and Excel is mended before. HTML is
read by lxml, PDF by pypdf, and the rest is text.
"""

import codecs
import io
import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

MAX_MEMORY = 4 * 2**30
SHEETS = (".csv", ".tsv", ".ods", ".xls", ".xlsx", ".xlsm", ".xltx")
MAIL = (".eml", ".msg")
_TITLED = (".epub", ".fb2", ".ipynb", ".org", ".rst")
"""Kinds whose first heading is their title; office files often have a wrong one."""
_OFFICE = ".doc .docm .docx .dotx .odp .odt .ppsx .ppt .pptm .pptx .rtf"
_FIELDS = ("text", "contents", "content", "page_content", "passage", "body")
"""Keys that hold the text of a JSON row."""
_RESERVED = ("source", "sources", "chunk", "score", "page", "heading")
"""Metadata that front matter may not set."""
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_NOT_WESTERN = re.compile(
    r"[^\W\d_][¡-ª¬-º¼-¿×÷][^\W\d_]|[\xa1-\xaa\xac-\xba\xbc-\xff]{3}|[\x80-\x9f\ufffd]"
)
"""Symbols within words, three accented letters in a row, undefined bytes: not Windows-1252."""
_MENDS: dict[str, list[tuple[bytes, Any]]] = {
    # kreuzberg keeps what was moved away, and drops tabs, hard hyphens and <>&.
    r"word/(document\d*|footnotes|endnotes)\.xml": [
        (rb"(?s)<w:moveFrom [^>]*[^>/]>.*?</w:moveFrom>", b""),
        (rb"<w:p?tab ?/>", b'<w:t xml:space="preserve"> </w:t>'),
        (rb"<w:noBreakHyphen ?/>", b"<w:t>-</w:t>"),
        (rb"&lt;", "\ue000".encode()),
        (rb"&gt;", "\ue001".encode()),
        (rb"&amp;", "\ue002".encode()),
    ],
    # It drops formulas without a stored value.
    r"xl/worksheets/\w+\.xml": [
        (
            rb'<c ([^>]*?)(?: t="\w+")?((?: [^>]*)?)><f[^>]*>([^<]+)</f>(?:<v ?/>|<v></v>)?</c>',
            rb'<c \1\2 t="inlineStr"><is><t>=\3</t></is></c>',
        )
    ],
}
_UNMENDED = {0xE000: "<", 0xE001: ">", 0xE002: "&"}
_CHROME = "nav header footer aside form script style noscript template iframe svg button dialog"
_CHROME_NAMES = re.compile(
    r"(?i)\b(?:nav|navbar|navigation|menu|sidebar|breadcrumbs?|cookie\w*|site-?header|site-?footer"
    r"|footer|banner|skip-?link|pagination|share|social|related)\b"
)
_INLINE = "a abbr b code em font i kbd mark q s small span strong sub sup u wbr"


class NotRead(Exception):
    """A file cannot be read; the message is the reason."""


class Section(NamedTuple):
    """A part of a file that is cut into passages on its own."""

    text: str
    """Prose, or one line a row of a table."""
    metadata: dict[str, Any]
    """``title``, and ``page``, ``heading``, front matter or fields of a row where known."""
    header: str | None = None
    """None for prose; for a table what each of its passages begins with, perhaps nothing."""


class Heading(NamedTuple):
    level: int
    name: str
    line: str


class Table(NamedTuple):
    header: str
    rows: list[str]


class File:
    """One file to convert, and what could not be read of it."""

    def __init__(self, path: Path, encoding: str | None, max_bytes: int) -> None:
        self.suffix, self.title = path.suffix.lower(), path.stem.replace("_", " ")
        self.encoding = encoding
        self.faults: list[str] = []
        with path.open("rb") as file:
            self.data = file.read(max_bytes + 1)
        if len(self.data) > max_bytes:
            raise NotRead(f"larger than {max_bytes / 2**20:,.0f} MiB")
        if zipfile.is_zipfile(io.BytesIO(self.data)):
            with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
                unpacked = sum(part.file_size for part in archive.infolist())
            if unpacked > max(4 * max_bytes, 2**20):
                raise NotRead(f"unpacks to more than {4 * max_bytes / 2**20:,.0f} MiB")

    def text(self, declared: str | None = None) -> str:
        """Decode the file: by its mark, a declaration, UTF-8, the option, Windows-1252."""
        marked = next((name for mark, name in _MARKS.items() if self.data.startswith(mark)), None)
        is_binary = marked is None and b"\0" in self.data
        for name in (marked, declared, None if is_binary else "utf-8", self.encoding):
            try:
                if name:
                    return self.data.decode(name)
            except (UnicodeDecodeError, LookupError) as error:
                if name == self.encoding:
                    raise NotRead(f"not {name}: give another --encoding ({error})") from error
        if is_binary:
            raise NotRead(f"binary data, and {self.suffix or 'this'} is not a kind that is read")
        text = self.data.decode("cp1252", "replace")
        if _NOT_WESTERN.search(text):
            raise NotRead(
                "neither UTF-8 nor Windows-1252: name its encoding, such as --encoding gb18030"
            )
        self.faults.append("not UTF-8: read as Windows-1252 (--encoding names another)")
        return text


def convert(path: Path, encoding: str | None, max_bytes: int) -> tuple[list[Section], list[str]]:
    """Return the sections of a file in order, and what could not be read of it."""
    try:
        file = File(path, encoding, max_bytes)
        found = [s for s in READERS.get(file.suffix, _text)(file) if s.text.strip()]
    except OSError as error:
        raise NotRead(error.strerror or str(error)) from error
    except RecursionError as error:
        raise NotRead("nested too deeply") from error
    except zipfile.BadZipFile as error:
        raise NotRead(f"broken archive: {error}") from error
    if not found:
        raise NotRead("; ".join(file.faults) or "no text in it")
    for section in found:
        section.metadata.setdefault("title", file.title)
    return found, file.faults


def _text(file: File) -> Iterator[Section]:
    yield Section(file.text(), {})


def _outlined(
    blocks: Sequence[str | Heading | Table], metadata: dict[str, Any]
) -> Iterator[Section]:
    """Yield the text and the tables under each heading.

    A heading without text stays with the section below it.
    """
    path: list[Heading] = []
    lines: list[str] = []
    has_body = False

    def section(text: str, header: str | None = None) -> Section:
        names = " > ".join(heading.name for heading in path)
        return Section(text, {**metadata, **({"heading": names} if names else {})}, header)

    for block in blocks:
        if has_body and not isinstance(block, str):
            yield section("\n".join(lines))
            lines, has_body = [], False
        if isinstance(block, Heading):
            path = [heading for heading in path if heading.level < block.level] + [block]
            lines.append(block.line)
        elif isinstance(block, Table):
            header = "\n".join([*lines, block.header]).strip()
            yield section("\n".join(block.rows) or header, header if block.rows else "")
            lines = []
        else:
            lines.append(block)
            has_body = has_body or bool(block.strip())
    yield section("\n".join(lines))


def _first_title(blocks: Sequence[Any]) -> str | None:
    """Return the first heading of the highest level."""
    headings = [block for block in blocks if isinstance(block, Heading)]
    return min(headings, key=lambda heading: heading.level).name if headings else None


def _markdown(file: File) -> Iterator[Section]:
    """Read Markdown as it stands; lines of fenced code are neither headings nor tables."""
    text, metadata = _front_matter(file.text().replace("\r\n", "\n"))
    blocks: list[str | Heading | Table] = []
    fence, lines = "", text.split("\n")
    for place, line in (numbered := enumerate(lines)):
        below = "".join(lines[place + 1 : place + 2])
        mark = re.match(r" {0,3}(`{3,}|~{3,})", line)
        heading = re.match(r" {0,3}(#{1,6})[ \t]+(.*)", line)
        name = re.sub(r"[*`]|\b_|_\b", "", heading[2].rstrip(" \t#")) if heading else ""
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        if fence or mark:
            blocks.append(line)
        elif heading and name:
            blocks.append(Heading(len(heading[1]), name, line))
        elif "|" in line and "|" in below and re.fullmatch(r"[\s:|-]*-[\s:|-]*", below):
            blocks.append(Table(f"{line}\n{below}", []))
            next(numbered)
        elif "|" in line and blocks and isinstance(blocks[-1], Table):
            blocks[-1].rows.append(line)
        else:
            blocks.append(line)
    title = str(metadata.get("title") or _first_title(blocks) or file.title)
    yield from _outlined(blocks, {**metadata, "title": title})


def _front_matter(text: str) -> tuple[str, dict[str, Any]]:
    """Return the text without YAML front matter, and the front matter as metadata."""
    found = re.match(r"\A---[ \t]*\n(.{0,20000}?\n)?---[ \t]*(?:\n|\Z)", text, re.DOTALL)
    metadata: dict[str, Any] = {}
    try:
        import yaml

        # Aliases of aliases would become gigabytes of text.
        if found and any(isinstance(e, yaml.AliasEvent) for e in yaml.parse(found[1] or "")):
            return text, {}
        for key, value in (yaml.safe_load(found[1] or "") or {}).items() if found else ():
            if isinstance(value, list) and value:
                metadata[str(key)] = list(map(str, value))
            elif value not in (None, []):
                metadata[str(key)] = value if isinstance(value, int | float) else str(value)
    except Exception:  # text that only looks like front matter
        return text, {}
    known = {key: value for key, value in metadata.items() if key not in _RESERVED}
    return (text[found.end() :], known) if found else (text, {})


def _json(file: File) -> Iterator[Section]:
    """Read one JSON value, or one a line; objects with a text, at any depth, are passages."""
    text, broken = file.text(), list[int]()
    with suppress(ValueError):
        yield from list(_json_rows(json.loads(text))) or [Section(text, {})]
        return
    for number, line in enumerate(text.splitlines(), 1):
        try:
            yield from _json_rows(json.loads(line)) if line.strip() else ()
        except ValueError:
            broken.append(number)
    more = f" and {len(broken) - 1:,} more lines are" if broken[1:] else " is"
    file.faults += [f"line {broken[0]}{more} not JSON"] if broken else []


def _json_rows(value: Any) -> Iterator[Section]:
    fields = value if isinstance(value, dict) else {}
    key = next((key for key in _FIELDS if isinstance(fields.get(key), str)), None)
    if key is not None:
        title = fields.get("title")
        yield Section(fields[key], {"title": title} if isinstance(title, str) and title else {})
        return
    for item in value if isinstance(value, list) else fields.values():
        yield from _json_rows(item)


def _pdf(file: File) -> Iterator[Section]:
    import pypdf

    try:  # broken files raise all kinds of errors out of pypdf
        reader = pypdf.PdfReader(io.BytesIO(file.data))
        pages = len(reader.pages)
        title = str((reader.metadata.title if reader.metadata else None) or file.title)
    except Exception as error:
        raise NotRead(f"broken or encrypted PDF: {error}") from error
    empty = 0
    for number in range(1, pages + 1):
        try:
            text = reader.pages[number - 1].extract_text()
        except Exception as error:
            file.faults.append(f"page {number}: {error}")
            continue
        empty += not text.strip()
        # A hyphen at a line's end, between small letters, belongs to the line and not to the word.
        text = re.sub(r"(?<=[^\W\d_])[-\u00ad\u2010] ?\n(?=[^\W\d_])(?=[^A-Z])", "", text)
        yield Section(text, {"title": title, "page": number})
    if empty:
        file.faults.append(f"{empty} of {pages} pages have no text: a scan needs OCR first")


def _html(file: File) -> Iterator[Section]:
    """Read the main content of a page; navigation and the like are left out."""
    from lxml import etree, html

    declared = re.search(rb"(?i)(?:charset|encoding)\s*=\s*[\"']?([\w.:-]+)", file.data[:4096])
    text = file.text(declared and declared[1].decode("ascii").replace("iso-8859-1", "cp1252"))
    if not text.strip():
        return
    tree = html.document_fromstring(re.sub(r"\A\s*<\?xml[^>]*>", "", text.replace("\0", " ")))
    title = _line(tree.xpath("string(//title)")) or file.title
    main = tree.xpath("//main | //article | //*[@role='main']")
    is_marked = len(main) == 1 and bool(main[0].text_content().strip())
    body = main[0] if is_marked else tree.body
    size = len(body.text_content())
    for element in body.xpath(".//*"):
        names = " ".join(element.get(key, "") for key in ("class", "id", "role"))
        is_chrome = element.tag in _CHROME.split() and not (is_marked and element.tag == "header")
        is_named = _CHROME_NAMES.search(names) and len(element.text_content()) < size / 3
        if (is_chrome or is_named) and element.getparent() is not None:
            element.drop_tree()
    etree.strip_tags(body, *_INLINE.split(), etree.Comment, etree.ProcessingInstruction)
    blocks: list[str | Heading | Table] = []
    walk = etree.iterwalk(body, events=("start", "end"))
    for event, element in walk:
        tag = element.tag if event == "start" else ""
        if tag == "table" or tag == "pre" or re.fullmatch("h[1-6]", tag):
            walk.skip_subtree()
        if tag == "table":
            rows = [
                " | ".join(_line(cell.text_content()) for cell in row.xpath("./td | ./th"))
                for row in element.xpath("./tr | ./*/tr")
            ]
            blocks.append(Table("".join(rows[:1]), rows[1:]))
        elif tag == "pre":
            blocks.append(element.text_content().strip("\n") + "\n")
        elif re.fullmatch("h[1-6]", tag):
            name = _line(element.text_content())
            blocks += [Heading(int(tag[1]), name, name)] if name else []
        elif line := _line((element.text if tag else element.tail) or ""):
            blocks.append(f"- {line}" if tag == "li" else f"{line}\n")
    yield from _outlined(blocks, {"title": title})


def _line(text: object) -> str:
    return " ".join(str(text).split())


def _office(file: File) -> Iterator[Section]:
    """Convert by kreuzberg, whose document structure has headings, tables and paragraphs."""
    import kreuzberg

    if file.suffix in (".csv", ".tsv"):
        file.data = file.text().encode()
    elif zipfile.is_zipfile(io.BytesIO(file.data)):
        _mend(file)
    options: dict[str, Any] = {"use_cache": False, "disable_ocr": True}
    config = kreuzberg.ExtractionConfig(include_document_structure=True, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{file.suffix}"
        path.write_bytes(file.data)
        try:
            result: Any = kreuzberg.extract_file_sync(str(path), config=config)
        except Exception as error:
            reason = _line(error)[:300].replace(str(path), "it")
            raise NotRead(f"broken, encrypted or of an unknown version: {reason}") from error
    if file.suffix in SHEETS:
        names = result.metadata.get("sheet_names") or []
        for table in result.tables:
            sheet = f", {names[table.page_number - 1]}" if len(names) > 1 else ""
            yield from _sheet(table.cells, {"title": file.title + sheet})
        return
    if is_mail := file.suffix in MAIL:
        file.title = result.metadata.get("subject") or file.title
        attached = ", ".join(result.metadata.get("attachments") or [])
        file.faults += [f"attachments are not read: {attached}"] if attached else []
    blocks: list[str | Heading | Table] = []
    for node in (result.document or {}).get("nodes") or [{"content": {"text": result.content}}]:
        content = node["content"]
        text = (content.get("text") or "").strip().translate(_UNMENDED)
        match content.get("node_type"):
            case "heading" if text:
                blocks.append(Heading(content.get("level") or 1, _line(text), text))
            case "table":
                rows: dict[int, list[str]] = {}
                for cell in content["grid"]["cells"]:
                    rows.setdefault(cell["row"], []).append(_line(cell["content"]))
                lines = [" | ".join(row).translate(_UNMENDED) for row in rows.values()]
                blocks.append(Table("".join(lines[:1]), lines[1:]))
            case "metadata_block":
                blocks.append("".join(f"{name}: {value}\n" for name, value in content["entries"]))
            case "list_item" if text:
                blocks.append(f"- {text}")
            case _ if text:
                blocks.append((unescape(text) if is_mail else text) + "\n")
    title = _first_title(blocks) if file.suffix in _TITLED else None
    yield from _outlined(blocks, {"title": title or file.title})


def _mend(file: File) -> None:
    out, formulas = io.BytesIO(), 0
    with zipfile.ZipFile(io.BytesIO(file.data)) as old, zipfile.ZipFile(out, "w") as new:
        for part in old.infolist():
            content = old.read(part)
            for parts, mends in _MENDS.items():
                for pattern, mended in mends if re.fullmatch(parts, part.filename) else ():
                    content, count = re.subn(pattern, mended, content)
                    formulas += count * (file.suffix in SHEETS)
            new.writestr(part.filename, content)
    file.data = out.getvalue()
    if formulas:
        file.faults.append(f"{formulas} formulas have no stored value: they stand as formulas")


def _sheet(table: Sequence[Sequence[str]], metadata: dict[str, Any]) -> Iterator[Section]:
    """Yield a table with its headings in each row: ``Name: Ada; Room: B12``.

    Rows of one cell above the headings, such as a sheet's title, are text.
    """
    rows = [
        row
        for row in ([_line(cell).removesuffix(" 00:00:00") for cell in row] for row in table)
        if any(row)
    ]
    width = max((sum(map(bool, row)) for row in rows), default=0)
    above = next((i for i, row in enumerate(rows) if width < 2 or sum(map(bool, row)) > 1), 0)
    yield Section("\n".join("".join(row) for row in rows[:above]), {**metadata})
    rows = rows[above:]
    if len(rows) < 2:
        yield Section("".join(" | ".join(row) for row in rows), {**metadata}, "")
        return
    lines = []
    for row in rows[1:]:
        cells = zip([*rows[0], *[""] * len(row)], row, strict=False)
        lines.append("; ".join(f"{name}: {cell}" if name else cell for name, cell in cells if cell))
    yield Section("\n".join(lines), {**metadata}, "")


READERS: dict[str, Callable[[File], Iterator[Section]]] = {
    **dict.fromkeys((*SHEETS, *MAIL, *_TITLED, *_OFFICE.split()), _office),
    **dict.fromkeys((".md", ".markdown", ".mdx", ".qmd", ".rmd"), _markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _html),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _json),
    ".pdf": _pdf,
}
"""By suffix; all others are read as text if they are text."""
ALONE = (_office, _html, _pdf)
"""Those that run in a separate process, where a hang or a crash costs only one file."""


def main() -> None:
    """Print what `convert` returns, or the reason why a file is not read, as a line of JSON."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    path, encoding, max_bytes = sys.argv[1:]
    try:
        answer: Any = convert(Path(path), encoding or None, int(max_bytes))
    except Exception as error:
        answer = str(error) if isinstance(error, NotRead) else f"{type(error).__name__}: {error}"
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
