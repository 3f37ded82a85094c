"""Reads the text of Word, PowerPoint and Excel files, which are archives of XML and untrusted."""

import io
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from selfcorrect_rag.errors import MissingExtra, require
from selfcorrect_rag.search.files import UnreadableFile

MAX_SECONDS = 60.0
"""Most time for one file: a sheet of a few bytes may have a million empty rows."""
MAX_COLUMNS = 1000
"""Columns of a sheet that are read."""

Line = tuple[int | str, str]
"""A line of text, and the number of its slide, the name of its sheet, or 0 in a Word file."""


def read_office(kind: str, content: bytes, max_bytes: int) -> Iterator[Line]:
    """The text of a Word file, of each slide, or of each sheet, with its number or name.

    Text of tables comes row by row; pictures, charts, headers and footnotes are left out.

    Args:
        kind: ".docx", ".pptx" or ".xlsx".
        max_bytes: Largest sum of the sizes of the parts, unpacked.

    Raises:
        UnreadableFile: it is broken, encrypted, too large or takes longer than `MAX_SECONDS`.
        MissingExtra: the library for this kind is not installed.
    """
    try:
        file = io.BytesIO(content)
        # What an archive says of a part's size holds: no more of the part is unpacked.
        if sum(part.file_size for part in zipfile.ZipFile(file).infolist()) > max_bytes:
            raise UnreadableFile(f"larger than {max_bytes / 2**20:,.0f} MiB when unpacked")
        lines = list(_in_time(_READERS[kind](file)))
    except (MissingExtra, UnreadableFile):
        raise
    except Exception as error:  # the libraries raise all kinds of errors for broken files
        raise UnreadableFile(f"broken or encrypted {kind[1:]}: {error}") from error
    for part, same in groupby(lines, itemgetter(0)):
        yield part, "\n".join(text for _, text in same)


def _in_time(lines: Iterable[Line]) -> Iterator[Line]:
    end = time.monotonic() + MAX_SECONDS
    for line in lines:
        if time.monotonic() > end:
            raise UnreadableFile(f"takes longer than {MAX_SECONDS:.0f} s to read")
        yield line


def _docx(file: io.BytesIO) -> Iterator[Line]:
    for block in require("docx", "files").Document(file).iter_inner_content():
        if hasattr(block, "rows"):
            for row in block.rows:
                yield 0, _row(cell.text for cell in row.cells)
        else:
            yield 0, f"{block.text}\n"  # an empty line after it, as between paragraphs of a text


def _pptx(file: io.BytesIO) -> Iterator[Line]:
    for number, slide in enumerate(require("pptx", "files").Presentation(file).slides, start=1):
        for text in _shapes(slide.shapes):
            yield number, text
        if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame):
            yield number, notes.text


def _shapes(shapes: Iterable[Any]) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):  # a group
            yield from _shapes(shape.shapes)
        elif shape.has_text_frame:
            yield f"{shape.text_frame.text}\n"
        elif getattr(shape, "has_table", False):
            for row in shape.table.rows:
                yield _row(cell.text for cell in row.cells)


def _xlsx(file: io.BytesIO) -> Iterator[Line]:
    openpyxl = require("openpyxl", "files")
    for sheet in openpyxl.load_workbook(file, read_only=True, data_only=True).worksheets:
        sheet.reset_dimensions()  # what a file says of them need not be true
        for row in sheet.iter_rows(values_only=True, max_col=MAX_COLUMNS):
            yield sheet.title, _row(str(value) for value in row if value is not None)


def _row(cells: Iterable[str]) -> str:
    return " | ".join(" ".join(cell.split()) for cell in cells)


_READERS: dict[str, Callable[[io.BytesIO], Iterator[Line]]] = {
    ".docx": _docx,
    ".pptx": _pptx,
    ".xlsx": _xlsx,
}
