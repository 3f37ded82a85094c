"""Word, PowerPoint and Excel files, made by the libraries that read them, and hostile ones."""

import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.search import load, office

docx = pytest.importorskip("docx")
openpyxl = pytest.importorskip("openpyxl")
pptx = pytest.importorskip("pptx")

TEXT = "A List<int> where a < b; x_y * 2; \\new &amp; 6"


def word_file(path: Path) -> Path:
    document = docx.Document()
    document.add_heading("The staging server", 1)
    document.add_paragraph("It runs on port ").add_run("8443").bold = True
    document.add_paragraph(TEXT)
    table = document.add_table(2, 2)
    for place, text in enumerate(["Name", "Fee", "Ann\nLee", "40"]):
        table.cell(place // 2, place % 2).text = text
    document.save(path)
    return path


def slides_file(path: Path) -> Path:
    slides = pptx.Presentation()
    first = slides.slides.add_slide(slides.slide_layouts[1])
    first.shapes.title.text, first.placeholders[1].text = "Fees", TEXT
    first.notes_slide.notes_text_frame.text = "Tell them about refunds."
    size = (pptx.util.Inches(1),) * 4
    second = slides.slides.add_slide(slides.slide_layouts[6])
    second.shapes.add_group_shape().shapes.add_textbox(*size).text_frame.text = "In a group."
    row = second.shapes.add_table(1, 2, *size).table
    row.cell(0, 0).text, row.cell(0, 1).text = "Ann", "40"
    slides.save(path)
    return path


def sheets_file(path: Path, *rows: list[Any]) -> Path:
    book = openpyxl.Workbook()
    book.active.title = "Staff"
    for row in rows or (["Name", None, "Since"], [], [TEXT, 3, 2019]):
        book.active.append(row)
    book.create_sheet("Rooms").append([1.5, True])
    book.save(path)
    return path


def repacked(path: Path, name: str, change: Callable[[str], str]) -> Path:
    """The file with one part changed."""
    with zipfile.ZipFile(path) as before:
        parts = {part: before.read(part) for part in before.namelist()}
    parts[name] = change(parts[name].decode()).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as after:
        for part, content in parts.items():
            after.writestr(part, content)
    return path


def contents(path: Path) -> list[tuple[str, Any, str]]:
    found = load([path], lambda problem: pytest.fail(problem.reason))
    return [(d.metadata["title"], d.metadata.get("page"), d.page_content) for d in found]


def reason(path: Path, **options: Any) -> str:
    problems: list[Any] = []
    assert not list(load([path], problems.append, **options))
    (problem,) = problems
    said: str = problem.reason
    return said


def test_word_files_give_their_paragraphs_and_tables_as_they_stand(docs: Path) -> None:
    text = f"The staging server\n\nIt runs on port 8443\n\n{TEXT}\n\nName | Fee\nAnn Lee | 40"
    assert contents(word_file(docs / "my_notes.docx")) == [("my notes", None, text)]


def test_slides_give_their_number_and_notes(docs: Path) -> None:
    assert contents(slides_file(docs / "deck.pptx")) == [
        ("deck", 1, f"Fees\n\n{TEXT}\n\nTell them about refunds."),
        ("deck", 2, "In a group.\n\nAnn | 40"),
    ]


def test_sheets_give_their_name_and_rows(docs: Path) -> None:
    assert contents(sheets_file(docs / "staff.xlsx")) == [
        ("staff, Staff", None, f"Name | Since\n\n{TEXT} | 3 | 2019"),
        ("staff, Rooms", None, "1.5 | True"),
    ]


def test_web_pages_give_title_and_lines(docs: Path) -> None:
    (docs / "a.html").write_text(
        "<html><title>Fees &amp; rooms</title><style>p {}</style><h1>Fees</h1>"
        "<p>A fee of <b>40</b>.<table><tr><td>Ann<td>40</table><script>x()</script>"
    )
    (docs / "b_c.htm").write_text("<p>no title")
    assert contents(docs / "a.html") == [
        ("Fees & rooms", None, "Fees & rooms\nFees\nA fee of 40 .\nAnn 40")
    ]
    assert contents(docs / "b_c.htm") == [("b c", None, "no title")]


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx"])
def test_what_is_no_office_file_is_named(kind: str, docs: Path) -> None:
    path = docs / f"a.{kind}"
    path.write_bytes(b"\xd0\xcf\x11\xe0 as an encrypted file begins")
    assert reason(path).startswith(f"broken or encrypted {kind}: ")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("anything", "x")
    assert reason(path).startswith(f"broken or encrypted {kind}: ")


@pytest.mark.parametrize("make", [word_file, slides_file, sheets_file])
def test_an_archive_that_blows_up_is_left_out(make: Callable[[Path], Path], docs: Path) -> None:
    kind = {word_file: "docx", slides_file: "pptx", sheets_file: "xlsx"}[make]
    path = make(docs / f"a.{kind}")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("large", bytes(5 * 2**20))
    assert path.stat().st_size < 2**20
    assert reason(path, max_bytes=16 * 2**20) == "larger than 4 MiB when unpacked"
    assert list(load([path], lambda problem: None, max_bytes=32 * 2**20))


def test_entities_and_depth_that_blow_up_are_left_out(docs: Path) -> None:
    entities = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 10))
    doctype = f'<!DOCTYPE x [<!ENTITY a0 "lol">{entities}]><w:document'
    name, laughs = "word/document.xml", word_file(docs / "laughs.docx")
    repacked(laughs, name, lambda xml: xml.replace("<w:document", doctype).replace("8443", "&a9;"))
    deep, nested = word_file(docs / "deep.docx"), "<w:p>" * 9000 + "</w:p>" * 9000
    repacked(deep, name, lambda xml: xml.replace("</w:body>", f"{nested}</w:body>"))
    for path in (laughs, deep):
        assert reason(path).startswith("broken or encrypted docx: ")


def test_a_sheet_of_empty_rows_ends_in_time(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sheets_file(docs / "a.xlsx", ["x"])
    assert contents(path)[0] == ("a, Staff", None, "x")
    repacked(path, "xl/worksheets/sheet1.xml", lambda xml: re.sub('r="1"', 'r="1048576"', xml))
    monkeypatch.setattr(office, "MAX_SECONDS", 0.2)
    assert reason(path) == "takes longer than 0 s to read"


def test_columns_are_bounded(docs: Path) -> None:
    path = sheets_file(docs / "a.xlsx", [*["x"] * office.MAX_COLUMNS, "far"])
    assert "far" not in contents(path)[0][2]


@pytest.mark.parametrize(
    ("module", "make"), [("docx", word_file), ("pptx", slides_file), ("openpyxl", sheets_file)]
)
def test_a_library_that_is_missing_is_named(
    module: str, make: Callable[[Path], Path], docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(docs / f"a.{'xlsx' if module == 'openpyxl' else module}")
    monkeypatch.setitem(sys.modules, module, None)
    remedy = f'{module} is not installed: pip install "selfcorrect-rag[files]"'
    assert reason(path) == remedy
