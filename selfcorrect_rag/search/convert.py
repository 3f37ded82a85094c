"""The process that converts files, one at a time, into sections of text and tables.

It is a process of its own (`Converter` in documents.py), so that a file that hangs, crashes or
takes too much memory costs only itself.
"""

import datetime
import gzip
import io
import json
import os
import re
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.search.json_rows import passages, row_passages
from selfcorrect_rag.search.office import read_html, read_office, read_xlsx
from selfcorrect_rag.search.sections import File, NotRead, Outline, Section

RESERVED = ("source", "sources", "chunk", "score")
"""Metadata that a file may not set."""
MAX_MEMORY = 4 * 2**30
KREUZBERG = (
    ".csv .doc .docm .docx .dotx .eml .epub .fb2 .ipynb .msg .odp .ods .odt .org .ppsx .ppt .pptm"
    " .pptx .rst .rtf .tsv .xls"
)


def sections(file: File) -> Iterator[Section]:
    """Yield the sections of a file in order.

    Raises:
        NotRead: nothing in it can be read.
    """
    if zipfile.is_zipfile(io.BytesIO(file.data)):
        _check_archive(file)
    read = _READERS.get(file.suffix, _text)
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
        if value is not None and key not in (*RESERVED, "page", "heading")
    }
    return text[found.end() :], kept


def _plain(value: Any) -> Any:
    is_texts = isinstance(value, list) and value and all(isinstance(item, str) for item in value)
    if is_texts or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime.date):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False, default=str)


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
    for passage in found or [Document(text, metadata={"title": ""})]:
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
    if not fields["title"]:  # the file's
        del fields["title"]
    return Section(passage.page_content, fields)


_READERS: dict[str, Callable[[File], Iterator[Section]]] = {
    **dict.fromkeys(KREUZBERG.split(), read_office),
    **dict.fromkeys((".md", ".markdown", ".mdx", ".qmd", ".rmd"), _markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    **dict.fromkeys((".xlsx", ".xlsm", ".xltx"), read_xlsx),
    **dict.fromkeys((".jsonl", ".ndjson"), _jsonl),
    ".json": _json,
    ".pdf": _pdf,
}
"""By suffix; all others are read as text if they are text."""


def main() -> None:
    """Answer each request, a line of JSON, with a line for each section and one at the end."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    for line in sys.stdin:
        path, encoding, max_bytes = json.loads(line)
        reason, faults = None, list[str]()
        try:
            file = File(Path(path), encoding, max_bytes)
            faults = file.faults
            for section in sections(file):
                print(json.dumps(section), file=out)
        except NotRead as error:
            reason = str(error)
        except (gzip.BadGzipFile, EOFError) as error:
            reason = f"broken gzip: {error}"
        except MemoryError:
            reason = f"takes more than {MAX_MEMORY / 2**30:.0f} GiB of memory"
        except Exception as error:
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        print(json.dumps({"reason": reason, "faults": list(dict.fromkeys(faults))}), file=out)


if __name__ == "__main__":
    main()
