"""Convert a file into sections of text and tables.

kreuzberg reads PDF and office files; what its version 4.10 gets wrong of Word and Excel is
mended before, and HTML is cleaned by lxml before. The rest is text. Run as a program, in a separate
process, it imports nothing of this package.
"""

import csv
import email.policy
import io
import json
import re
import sys
import zipfile
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from html import escape, unescape
from itertools import islice, takewhile
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple
from urllib.parse import unquote

MAX_MEMORY, MAX_BYTES, MAX_UNPACKED = 4 * 2**30, 128 * 2**20, 512 * 2**20
SHEETS = (".ods", ".xls", ".xlsx", ".xlsm", ".xltx")
_TITLED = (".epub", ".fb2", ".ipynb", ".org")
"""Kinds whose first heading is their title; office files often have a wrong one."""
_OFFICE = (".doc", ".docm", ".docx", ".dotx", ".odt", ".rtf")
_SLIDES = (".odp", ".ppsx", ".ppt", ".pptm", ".pptx")
_WESTERN = re.compile(r"(?i)(iso-?8859-?1|latin-?1|(us-)?ascii)")
"""Declared names that mean Windows-1252."""
_FIELDS = ("text", "contents", "content", "page_content", "passage", "body")
"""Keys that hold the text of a JSON row."""
_RESERVED = ("source", "sources", "chunk", "score", "page", "heading")
"""Metadata that front matter may not set."""
_MARKS = {BOM_UTF8: "utf-8-sig", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16"}
_NOT_WESTERN = re.compile(
    r"[^\W\d_][¡-ª¬-º¼-¿×÷][^\W\d_]|[\xa1-\xaa\xac-\xba\xbc-\xff]{3}|[\x80-\x9f\ufffd]"
)
"""Symbols within words, three accented letters in a row, undefined bytes: not Windows-1252."""
_WORD = {
    "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
}
_ID = f"{{{_WORD['w']}}}id"
_UNSEEN = "//w:moveFrom | //mc:Fallback | //w:r[w:rPr/w:vanish[not(@w:val)]]"
_SIGNS = {ord("<"): "\ue000", ord(">"): "\ue001", ord("&"): "\ue002"}
"""Signs that kreuzberg drops from Word; each is put back in the text."""
_CHROME = "title nav footer script style noscript template iframe svg button dialog img"
_SECTIONS = ("section", "h1", "h2", "h3", "h4", "h5", "h6")
"""Elements whose ids documentation tools make of the heading, such as "related-work"."""
_CHROME_NAMES = re.compile(
    r"(?i)\b(?:nav|navbar|navigation|menu|sidebar|breadcrumbs?|cookie\w*|site-?header|site-?footer"
    r"|footer|toc|mw-editsection|banner|skip-?link|pagination|share|social|related)\b"
)
_RULE = re.compile(r"[\s:|-]*-[\s:|-]*")
"""The line below a Markdown table's header."""
_UNDERLINES = """=-~^"'*+#:."""
"""Signs below a heading, in the usual order of levels."""
_FENCE = re.compile(r"( *)([-*+] +|\d+[.)] +)?(`{3,}+(?!.*`)|~{3,})(.*)")
"""A line that begins or ends fenced code: its indent, the mark of a list, the fence, the rest."""
_ESCAPE = re.compile(r"(?ms)(^```.*?^```$)|\\([!-/:-@\[-`{-~])|(?<= ) +(?=\|)")
"""In Markdown: code, which has no escapes; an escaped character; padding of a column."""
_CLOCK = re.compile(r"^1899-12-3[01] | 00:00:00$")
"""Excel's day of a time and time of a day."""
_INLINE = "a abbr b code em font form i kbd mark q s small span strong sub sup u wbr"
NO_TEXT = "no text in it"
"""The reason of a file that was read and has none."""


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

    def __init__(self, path: Path, encoding: str | None) -> None:
        self.suffix, self.encoding = path.suffix.lower(), encoding
        self.title = path.stem.replace("_", " ")
        self.faults: list[str] = []
        with path.open("rb") as file:
            self.data = file.read(MAX_BYTES + 1)
        if len(self.data) > MAX_BYTES:
            raise NotRead(f"larger than {MAX_BYTES >> 20} MiB")

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
            told = "neither UTF-8 nor Windows-1252: name its encoding, such as --encoding gb18030"
            raise NotRead(told)
        self.faults.append("not UTF-8: read as Windows-1252 (--encoding names another)")
        return text


def convert(path: Path, encoding: str | None) -> tuple[list[Section], list[str]]:
    """Return the sections of a file in order, and what could not be read of it."""
    try:
        file = File(path, encoding)
        found = [s for s in READERS.get(file.suffix, _text)(file) if s.text.strip()]
    except OSError as error:
        raise NotRead(error.strerror or str(error)) from error
    except (RecursionError, zipfile.BadZipFile) as error:
        raise NotRead(f"broken, or nested too deeply: {error}") from error
    if not found:
        raise NotRead("; ".join(file.faults) or NO_TEXT)
    for section in found:
        section.metadata["title"] = _line(section.metadata.get("title") or "") or file.title
    return found, file.faults


def _text(file: File) -> Iterator[Section]:
    yield Section(file.text(), {})


def _markdown(file: File) -> Iterator[Section]:
    text, metadata = _front_matter(file.text().replace("\r\n", "\n"))
    if file.suffix == ".rst":  # a heading is never indented there
        text = re.sub(r"(?m)^ {1,3}(?=#)", "    ", text)
    yield from _outline(text, metadata, metadata.get("title") or _first_title(text) or file.title)


def _outline(text: str, metadata: dict[str, Any], title: object) -> Iterator[Section]:
    """Cut Markdown at headings and tables; a heading without text stays with the next section."""
    path: list[tuple[int, str]] = []
    block: list[str] = []
    has_body, table_end, lines = False, 0, list(_mark_headings(text))

    def section(text: str, header: str | None = None) -> Section:
        names = " > ".join(name for _, name in path)
        known = {**metadata, "title": str(title), **({"heading": names} if names else {})}
        return Section(text, known, header)

    for place, (line, level, name) in enumerate(lines):
        if place < table_end:
            continue
        below = lines[place + 1][0] if place + 1 < len(lines) else ""
        is_table = level == 0 and "|" in line and "|" in below and _RULE.fullmatch(below)
        if has_body and (name or is_table):
            yield section("\n".join(block))
            block, has_body = [], False
        if is_table:
            rows = [row for row, *_ in takewhile(lambda line: "|" in line[0], lines[place + 2 :])]
            header = "\n".join([*block, line, below]).strip()
            yield section("\n".join(rows) or header, header if rows else "")
            block, table_end = [], place + 2 + len(rows)
            continue
        if name:
            path = [heading for heading in path if heading[0] < level] + [(level, name)]
        block.append(line)
        has_body = has_body or (re.search(r"\w", line) is not None and not name)
    yield section("\n".join(block))


def _mark_headings(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield each line of Markdown, the level of its heading, -1 in fenced code, and its name."""
    fence, column, lines, is_ruler = "", 0, text.split("\n"), False
    for before, line, below in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        mark = None if is_ruler else _FENCE.match(line)
        if fence and line.strip() and len(line) - len(line.lstrip(" ")) < column:
            fence = ""  # code in a list ends with its item
        if mark and not fence and (mark[2] or len(mark[1]) < 4):
            fence, column = mark[3], mark.start(3) if mark[2] else 0
        elif mark and not mark[4].strip() and len(mark[1]) < column + 4:
            fence = "" if mark[3].startswith(fence) else fence
        heading = None if fence else re.match(r" {0,3}(#{1,6})[ \t]+(.*)", line)
        name = heading[2].strip() if heading else ""
        name = name if name.rstrip("#")[-1:].strip() else name.rstrip("#").rstrip()
        level = len(heading[1]) if heading and name else -1 if fence or mark else 0
        is_first = level == 0 and not re.search(r"\w|^---$", before)
        rule = re.match(r"([=~^\"'*+#:.-])\1{2,}\s*$", below) if is_first else None
        is_long = rule is not None and (rule[1] in "=-" or len(below) >= len(line))
        is_ruler = is_long and bool(re.match(r"[^\s|>*+#-].*\w", line))
        if rule and is_ruler:
            name, level = line.strip(), _UNDERLINES.index(rule[1]) + 1
        yield line, level, re.sub(r"[*`]|\b_|_\b", "", name)


def _first_title(text: str) -> str | None:
    headings = [(level, name) for _, level, name in _mark_headings(text) if name]
    return min(headings, key=lambda heading: heading[0])[1] if headings else None


def _front_matter(text: str) -> tuple[str, dict[str, Any]]:
    """Return the text without YAML front matter, and the front matter as metadata."""
    import yaml

    found = re.match(
        r"\A---[ \t]*\n(?!\s*\n)(.{0,20000}?\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", text, re.DOTALL
    )
    metadata: dict[str, Any] = {}
    try:
        # Aliases of aliases would become gigabytes of text.
        if not found or any(isinstance(e, yaml.AliasEvent) for e in yaml.parse(found[1] or "")):
            return text, {}
        fields = yaml.safe_load(found[1] or "")
        if not isinstance(fields, dict | None):
            return text, {}
        for key, value in (fields or {}).items():
            if key not in _RESERVED and value not in (None, []):
                is_plain = isinstance(value, int | float)
                given = list(map(str, value)) if isinstance(value, list) else str(value)
                metadata[str(key)] = value if is_plain else given
    except (yaml.YAMLError, ValueError):  # it only looks like front matter
        return text, {}
    return text[found.end() :], metadata


def _json(file: File) -> Iterator[Section]:
    """Read one JSON value, or one a line; objects with a text, at any depth, are passages."""
    text, broken, values = file.text(), list[int](), list[Any]()
    try:
        values.append(json.loads(text))
    except ValueError:
        for number, line in enumerate(text.split("\n"), 1):  # JSON may hold U+2028
            try:
                values += [json.loads(line)] if line.strip() else []
            except ValueError:
                broken.append(number)
    if broken:
        told = f"not JSON in {len(broken):,} of its lines, the first is line {broken[0]}"
        file.faults.append(told)
    whole = [] if broken else [Section(text, {})]
    yield from [row for value in values for row in _json_rows(value, {}, "")] or whole


def _json_rows(value: Any, named: dict[str, str], above: str) -> Iterator[Section]:
    """Yield the texts of a value but those that the text ``above`` holds."""
    fields = value if isinstance(value, dict) else {}
    texts = {key: each for key, each in fields.items() if isinstance(each, str) and each.strip()}
    named = {"title": texts["title"]} if "title" in texts else named
    found = next((texts[key] for key in _FIELDS if key in texts), "")
    if found and found not in above:
        yield Section(found, named)
    for item in value if isinstance(value, list) else fields.values():
        yield from _json_rows(item, named, found or above)


def _pdf(file: File) -> Iterator[Section]:
    _, result = _by_kreuzberg(file.data, "application/pdf", "plain")
    title, empty = result.metadata.get("title"), 0
    for page in result.pages:
        empty += not page["content"].strip()
        # U+0002 is a hyphen of the line's end, not of the word.
        text = page["content"].replace("\r\n", "\n").replace("\x02", "")
        yield Section(text, {"title": title, "page": page["page_number"]})
    if empty:
        told = f"{empty} of {len(result.pages)} pages have no text: a scan needs OCR first"
        file.faults.append(told)


def _html(file: File) -> Iterator[Section]:
    # A name that can be read as ASCII is not of UTF-16.
    named = rb"(?i)(?:charset|encoding)\s*=\s*[\"']?(?!utf-16)([\w.:-]+)"
    declared = re.search(named, file.data[:4096])
    name = declared[1].decode("ascii") if declared else None
    yield from _page(file.text("cp1252" if name and _WESTERN.fullmatch(name) else name), file.title)


def _page(text: str, title: str) -> Iterator[Section]:
    """Yield the main content of HTML; navigation and the like are left out."""
    from lxml import etree, html

    if not text.strip():
        return
    tree = html.document_fromstring(re.sub(r"\A\s*<\?xml[^>]*>", "", text.replace("\0", " ")))
    title = _line(tree.xpath("string(//title)")) or title
    # The only article may be a review below the product.
    half = len(tree.text_content()) / 2
    articles = [a for a in tree.iter("article") if a.xpath(".//h1") or len(a.text_content()) > half]
    main = tree.xpath("//main | //*[@role='main']") or articles
    is_marked = len(main) == 1 and bool(main[0].text_content().strip())
    body = main[0] if is_marked else tree.body if tree.body is not None else tree
    size = len(body.text_content())
    for element in body.xpath(".//*"):
        names = f"{element.get('class', '')} {element.get('role', '')}"
        if element.tag not in _SECTIONS and "section" not in names.split():
            names += f" {element.get('id', '')}"
        is_of_site = not is_marked and next(element.iterancestors("article"), None) is None
        is_likely = element.tag == "form" or (element.tag in ("header", "aside") and is_of_site)
        is_small = len(element.text_content()) < size / 3
        is_chrome = is_small and (is_likely or _CHROME_NAMES.search(names))
        if (is_chrome or element.tag in _CHROME.split()) and element.getparent() is not None:
            element.drop_tree()
    etree.strip_tags(body, *_INLINE.split(), etree.Comment, etree.ProcessingInstruction)
    page = etree.tostring(body, encoding="unicode", method="html")
    yield from _outline(_by_kreuzberg(page.encode(), "text/html")[0], {}, title)


def _line(text: object) -> str:
    return " ".join(str(text).split())


def _office(file: File) -> Iterator[Section]:
    import kreuzberg

    if zipfile.is_zipfile(io.BytesIO(file.data)):
        _mend(file)
    is_plain = file.suffix in (".msg", *_SLIDES)  # slides lose their notes in Markdown
    with NamedTemporaryFile(suffix=file.suffix) as empty:  # the file's own path may not be text
        kind = kreuzberg.detect_mime_type_from_path(empty.name)
    text, result = _by_kreuzberg(file.data, kind, "plain" if is_plain else "markdown")
    if file.suffix in SHEETS:
        names = result.metadata.get("sheet_names") or []
        for table in result.tables:
            sheet = f", {names[table.page_number - 1]}" if len(names) > 1 else ""
            yield from _sheet(table.cells, {"title": file.title + sheet})
        return
    text, title = text.translate({ord(sign): chr(old) for old, sign in _SIGNS.items()}), None
    if file.suffix == ".docx":  # the marks are of other notes, and a paragraph's end has more
        text = re.sub(r"\[\^\d+\](?!:)", "", text)
    if file.suffix in _TITLED:
        title = _first_title(text)
    elif file.suffix == ".msg":
        text = re.sub(r"&#?\w+;", lambda entity: unescape(entity[0]), text)
        title = result.metadata.get("subject")
        attached = ", ".join(result.metadata.get("attachments") or [])
        file.faults += [f"attachments are not read: {attached}"] if attached else []
    yield from _outline(text, {}, title or file.title)


def _mail(file: File) -> Iterator[Section]:
    mail = email.message_from_bytes(file.data, policy=email.policy.default)
    title, bodies = mail["Subject"], [mail.get_body((kind,)) for kind in ("plain", "html")]
    heads = [f"{key}: {mail[key]}" for key in ("Subject", "From", "To", "Date") if mail[key]]
    try:
        text = bodies[0].get_content() if bodies[0] else ""
        page = bodies[1].get_content() if bodies[1] and not text.strip() else ""
    except LookupError as error:
        raise NotRead(str(error)) from error
    if page:
        parts = list(_page(page, file.title))
        text = "\n\n".join(f"{part.header or ''}\n{part.text}".strip() for part in parts)
    attached = [part.get_filename() or part.get_content_type() for part in mail.iter_attachments()]
    file.faults += [f"attachments are not read: {', '.join(attached)}"] if attached else []
    yield Section("\n".join(heads) + f"\n\n{text}", {"title": title})


def _csv(file: File) -> Iterator[Section]:
    """Read a table with tabs, or the delimiter by which most first rows have as many cells."""
    text = file.text()
    csv.field_size_limit(MAX_BYTES)

    def rows(delimiter: str, **form: Any) -> Iterator[list[str]]:
        lines = io.StringIO(text, newline="")
        return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, **form)

    def consistency(delimiter: str) -> int:
        widths = Counter(map(len, islice(rows(delimiter), 100)))
        return max((count for width, count in widths.items() if width > 1), default=0)

    delimiter = "\t" if file.suffix == ".tsv" else max("\t;,|", key=consistency)
    try:
        table = list(rows(delimiter, strict=delimiter == "\t"))
    except csv.Error:  # a lone quote, which would swallow rows
        table = list(rows(delimiter, quoting=csv.QUOTE_NONE))
    yield from _sheet(table, {"title": file.title})


def _by_kreuzberg(data: bytes, kind: str, form: str = "markdown") -> tuple[str, Any]:
    """Return the text of a file without escapes and padding of columns, and all of the result."""
    import kreuzberg

    pages = kreuzberg.PageConfig(extract_pages=kind == "application/pdf")
    options: dict[str, Any] = {"output_format": form, "pages": pages, "disable_ocr": True}
    config = kreuzberg.ExtractionConfig(use_cache=False, **options)
    try:
        result = kreuzberg.extract_bytes_sync(data, kind, config=config)
    except Exception as error:
        reason = f"broken, encrypted or of an unknown version: {_line(error)[:300]}"
        raise NotRead(reason) from error
    if form == "plain":
        return result.content, result
    text = _ESCAPE.sub(lambda found: found[1] or found[2] or "", result.content)
    return re.sub(r"-{4,} \|", "--- |", text).replace("&#9;", " "), result


def _mend(file: File) -> None:
    from lxml import etree

    parser, out = etree.XMLParser(resolve_entities=False), io.BytesIO()
    formulas = 0
    with zipfile.ZipFile(io.BytesIO(file.data)) as old, zipfile.ZipFile(out, "w") as new:
        if sum(part.file_size for part in old.infolist()) > MAX_UNPACKED:
            raise NotRead(f"unpacks to more than {MAX_UNPACKED >> 20} MiB")
        for part in old.infolist():
            content = old.read(part)
            is_word = re.fullmatch(r"word/\w+\.xml", part.filename)
            is_sheet = re.fullmatch(r"xl/worksheets/\w+\.xml", part.filename)
            if part.filename.endswith(".opf"):  # kreuzberg looks for chapters by undecoded names
                href, book = r"""(?<=href=["'])[^"']+""", content.decode(errors="replace")
                book = re.sub(href, lambda m: escape(unquote(unescape(m[0]))), book)
                content = book.encode()
            if is_word or (is_sheet and re.search(rb"<(f|mergeCell)\b", content)):
                with suppress(etree.XMLSyntaxError):  # kreuzberg says what is wrong
                    tree = etree.fromstring(content, parser)
                    formulas += _mend_word(tree) if is_word else _mend_sheet(tree)
                    content = etree.tostring(tree, encoding="utf-8")
            new.writestr(part.filename, content)
    file.data = out.getvalue()
    if formulas:
        file.faults.append(f"{formulas} formulas have no stored value: they stand as formulas")


def _mend_word(tree: Any) -> int:
    """Leave out what people do not see, and put text boxes after the paragraph that holds them."""
    for element in tree.xpath(_UNSEEN, namespaces=_WORD):
        element.getparent().remove(element)
    for box in tree.xpath("//w:p//w:txbxContent", namespaces=_WORD):
        paragraph = box.xpath("ancestor::w:p", namespaces=_WORD)[0]
        for child in reversed(box):
            paragraph.addnext(child)
    # kreuzberg takes the ids 0 and 1 for separators; Word gives 1 to the first note.
    for note in tree.xpath("//w:*[contains(local-name(), 'note')][@w:id]", namespaces=_WORD):
        note.set(_ID, str(int(note.get(_ID)) + 1))
    for mark in tree.xpath("//w:r/w:tab | //w:r/w:ptab | //w:r/w:noBreakHyphen", namespaces=_WORD):
        mark.text = "-" if mark.tag.endswith("Hyphen") else " "
        mark.tag = f"{{{_WORD['w']}}}t"
        mark.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
    for element in tree.iter("{*}t"):
        element.text = (element.text or "").translate(_SIGNS)
    return 0


def _mend_sheet(tree: Any) -> int:
    """Repeat a merged cell in each of its rows; show formulas without a stored value."""
    cells = {cell.get("r"): cell for cell in tree.iter("{*}c")}
    rows = {row.get("r"): row for row in tree.iter("{*}row")}
    formulas = 0
    for cell in cells.values():
        formula, value = cell.find("{*}f"), cell.findtext("{*}v")
        is_empty = cell.get("t") == "str"  # the value is "", which Excel stores as nothing
        if formula is not None and formula.text and not (value or is_empty):
            cell[:] = [formula]
            cell.set("t", "str")
            formula.tag, formula.text = cell.tag.removesuffix("c") + "v", f"={formula.text}"
            formulas += 1
    for merged in tree.iter("{*}mergeCell"):
        for column, first, last in re.findall(r"([A-Z]+)(\d+):[A-Z]+(\d+)", merged.get("ref", "")):
            for number in map(str, range(int(first) + 1, int(last) + 1)):
                if column + first in cells and number in rows:
                    rows[number].append(deepcopy(cells[column + first]))
                    rows[number][-1].set("r", column + number)
    return formulas


def _sheet(table: Sequence[Sequence[str]], metadata: dict[str, Any]) -> Iterator[Section]:
    """Yield a table with its headings in each row: ``Name: Ada; Room: B12``.

    Rows of one cell above the headings, such as a sheet's title, are text.
    """
    cells = ([_CLOCK.sub("", _line(cell)) for cell in row] for row in table)
    rows = [row for row in cells if any(row)]
    width = max((sum(map(bool, row)) for row in rows), default=0)
    above = next((i for i, row in enumerate(rows) if width < 2 or sum(map(bool, row)) > 1), 0)
    if above == 1 and len(rows[0]) == 2 and not rows[0][0] and re.search(r"\d", "".join(rows[1])):
        above = 0  # pandas writes an index without a name
    yield Section("\n".join("".join(row) for row in rows[:above]), {**metadata})
    names, *rest = rows[above:] or [[]]
    lines = [] if rest else [" | ".join(names)]
    for row in rest:
        named = zip([*names, *[""] * len(row)], row, strict=False)
        lines.append("; ".join(f"{name}: {cell}" if name else cell for name, cell in named if cell))
    yield Section("\n".join(lines), {**metadata}, "")


READERS: dict[str, Callable[[File], Iterator[Section]]] = {
    **dict.fromkeys((*SHEETS, ".msg", *_TITLED, *_OFFICE, *_SLIDES), _office),
    **dict.fromkeys((".md", ".markdown", ".mdx", ".qmd", ".rmd", ".rst"), _markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _html),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _json),
    ".csv": _csv,
    ".eml": _mail,
    ".pdf": _pdf,
    ".tsv": _csv,
}
"""By suffix; all others are read as text if they are text."""
ALONE = (_office, _html, _mail, _pdf)
"""Those that run in a separate process, where a hang or a crash costs only one file."""


def main() -> None:
    """Print what `convert` returns, or the reason why a file is not read, as a line of JSON."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    path, encoding = sys.argv[1:]
    try:
        answer: Any = convert(Path(path), encoding or None)
    except NotRead as error:
        answer = str(error)
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
