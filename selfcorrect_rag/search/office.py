"""Read office files, tables, mail and web pages: by kreuzberg, .xlsx by openpyxl.

kreuzberg keeps the tracked insertions, fields and controls of Word that markitdown loses, and is
one library for all of these kinds. What kreuzberg 4.10 gets wrong is mended before: characters and
tabs of Word, encodings and navigation of HTML, empty formulas of Excel.
"""

import codecs
import datetime
import html
import io
import re
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selfcorrect_rag.search.sections import File, NotRead, Outline, Section

MAX_COLUMNS = 1_000
_TITLED = (".epub", ".fb2", ".ipynb", ".org", ".rst")
"""Kinds whose first heading is their title; office files often have a wrong one."""
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_ESCAPED = str.maketrans("<>&", "\ue000\ue001\ue002")
_UNESCAPED = {0xE000: "<", 0xE001: ">", 0xE002: "&"}
_CHROME = "nav|header|footer|aside|form|script|style|noscript|template|iframe|svg|button|dialog"
_CHROME_NAMES = re.compile(
    r"(?i)\b(?:nav|navbar|navigation|menu|sidebar|breadcrumbs?|cookie\w*|site-?header|site-?footer"
    r"|footer|banner|skip-?link|pagination|share|social|related)\b"
)
_INLINE = ["a", "b", "strong", "em", "i", "u", "span", "font", "mark"]


def read_office(file: File) -> Iterator[Section]:
    """Convert by kreuzberg, whose document structure has headings, tables and paragraphs."""
    import kreuzberg

    if file.suffix in (".csv", ".tsv"):
        file.data = file.text().encode()
    elif file.suffix in (".docx", ".docm", ".dotx"):
        file.data = _mended_word(file.data)
    options: dict[str, Any] = {"use_cache": False, "disable_ocr": True}
    config = kreuzberg.ExtractionConfig(include_document_structure=True, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{file.suffix}"
        path.write_bytes(file.data)
        try:
            result: Any = kreuzberg.extract_file_sync(str(path), config=config)
        except Exception as error:
            reason = " ".join(str(error).split())[:300].replace(str(path), "it")
            raise NotRead(f"broken, encrypted or of an unknown version: {reason}") from error
    if file.suffix in (".csv", ".tsv", ".xls", ".ods"):
        for table in result.tables:
            yield from _sheet(table.cells, {})
        return
    if file.suffix in (".eml", ".msg"):
        file.title = result.metadata.get("subject") or file.title
        names = ", ".join(result.metadata.get("attachments") or [])
        file.faults += [f"attachments are not read: {names}"] if names else []
    outline = Outline()
    for node in (result.document or {}).get("nodes") or [{"content": {"text": result.content}}]:
        _add_node(outline, node["content"], is_mail=file.suffix == ".eml")
    title = outline.title if file.suffix in _TITLED else None
    for section in outline.sections():
        yield section._replace(metadata={"title": title or file.title, **section.metadata})


def _add_node(outline: Outline, content: dict[str, Any], is_mail: bool) -> None:
    text = (content.get("text") or "").strip().translate(_UNESCAPED)
    match content.get("node_type"):
        case "heading" if text:
            outline.open(content.get("level") or 1, " ".join(text.split()), text)
        case "table":
            rows: dict[int, list[str]] = {}
            for cell in content["grid"]["cells"]:
                rows.setdefault(cell["row"], []).append(" ".join(cell["content"].split()))
            lines = [" | ".join(row).translate(_UNESCAPED) for row in rows.values()]
            outline.table("".join(lines[:1]), lines[1:])
        case "metadata_block":
            outline.add("\n".join(f"{name}: {value}" for name, value in content["entries"]) + "\n")
        case "list_item" if text:
            outline.add(f"- {text}")
        case _ if text:
            outline.add((html.unescape(text) if is_mail else text) + "\n")


def _mended_word(data: bytes) -> bytes:
    """Return a Word file without what kreuzberg drops or keeps wrongly.

    It drops ``<``, ``>`` and ``&``, tabs and hard hyphens, and keeps text that was moved away.
    """
    from lxml import etree

    out = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
            for part in old.infolist():
                content = old.read(part)
                if re.fullmatch(r"word/(document\d*|footnotes|endnotes)\.xml", part.filename):
                    content = _mended_part(etree, content)
                new.writestr(part.filename, content)
    except (zipfile.BadZipFile, etree.XMLSyntaxError, OSError) as error:
        raise NotRead(f"not a Word file, or encrypted: {error}") from error
    return out.getvalue()


def _mended_part(etree: Any, content: bytes) -> bytes:
    tree = etree.fromstring(content, etree.XMLParser(resolve_entities=False))
    etree.strip_elements(tree, f"{_WORD}moveFrom", f"{_WORD}del", with_tail=False)
    for tag, text in (("tab", " "), ("ptab", " "), ("noBreakHyphen", "-")):
        for element in tree.xpath(f"//w:r/w:{tag}", namespaces={"w": _WORD[1:-1]}):
            element.tag, element.text = f"{_WORD}t", text
            element.set(_SPACE, "preserve")
    for element in tree.iter(f"{_WORD}t"):
        element.text = (element.text or "").translate(_ESCAPED)
    made: bytes = etree.tostring(tree, encoding="utf-8")
    return made


def read_html(file: File) -> Iterator[Section]:
    """Convert the main content of a page; navigation and the like are left out."""
    from lxml import etree
    from lxml import html as lxml_html

    declared = re.search(rb"(?i)(?:charset|encoding)\s*=\s*[\"']?([\w.:-]+)", file.data[:4096])
    text = file.text(_codec(declared[1].decode("ascii")) if declared else None)
    if not text.strip():
        return
    tree = lxml_html.document_fromstring(re.sub(r"\A\s*<\?xml[^>]*>", "", text.replace("\0", " ")))
    file.title = " ".join(tree.xpath("string(//title)").split()) or file.title
    main = tree.xpath("//main | //article | //*[@role='main']")
    is_marked = len(main) == 1 and bool(main[0].text_content().strip())
    body = main[0] if is_marked else tree.find("body")
    body = tree if body is None else body
    size = len(body.text_content())
    for element in body.xpath(".//*"):
        names = " ".join(element.get(key, "") for key in ("class", "id", "role"))
        is_chrome = isinstance(element.tag, str) and re.fullmatch(_CHROME, element.tag)
        if is_chrome and is_marked and element.tag == "header":
            continue  # holds the article's heading
        named = _CHROME_NAMES.search(names) and len(element.text_content()) < size / 3
        if (is_chrome or named) and element.getparent() is not None:
            element.drop_tree()
    etree.strip_tags(body, *_INLINE, etree.Comment)
    markup = lxml_html.tostring(body, encoding="unicode")
    file.data, file.suffix = f"<html><body>{markup}</body></html>".encode(), ".html"
    yield from read_office(file)


def _codec(label: str) -> str | None:
    try:
        name = codecs.lookup(label).name
    except LookupError:
        return None
    return "cp1252" if name in ("iso8859-1", "ascii") else name  # as browsers read it


def read_xlsx(file: File) -> Iterator[Section]:
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


def _sheet(rows: list[list[str]], metadata: dict[str, Any]) -> Iterator[Section]:
    """Yield a table with its headings in each row: ``Name: Ada; Room: B12``.

    Rows of one cell above the headings, such as a sheet's title, are text. A first row with
    numbers, such as years, is repeated on each passage instead.
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
    header = "" if names or len(lines) < 2 else lines.pop(0)
    yield Section("\n".join(lines), {**metadata}, header)
