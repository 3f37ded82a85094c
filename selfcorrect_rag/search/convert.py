"""Convert one file into sections of text and tables.

Runs as a process of its own (`Converter` in documents.py), so that a file that hangs, crashes or
takes too much memory costs only itself. Imports nothing of this package but plain helpers.

Word, PowerPoint, old Excel, OpenDocument, EPUB, RTF, reStructuredText, notebooks and the rest of
`KREUZBERG` go through kreuzberg, PDF through pypdf (page numbers), .xlsx through openpyxl (empty
cells and formulas), mail, CSV and JSON through the standard library.
"""

import codecs
import csv
import datetime
import email
import email.policy
import gzip
import io
import json
import os
import re
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.search.json_rows import passages, row_passages

KREUZBERG = frozenset(
    [
        ".doc",
        ".docm",
        ".docx",
        ".dotx",
        ".epub",
        ".fb2",
        ".ipynb",
        ".msg",
        ".odp",
        ".ods",
        ".odt",
        ".org",
        ".ppsx",
        ".ppt",
        ".pptm",
        ".pptx",
        ".rst",
        ".rtf",
        ".tex",
        ".typ",
        ".xls",
    ]
)
_TITLED = frozenset((".epub", ".fb2", ".ipynb", ".org", ".rst", ".tex", ".typ"))
"""Kinds whose first heading is their title; office files often have a wrong one."""
RESERVED = frozenset(("source", "sources", "chunk", "page", "heading", "title", "score", "id"))
"""Metadata that a file may not set."""
MAX_TITLE = 200
MAX_COLUMNS = 1_000
MAX_MEMORY = 4 * 2**30
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NOT_WESTERN = re.compile(
    r"[^\W\d_][¡-ª¬-º¼-¿×÷][^\W\d_]|[\xa1-\xaa\xac-\xba\xbc-\xff]{3}|[\x80-\x9f\ufffd]"
)
"""Symbols within words, three accented letters in a row, undefined bytes: not Windows-1252."""
_CHROME = "nav|header|footer|aside|form|script|style|noscript|template|iframe|svg|button|dialog"
_CHROME_NAMES = re.compile(
    r"(?i)\b(?:nav|navbar|navigation|menu|sidebar|breadcrumbs?|cookie\w*|site-?header|site-?footer"
    r"|footer|banner|skip-?link|pagination|share|social|related)\b"
)


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


class File:
    """One file to convert, and what could not be read of it."""

    def __init__(self, path: Path, encoding: str | None, max_bytes: int) -> None:
        self.name = path.name.removesuffix(".gz") if path.suffix == ".gz" else path.name
        self.suffix = Path(self.name).suffix.lower()
        self.encoding, self.max_bytes = encoding, max_bytes
        self.title = Path(self.name).stem.replace("_", " ")
        self.faults: list[str] = []
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            self.data = file.read(max_bytes + 1)
        if len(self.data) > max_bytes:
            raise NotRead(f"larger than {max_bytes / 2**20:,.0f} MiB")

    def text(self, declared: str | None = None) -> str:
        """Decode the file: by its byte order mark, the option, a declaration, UTF-8, Windows-1252.

        Raises:
            NotRead: it is binary, or its encoding is unknown.
        """
        marked = next((name for mark, name in _MARKS if self.data.startswith(mark)), None)
        name = marked or self.encoding or declared
        if name:
            try:
                return self.data.decode(name)
            except (UnicodeDecodeError, LookupError) as error:
                if name != declared:
                    raise NotRead(f"not {name}: give another --encoding ({error})") from error
        if b"\0" in self.data:
            raise NotRead(f"binary data, and {self.suffix or 'this'} is not a kind that is read")
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError:
            text = self.data.decode("cp1252", "replace")
        if _NOT_WESTERN.search(text):
            raise NotRead(
                "neither UTF-8 nor Windows-1252: name its encoding, such as --encoding gb18030"
            )
        self.faults.append("not UTF-8: read as Windows-1252 (--encoding names another)")
        return text


def sections(file: File) -> Iterator[Section]:
    """Yield the sections of a file in order.

    Raises:
        NotRead: nothing in it can be read.
    """
    if zipfile.is_zipfile(io.BytesIO(file.data)):
        _check_archive(file)
    read = _READERS.get(file.suffix) or (_kreuzberg if file.suffix in KREUZBERG else _text)
    found = 0
    for section in read(file):
        if section.text.strip():
            found += 1
            section.metadata.setdefault("title", file.title)
            yield section
    if not found:
        raise NotRead("; ".join(file.faults) or "no text in it")


def _check_archive(file: File) -> None:
    """Refuse archives that unpack to more than the limit."""
    with zipfile.ZipFile(io.BytesIO(file.data)) as archive:
        if sum(part.file_size for part in archive.infolist()) > max(4 * file.max_bytes, 2**20):
            raise NotRead(f"unpacks to more than {4 * file.max_bytes / 2**20:,.0f} MiB")
    if file.suffix == ".zip":
        raise NotRead("an archive: unpack it first")


def _text(file: File) -> Iterator[Section]:
    yield Section(file.text(), {})


def _markdown(file: File) -> Iterator[Section]:
    """Read Markdown as it stands; lines of fenced code are neither headings nor tables."""
    text, metadata = _front_matter(file.text().replace("\r\n", "\n"))
    outline, fence, place = Outline(), "", 0
    lines = text.split("\n")
    while place < len(lines):
        line, below = lines[place], "".join(lines[place + 1 : place + 2])
        place += 1
        mark = re.match(r" {0,3}(`{3,}|~{3,})", line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        atx = re.match(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t#]*$", line)
        setext = re.match(r" {0,3}(=+|-{2,})[ \t]*$", below) and re.match(r" {0,3}[^\s|>*+-]", line)
        if fence or mark:
            outline.add(line)
        elif atx and atx[2]:
            outline.open(len(atx[1]), atx[2], line)
        elif setext:
            outline.open(1 if "=" in below else 2, line.strip(), f"{line}\n{below}")
            place += 1
        elif "|" in line and "|" in below and re.fullmatch(r"[\s:|-]*-[\s:|-]*", below):
            end = next((i for i in range(place, len(lines)) if "|" not in lines[i]), len(lines))
            outline.table(f"{line}\n{below}", lines[place + 1 : end])
            place = end
        else:
            outline.add(line)
    title = metadata.pop("title", None) or outline.title or file.title
    for section in outline.sections():
        yield section._replace(metadata={**metadata, "title": str(title), **section.metadata})


def _front_matter(text: str) -> tuple[str, dict[str, Any]]:
    """Return the text without YAML or TOML front matter, and the front matter as metadata."""
    found = re.match(r"\A(---|\+\+\+)[ \t]*\n(.{0,20000}?\n)?\1[ \t]*(?:\n|\Z)", text, re.DOTALL)
    if not found:
        return text, {}
    try:
        if found[1] == "+++":
            fields: Any = tomllib.loads(found[2] or "")
        else:
            import yaml

            fields = yaml.safe_load(found[2] or "")
    except Exception:  # text that only looks like front matter
        return text, {}
    if not isinstance(fields, dict | None):
        return text, {}
    kept = {
        str(key): _plain(value)
        for key, value in (fields or {}).items()
        if value is not None and (key == "title" or key not in RESERVED)
    }
    return text[found.end() :], kept


def _plain(value: Any) -> Any:
    is_texts = isinstance(value, list) and value and all(isinstance(item, str) for item in value)
    if is_texts or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime.date):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False, default=str)


class Outline:
    """Text and tables under their headings."""

    title: str | None = None
    """The first heading of the highest level."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []
        self._lines: list[str] = []
        self._has_body = False
        self._sections: list[Section] = []
        self._top = 7

    def open(self, level: int, name: str, line: str) -> None:
        """Begin a section; a heading without text stays with the section below it."""
        if self._has_body:
            self._end()
        name = re.sub(r"[*`]|\b_|_\b", "", name)
        self._path = [known for known in self._path if known[0] < level] + [(level, name)]
        self._lines.append(line)
        if level < self._top:
            self._top, self.title = level, name

    def add(self, line: str) -> None:
        """Add text to the section."""
        self._lines.append(line)
        self._has_body = self._has_body or bool(line.strip())

    def table(self, header: str, rows: list[str]) -> None:
        """Add a table, as a section of its own."""
        if self._has_body:
            self._end()
        above, self._lines = self._lines, []
        self._end("\n".join([*above, header]).strip() if rows else "", rows or [*above, header])

    def sections(self) -> list[Section]:
        """Return all sections."""
        self._end()
        return self._sections

    def _end(self, header: str | None = None, rows: list[str] | None = None) -> None:
        heading = {"heading": " > ".join(name for _, name in self._path)} if self._path else {}
        text = "\n".join(self._lines if rows is None else rows)
        self._sections.append(Section(text, heading, header))
        self._lines, self._has_body = [], False


def _kreuzberg(file: File) -> Iterator[Section]:
    """Convert by kreuzberg, whose document structure has headings, tables and paragraphs."""
    import kreuzberg

    is_word = file.suffix in (".docx", ".docm", ".dotx")
    options: dict[str, Any] = {"use_cache": False, "disable_ocr": True}
    config = kreuzberg.ExtractionConfig(include_document_structure=True, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{file.suffix}"
        path.write_bytes(_mended_word(file.data) if is_word else file.data)
        try:
            result = kreuzberg.extract_file_sync(str(path), config=config)
        except Exception as error:
            reason = " ".join(str(error).split())[:300].replace(str(path), "it")
            raise NotRead(f"broken, encrypted or of an unknown version: {reason}") from error
    if file.suffix in (".xls", ".ods"):
        for table in result.tables:
            yield from _sheet(table.cells, {})
        return
    outline = Outline()
    document: Any = result.document or {}
    for node in document.get("nodes") or [{"content": {"text": result.content}}]:
        content = node["content"]
        text = (content.get("text") or "").strip().translate(_MARKS_BACK)
        if content.get("node_type") == "heading" and text:
            outline.open(content.get("level") or 1, " ".join(text.split()), text)
        elif content.get("node_type") == "table":
            rows: dict[int, list[str]] = {}
            for cell in content["grid"]["cells"]:
                rows.setdefault(cell["row"], []).append(" ".join(cell["content"].split()))
            header, *lines = [" | ".join(row).translate(_MARKS_BACK) for row in rows.values()] or [
                ""
            ]
            outline.table(header, lines)
        elif text:
            outline.add(f"- {text}" if content.get("node_type") == "list_item" else f"{text}\n")
    named = {"title": outline.title} if outline.title and file.suffix in _TITLED else {}
    for section in outline.sections():
        yield section._replace(metadata={**named, **section.metadata})


_MARKS_BACK = {0xE000: "<", 0xE001: ">", 0xE002: "&"}
_MARKS_THERE = str.maketrans("<>&", "\ue000\ue001\ue002")
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def _mended_word(data: bytes) -> bytes:
    """Return a Word file without what kreuzberg 4.10 gets wrong.

    It drops ``<``, ``>`` and ``&``, tabs and hard hyphens, and keeps text that was moved away.
    """
    from lxml import etree

    out = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
            for part in old.infolist():
                content = old.read(part)
                if re.fullmatch(r"word/(document\d*|footnotes|endnotes)\.xml", part.filename):
                    tree = etree.fromstring(content, etree.XMLParser(resolve_entities=False))
                    etree.strip_elements(tree, f"{_WORD}moveFrom", f"{_WORD}del", with_tail=False)
                    for tag, text in (("tab", " "), ("noBreakHyphen", "-"), ("ptab", " ")):
                        for element in tree.iter(f"{_WORD}{tag}"):
                            if element.getparent().tag == f"{_WORD}r":
                                element.tag, element.text = f"{_WORD}t", text
                                element.set(
                                    "{http://www.w3.org/XML/1998/namespace}space", "preserve"
                                )
                    for element in tree.iter(f"{_WORD}t"):
                        element.text = (element.text or "").translate(_MARKS_THERE)
                    content = etree.tostring(tree, encoding="utf-8")
                new.writestr(part.filename, content)
    except (zipfile.BadZipFile, etree.XMLSyntaxError, OSError) as error:
        raise NotRead(f"not a Word file, or encrypted: {error}") from error
    return out.getvalue()


def _html(file: File) -> Iterator[Section]:
    """Convert the main content of a page; navigation and other chrome is left out."""
    from lxml import etree, html

    found = re.search(rb"(?i)(?:charset|encoding)\s*=\s*[\"']?([\w.:-]+)", file.data[:4096])
    text = file.text(_codec(found[1].decode("ascii")) if found else None)
    if not text.strip():
        return
    tree = html.document_fromstring(re.sub(r"\A\s*<\?xml[^>]*>", "", text.replace("\0", " ")))
    named = tree.find(".//title")
    title = " ".join((named.text_content() if named is not None else "").split())
    body = tree.find("body")
    body = tree if body is None else body
    whole = len(body.text_content())
    main = body.xpath("//main | //article | //*[@role='main']")
    if len(main) == 1 and main[0].text_content().strip():
        body = main[0]
    for element in body.xpath(".//*"):
        names = f"{element.get('class', '')} {element.get('id', '')} {element.get('role', '')}"
        is_chrome = isinstance(element.tag, str) and re.fullmatch(_CHROME, element.tag)
        if is_chrome and element.tag == "header" and body is not tree.find("body"):
            continue  # an article's own header holds its heading
        is_named = names.strip() and _CHROME_NAMES.search(names)
        if is_chrome or (is_named and len(element.text_content()) < whole / 3):
            if element.getparent() is not None:
                element.drop_tree()
    etree.strip_tags(
        body, "a", "b", "strong", "em", "i", "u", "span", "font", "mark", etree.Comment
    )
    markup = html.tostring(body, encoding="unicode")
    file.data, file.title = f"<html><body>{markup}</body></html>".encode(), title or file.title
    file.suffix = ".html"
    yield from _kreuzberg(file)


def _codec(label: str) -> str | None:
    try:
        name = codecs.lookup(label).name
    except LookupError:
        return None
    return "cp1252" if name in ("iso8859-1", "ascii") else name  # as browsers read it


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


def _xlsx(file: File) -> Iterator[Section]:
    """Read values by openpyxl; a formula without a stored value stands as the formula."""
    import openpyxl

    try:
        values, formulas = (
            openpyxl.load_workbook(io.BytesIO(file.data), read_only=True, data_only=stored)
            for stored in (True, False)
        )
    except Exception as error:
        raise NotRead(f"broken or encrypted workbook: {error}") from error
    unsaved = 0
    for sheet in values.worksheets:
        other = formulas[sheet.title]
        sheet.reset_dimensions()
        other.reset_dimensions()
        rows = []
        for cells, written in zip(sheet.iter_rows(), other.iter_rows(), strict=False):
            row = [_cell(cell) for cell in cells[:MAX_COLUMNS]]
            for column, cell in enumerate(written[: len(row)]):
                formula = getattr(cell.value, "text", cell.value)
                if not row[column] and isinstance(formula, str) and formula.startswith("="):
                    row[column] = formula
                    unsaved += 1
            rows.append(row)
        several = {"title": f"{file.title}, {sheet.title}"} if len(values.worksheets) > 1 else {}
        yield from _sheet(rows, several)
    if unsaved:
        file.faults.append(f"{unsaved} formulas have no stored value: they stand as formulas")


def _cell(cell: Any) -> str:
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    if isinstance(value, int | float) and str(cell.number_format).endswith("%"):
        return f"{round(value * 100, 6):g}%"
    if isinstance(value, float):
        return f"{value:.15g}"
    return " ".join(str(value).split())


def _csv(file: File) -> Iterator[Section]:
    text = file.text()
    sample = text[:100_000].splitlines()[:50]
    delimiter = "\t" if file.suffix == ".tsv" else max(",;\t|", key=lambda d: _columns(sample, d))
    csv.field_size_limit(file.max_bytes)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise NotRead(f"not a table: {error}") from error
    yield from _sheet(rows, {})


def _columns(lines: list[str], delimiter: str) -> tuple[int, int]:
    """Rank a delimiter: in how many lines it gives as many columns as in the first, and how many.

    One that the first line lacks ranks last.
    """
    widths = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
    if not widths or widths[0] < 2:
        return 0, 0
    return widths.count(widths[0]), widths[0]


def _sheet(rows: list[list[str]], metadata: dict[str, Any]) -> Iterator[Section]:
    """Yield a table with its headings in each row: ``Name: Ada; Room: B12``.

    Rows of one cell above the headings, such as a sheet's title, are text.
    """
    rows = [[" ".join(str(cell).split()) for cell in row] for row in rows]
    rows = [row for row in rows if any(row)]
    width = max((sum(map(bool, row)) for row in rows), default=0)
    above = 0
    while above < len(rows) and width > 1 and sum(map(bool, rows[above])) < 2:
        above += 1
    yield Section("\n".join(" ".join(filter(None, row)) for row in rows[:above]), {**metadata})
    rows = rows[above:]
    names: list[str] = []
    if len(rows) > 1 and not any(re.match(r"[-+]?[\d.,]+\s*\S?$|=", cell) for cell in rows[0]):
        names = rows.pop(0)
    lines = []
    for row in rows:
        named = zip(row, [*names, *[""] * len(row)], strict=False)
        cells = [f"{name}: {cell}" if name else cell for cell, name in named if cell]
        lines.append("; ".join(cells) if names else " | ".join(row))
    yield Section("\n".join(lines), {**metadata}, "")


def _json(file: File) -> Iterator[Section]:
    text = file.text()
    try:
        found = list(passages(json.loads(text)))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # one row a line
            yield from _jsonl(file)
            return
        raise NotRead(f"not JSON: {error}") from error
    except RecursionError as error:
        raise NotRead("nested too deeply") from error
    for passage in found or [Document(text)]:
        yield _row(passage)


def _jsonl(file: File) -> Iterator[Section]:
    broken = []
    for number, line in enumerate(file.text().splitlines(), 1):
        try:
            for passage in row_passages(json.loads(line)) if line.strip() else ():
                yield _row(passage)
        except (ValueError, RecursionError):
            broken.append(number)
    if broken:
        more = f" and {len(broken) - 1:,} more lines are" if broken[1:] else " is"
        file.faults.append(f"line {broken[0]}{more} not JSON")


def _row(passage: Document) -> Section:
    fields = {key: item for key, item in passage.metadata.items() if key not in RESERVED}
    title = {"title": passage.metadata["title"]} if passage.metadata.get("title") else {}
    return Section(passage.page_content, {**fields, **title})


def _mail(file: File) -> Iterator[Section]:
    message = email.message_from_bytes(file.data, policy=email.policy.default)
    fields = [
        f"{name}: {message[name]}" for name in ("Subject", "From", "To", "Date") if message[name]
    ]
    body = message.get_body(("plain", "html"))
    text = body.get_content() if body is not None else ""
    title = str(message["Subject"] or file.title)
    for part in message.iter_attachments():
        file.faults.append(f"its attachment {part.get_filename() or 'without a name'} is not read")
    if body is not None and body.get_content_type() == "text/html":
        file.data, file.encoding, file.title = text.encode(), "utf-8", title
        yield Section("\n".join(fields), {"title": title})
        yield from (
            part._replace(metadata={**part.metadata, "title": title}) for part in _html(file)
        )
    else:
        yield Section("\n".join([*fields, "", text]), {"title": title})


_READERS: dict[str, Callable[[File], Iterator[Section]]] = {
    **dict.fromkeys((".md", ".markdown", ".mdx", ".qmd", ".rmd"), _markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _html),
    **dict.fromkeys((".xlsx", ".xlsm", ".xltx"), _xlsx),
    **dict.fromkeys((".csv", ".tsv"), _csv),
    **dict.fromkeys((".jsonl", ".ndjson"), _jsonl),
    ".json": _json,
    ".pdf": _pdf,
    ".eml": _mail,
}
KINDS = tuple(sorted({*_READERS, *KREUZBERG}))
"""Suffixes with a reader of their own; all others are read as text if they are text."""


def main() -> None:
    """Answer each request, a line of JSON, with a line for each section and one at the end."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    except (ImportError, ValueError, OSError):
        pass
    for line in sys.stdin:
        path, encoding, max_bytes = json.loads(line)
        reason, faults = None, []
        try:
            file = File(Path(path), encoding, max_bytes)
            faults = file.faults
            for section in sections(file):
                print(json.dumps(section), file=out, flush=True)
        except NotRead as error:
            reason = str(error)
        except (gzip.BadGzipFile, EOFError) as error:
            reason = f"broken gzip: {error}"
        except OSError as error:
            reason = error.strerror or str(error)
        except MemoryError:
            reason = f"takes more than {MAX_MEMORY / 2**30:.0f} GiB of memory"
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        print(
            json.dumps({"reason": reason, "faults": list(dict.fromkeys(faults))}),
            file=out,
            flush=True,
        )


if __name__ == "__main__":
    main()
