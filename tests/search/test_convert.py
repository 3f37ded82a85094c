"""The text of each kind of file, and the reason given for one that cannot be read."""

import gzip
import html
import io
import json
import os
import zipfile
from collections.abc import Callable
from datetime import date, time
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import pytest
from docx.oxml import parse_xml
from langchain_core.documents import Document

from selfcorrect_rag.search import Problem, convert, documents, load

from .stand_ins import pdf

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


@pytest.fixture
def read(docs: Path) -> Callable[..., tuple[list[Document], list[Problem]]]:
    """Read one file with this name and content."""

    def read_file(name: str, content: bytes | str, **options: Any) -> Any:
        content = content.encode() if isinstance(content, str) else content
        (docs / name).write_bytes(content)
        problems: list[Problem] = []
        found = list(load([docs / name], problems.append, **options))
        return found, problems

    return read_file


def saved(document: Any) -> bytes:
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def notebook(*source: str) -> str:
    cell = {"cell_type": "markdown", "source": source}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def known(document: Document) -> dict[str, Any]:
    return {k: v for k, v in document.metadata.items() if k not in ("source", "chunk")}


def test_text_of_any_suffix_and_of_none(read: Any, docs: Path) -> None:
    for name, title in (
        ("2026.03.15 Minutes.txt", "2026.03.15 Minutes"),
        ("LICENCE", "LICENCE"),
        ("server_1.log", "server 1"),
        ("main.py", "main"),
    ):
        (found,), problems = read(name, "The pump hums.\n")
        assert (found.page_content, problems) == ("The pump hums.", [])
        assert found.metadata == {"title": title, "source": str(docs / name), "chunk": 0}


def test_markdown_by_its_headings(read: Any) -> None:
    text = (
        "```bash\n# no heading\n```\n\n# The *pump*\n\nIt hums.\n\n## Care\n\n### Oil\n\nWeekly.\n"
    )
    first, pump, oil = read("pump.md", text)[0]
    assert known(first) == {"title": "The pump"}
    assert known(pump) == {"title": "The pump", "heading": "The pump"}
    assert pump.page_content == "# The *pump*\n\nIt hums."
    assert oil.metadata["heading"] == "The pump > Care > Oil"
    assert oil.page_content == "## Care\n\n### Oil\n\nWeekly."  # the empty section goes along


@pytest.mark.parametrize(
    ("front", "fields", "text"),
    [
        (
            "---\ntitle: Leave\ntags: [hr, rest]\ndate: 2026-01-02\nsource: /etc/passwd\n---\n",
            {"title": "Leave", "tags": ["hr", "rest"], "date": "2026-01-02"},
            "",
        ),
        ("---\ntitle: Leave\nyear: 2026\n---\n", {"title": "Leave", "year": 2026}, ""),
        ("---\ntitle: Leave\n...\n", {"title": "Leave"}, ""),
        ("---\n- a list\n---\n", {"title": "leave"}, "- a list"),
        ("---\n\nThe pump: it hums.\n\n---\n", {"title": "leave"}, "The pump: it hums."),
        # Aliases can make a little text a lot.
        ("---\na: &a [x, x]\ntitle: [*a, *a]\n---\n", {"title": "leave"}, "[*a, *a]"),
    ],
)
def test_front_matter_is_metadata(read: Any, front: str, fields: dict[str, Any], text: str) -> None:
    (found,), _ = read("leave.md", f"{front}\n27 days.\n")
    assert known(found) == fields
    assert (found.page_content == "27 days.") == (text == "")
    assert text in found.page_content


def test_signs_in_headings_and_fences_in_lists(read: Any) -> None:
    text = "# C#\n\n- ```sh\n  # none\n  ```\n\n## Care ##\n\n```no``` fence.\n\n## Oil\n\nYes.\n"
    assert [d.metadata["heading"] for d in read("a.md", text)[0]] == ["C#", "C# > Care", "C# > Oil"]
    text = "  # Pump\n\n    ```\n\n- ```c\n# Oil\n\n```py\n    ```\n# none\n```\n\n# Care\n\nYes.\n"
    assert [d.metadata["heading"] for d in read("b.md", text)[0]][1:] == ["Oil", "Care"]
    assert len(read("a.rst", "Oil\n===\n\nSo::\n\n   # no heading\n   run\n")[0]) == 1
    text = f"---\nn: 0x{'f' * 5000}\n---\n\nThe number cannot be printed.\n"
    assert read("a.md", text)[0][-1].page_content.endswith("printed.")


@pytest.mark.parametrize("name", ["a.md", "a.rst"])
def test_underlined_headings(read: Any, name: str) -> None:
    text = "====\nPump\n====\n\nIt hums.\n\nOil\n---\n\nWeekly.\n\nno heading: one\ntwo\n---\n"
    pump, oil = read(name, text)[0]
    assert known(pump) == {"title": "Pump", "heading": "Pump"}
    assert known(oil) == {"title": "Pump", "heading": "Pump > Oil"}
    (code,) = read("b.rst", "Oil\n~~~\n\n~~~\n# no heading\n~~~\n")[0]
    assert known(code) == {"title": "Oil", "heading": "Oil"}


def test_a_long_table_repeats_its_header(read: Any) -> None:
    rows = "\n".join(f"| item {i} | {i} EUR |" for i in range(100))
    found, _ = read("t.md", f"# Prices\n\n| Item | Price |\n|---|---|\n{rows}\n", words=40)
    assert len(found) > 5
    for passage in found:
        assert passage.page_content.startswith("# Prices\n\n| Item | Price |\n|---|---|\n| item ")
        assert passage.page_content.endswith("EUR |")


def test_csv_rows_carry_their_headings(read: Any) -> None:
    text = "Artikel;Preis;Lager\nSchraube;0,12 €;\nDübel;0,05 €;Regal 9\n".encode("cp1252")
    (found,), (problem,) = read("preise.csv", text)
    assert found.page_content == (
        "Artikel: Schraube; Preis: 0,12 €\nArtikel: Dübel; Preis: 0,05 €; Lager: Regal 9"
    )
    assert problem.partly
    assert "Windows-1252" in problem.reason
    (found,), _ = read("b.csv", "Report: 2026\n\nPart;Price, net\nBolt, long;1,20\n")
    assert found.page_content == "Report: 2026\nPart: Bolt, long; Price, net: 1,20"
    assert read("c.csv", ",people\nParis,2100000\n")[0][0].page_content == "Paris; people: 2100000"
    assert read("d.csv", ",S\nA,B\nC,5\n")[0][0].page_content == "S\nA: C; B: 5"
    (found,), _ = read("a.tsv", 'city, size\tof\nUlm, 5\t"Ada\nBonn, 6\tBob\nBern, 7\t"Cy\n')
    assert found.page_content.endswith('size: Bonn, 6; of: Bob\ncity, size: Bern, 7; of: "Cy')
    assert read("e.csv", 'a, b\tc\n1, 2\t"3\t4"\n')[0][0].page_content == "a, b: 1, 2; c: 3 4"


def test_excel_keeps_columns_formulas_and_titles(read: Any) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["Contacts of 2026"])
    sheet.append([])
    sheet.append(["Name", "Mobile", "Share"])
    sheet.append(["Ada", None, 0.25])
    sheet["C4"].number_format = "0%"
    sheet.append(["Total", "=40+2", True])
    other = book.create_sheet("Staff")
    other.append(["Who", "Desk"])
    for i in range(60):
        other.append([f"Person {i}", f"D-{i}"])
    found, (problem,) = read("book.xlsx", saved(book), words=30)
    assert found[0].page_content == (
        "Contacts of 2026\nName: Ada; Share: 0.25\nName: Total; Mobile: =40+2; Share: true"
    )
    assert known(found[0]) == {"title": "book, Sheet"}
    for passage in found[1:]:
        assert passage.page_content.startswith("Who: Person ")
        assert passage.metadata["title"] == "book, Staff"
    assert problem.reason == "1 formulas have no stored value: they stand as formulas"


def test_word_keeps_what_people_see(read: Any) -> None:
    document = docx.Document()
    document.add_heading("Terms", 1)
    paragraph = document.add_paragraph("R&D: List<int> for ")
    for xml in (
        '<w:ins {} w:id="1" w:author="A"><w:r><w:t>750</w:t></w:r></w:ins>',
        '<w:del {} w:id="2" w:author="A"><w:r><w:delText>GONE</w:delText></w:r></w:del>',
        '<w:moveFrom {} w:id="3" w:author="A"><w:r><w:t>MOVED</w:t></w:r></w:moveFrom>',
        "<w:r {}><w:tab/><w:t>EUR</w:t><w:noBreakHyphen/><w:t>net</w:t></w:r>",
        "<w:sdt {}><w:sdtContent><w:r><w:t xml:space='preserve"
        "'> to Orchid</w:t></w:r></w:sdtContent></w:sdt>",
        '<w:fldSimple {} w:instr="DOCPROPERTY no"><w:r><w:t>, INV-778</w:t></w:r></w:fldSimple>',
    ):
        paragraph._p.append(parse_xml(xml.format(WORD)))
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip(table._cells, ("Part", "Price", "Pump", "9 EUR"), strict=True):
        cell.text = text
    for name in ("contract.docx", "contract.docm"):
        (found,), problems = read(name, saved(document))
        assert "R&D: List<int> for 750 EUR-net to Orchid, INV-778" in found.page_content
        assert "| Part | Price |\n| --- | --- |\n| Pump | 9 EUR |" in found.page_content
        assert not {"GONE", "MOVED"} & set(found.page_content.split())
        assert (known(found), problems) == ({"title": "contract", "heading": "Terms"}, [])


def test_word_keeps_text_boxes_and_the_paragraph_that_holds_one(read: Any) -> None:
    box = "<w:txbxContent><w:p><w:r><w:t>In the box.</w:t></w:r></w:p></w:txbxContent>"
    names = WORD + ' xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    document = docx.Document()
    paragraph = document.add_paragraph("It holds a box.")._p
    paragraph.append(
        parse_xml(
            f"<w:r {names}><mc:AlternateContent><mc:Choice Requires='wps'><w:drawing>{box}"
            f"</w:drawing></mc:Choice><mc:Fallback><w:pict>{box}</w:pict></mc:Fallback>"
            "</mc:AlternateContent></w:r>"
        )
    )
    paragraph.append(parse_xml(f"<w:r {WORD}><w:rPr><w:vanish/></w:rPr><w:t>HIDDEN</w:t></w:r>"))
    (found,), _ = read("a.docx", saved(document))
    assert found.page_content == "It holds a box.\n\nIn the box."


def zipped(parts: dict[str, bytes]) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w") as made:
        for name, content in parts.items():
            made.writestr(name, content)
    return file.getvalue()


def test_word_keeps_its_first_footnote(read: Any) -> None:
    document, kind = docx.Document(), "officeDocument/2006/relationships/footnotes"
    mark = parse_xml(f'<w:r {WORD}><w:footnoteReference w:id="1"/></w:r>')
    document.add_paragraph("It hums.")._p.append(mark)
    with zipfile.ZipFile(io.BytesIO(saved(document))) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    related = (
        f'<Relationship Id="n" Type="http://schemas.openxmlformats.org/{kind}" Target="n.xml"/>'
    )
    name = "word/_rels/document.xml.rels"
    parts[name] = parts[name].replace(b"</Rel", related.encode() + b"</Rel")
    form = "<w:footnote w:id='{0}'><w:p><w:r><w:t>Note {0}.</w:t></w:r></w:p></w:footnote>"
    notes = f"<w:footnotes {WORD}>{''.join(map(form.format, range(-1, 2)))}</w:footnotes>"
    parts["word/footnotes.xml"] = notes.encode()  # -1 and 0 are lines above the notes
    (found,) = read("a.docx", zipped(parts))[0]
    assert found.page_content.startswith("It hums.\n\n[^1]:\n Note 1.")


def test_chapters_of_a_book_may_have_any_name(read: Any) -> None:
    manifest = '<item id="a" href="%C3%9C%201.xhtml" media-type="application/xhtml+xml"/>'
    manifest = f"<manifest>{manifest}</manifest><spine><itemref idref='a'/></spine>"
    root = "<container><rootfiles><rootfile full-path='b.opf'/></rootfiles></container>"
    parts = {"mimetype": b"application/epub+zip", "META-INF/container.xml": root.encode()}
    parts["b.opf"] = f"<package version='3.0'><metadata/>{manifest}</package>".encode()
    parts["\u00dc 1.xhtml"] = b"<html><body><h1>One</h1><p>It hums.</p></body></html>"
    assert read("a.epub", zipped(parts))[0][0].page_content == "# One\n\nIt hums."


def test_excel_repeats_merged_cells_and_shows_times(read: Any) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (["Region", "At"], ["North", time(14, 30)], [None, time(9)], ["South", date.max]):
        sheet.append(row)
    sheet.merge_cells("A2:A3")
    (found,), _ = read("a.xlsx", saved(book))
    assert found.page_content.split("\n") == [
        "Region: North; At: 14:30:00",
        "Region: North; At: 09:00:00",
        "Region: South; At: 9999-12-31",
    ]


def test_slides_with_tables_and_notes(read: Any) -> None:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Budget"
    slide.placeholders[1].text = "The budget is 9 million."
    slide.notes_slide.notes_text_frame.text = "Say it slowly."
    (found,), _ = read("deck.pptx", saved(deck))
    for text in ("Budget", "The budget is 9 million.", "Say it slowly."):
        assert text in found.page_content


def test_pdf_pages_have_numbers_and_whole_words(read: Any) -> None:
    found, problems = read("fees.pdf", pdf("One.", "The reim-\nbursement is\n85 francs.", ""))
    pages = {d.metadata["page"]: " ".join(d.page_content.split()) for d in found}
    assert pages == {1: "One.", 2: "The reimbursement is 85 francs."}
    assert problems[0].reason == "1 of 3 pages have no text: a scan needs OCR first"


def test_a_section_is_kept_though_its_id_is_a_word_of_navigation(read: Any) -> None:
    sections = "<section id=cookies><h2>Cookies</h2>14 days.</section><p id=toc>TOC Up"
    sections += "<div class=section id=share><h2>Share</h2>It is free.</div>"
    found, _ = read("a.html", f"<main><p>{'A line. ' * 20}{sections}</main>")
    texts = " ".join(d.page_content for d in found)
    assert ("14 days." in texts, "free" in texts, "Up" in texts) == (True, True, False)


def test_html_main_content_with_tables(read: Any) -> None:
    page = (
        "<!doctype html><title>Hours | Museum</title><nav><a href=/>Home</a></nav><main>"
        "<h1>Hours</h1><table><tr><th>Day<th>Opens<tr><td>Monday<td>closed</table>"
        "<p>List&lt;int&gt; is <b>bo</b>ld.</main><div class='cookie-banner'>Accept</div>"
        "<footer>Imprint</footer><script>alert(1)</script>"
    )
    (found,), _ = read("hours.html", page)
    assert found.page_content == (
        "# Hours\n\n| Day | Opens |\n| --- | --- |\n| Monday | closed |\nList<int> is bold."
    )
    assert known(found) == {"title": "Hours | Museum", "heading": "Hours"}


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.html", '<meta charset="windows-1251"><p>Приказ'.encode("cp1251"), "Приказ"),
        ("a.html", b"<meta charset=latin1><p>\x93quoted\x94 \x80 5", "“quoted” € 5"),
        ("a.html", "<form><p>A page in a form.<input name=a></form>", "A page in a form."),
        (
            "a.html",
            "<header>Site</header><article><header>Post</header><p>One.</article>"
            "<article>Two.<form>Subscribe</form></article><p>And more of it.",
            "Post\n\nOne.\n\nTwo.\n\nAnd more of it.",
        ),
        (
            "m.eml",
            "Subject: Your order\nContent-Type: text/html\n\n"
            "<table><tr><th>Order<th>Sum<tr><td>4711<td>5 &lt; 6</table><p>Thanks.",
            "Subject: Your order\n\n| Order | Sum |\n| --- | --- |\n| 4711 | 5 < 6 |\n\nThanks.",
        ),
        ("a.html", "<h1>Pump</h1>It costs 5 €.<article>Good.", "# Pump\n\nIt costs 5 €.\n\nGood."),
        ("a.html", "<p>A site's text.</p><article><h1>P</h1>On.</article>", "# P\n\nOn."),
        ("a.html", f"<p>{'One. ' * 9}<aside>Ad.</aside>", "One. " * 8 + "One."),
        ("a.html", "<main><article>One.</article><aside>Note.</aside></main>", "One.\n\nNote."),
        (
            "a.html",
            f"<header><h1>S</h1></header>Log in.<article>{'One. ' * 9}",
            "One. " * 8 + "One.",
        ),
        ("a.html", b'<meta charset="utf-16"><p>It is ASCII.', "It is ASCII."),
        ("a.txt", "One.\r\n\r\nTwo.\r\n", "One.\n\nTwo."),
        ("a.html", "<title>T</title><main><p>One.</main><main><p>Two.</main>", "One.\n\nTwo."),
        ("a.txt", "приказ".encode("utf-16"), "приказ"),
        ("a.txt", "naïve – café".encode("cp1252"), "naïve – café"),
        ("a.rst", "Notes\n=====\n\nPort 7070.\n", "Notes\n=====\n\nPort 7070."),
        ("a.ipynb", notebook("# F\n", "It is 3e-4."), "# F\n\nIt is 3e-4."),
        ("a.json", '[{"title": "T", "text": "Row."}]', "Row."),
        ("a.json", '{"port": 7070}', '{"port": 7070}'),
        ("a.jsonl", '{"contents": "Row."}\n\n', "Row."),
    ],
)
def test_other_kinds_and_encodings(read: Any, name: str, content: Any, text: str) -> None:
    assert [d.page_content for d in read(name, content)[0]] == [text]


@pytest.mark.parametrize("kind", ["docx", "ipynb", "rst", "eml", "html"])
def test_signs_stand_as_they_were_written(read: Any, kind: str) -> None:
    text = r"Open C:\dir\new_file or \\srv\[x] at /?a=1&section=2 ! a < b"
    document, escaped = docx.Document(), html.escape(text)
    document.add_paragraph(text)
    content = {
        "docx": saved(document),
        "ipynb": notebook(text),
        "rst": text,
        "eml": f"Subject: Paths\nContent-Type: text/plain\n\n{text}\n",
        "html": f"<p>{escaped}<pre>{escaped}</pre>",
    }
    (found,), problems = read(f"a.{kind}", content[kind])
    assert problems == []
    assert found.page_content.count(text) == (2 if kind == "html" else 1)


@pytest.mark.parametrize("kind", ["csv", "xlsx", "eml", "html", "pdf"])
def test_a_name_need_not_be_utf8(read: Any, kind: str) -> None:
    book = openpyxl.Workbook()
    book.active.append(["port 7070"])
    content = {"xlsx": saved(book), "pdf": pdf("port 7070"), "eml": "To: a\n\nport 7070\n"}
    try:
        found, problems = read(
            os.fsdecode(b"caf\xe9." + kind.encode()), content.get(kind, "port 7070")
        )
    except OSError:
        pytest.skip("this file system refuses such names")
    assert ("port 7070" in found[0].page_content, problems) == (True, [])


def test_a_blank_title_is_not_one(read: Any) -> None:
    row = '{"title": " ", "text": "Row."}'
    assert read("a_b.json", row)[0][0].metadata["title"] == "a b"
    assert read("a.eml", "Subject:  \nTo: a\n\nRow.\n")[0][0].metadata["title"] == "a"


def test_mail_with_its_subject_and_attachments(read: Any) -> None:
    mail = (
        "Subject: Delivery\nFrom: a@example.org\nMIME-Version: 1.0\n"
        'Content-Type: multipart/mixed; boundary="b"\n\n--b\nContent-Type: text/html\n\n'
        "<p>It comes on 4 May.</p>\n--b\nContent-Type: application/pdf\n"
        'Content-Disposition: attachment; filename="plan.pdf"\n\nx\n--b--\n'
    )
    blank = "<p>It comes on 4 May.</p>\n--b\nContent-Type: text/plain\n\n \n--b--\n"
    blank = mail.split("<p>")[0].replace("mixed", "alternative") + blank
    assert "It comes on 4 May." in read("a.eml", blank)[0][0].page_content
    found, (problem,) = read("m.eml", mail)
    text = "\n".join(d.page_content for d in found)
    assert "From: a@example.org" in text
    assert "It comes on 4 May." in text
    assert found[0].metadata["title"] == "Delivery"
    assert problem.reason == "attachments are not read: plan.pdf"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.txt", "会议每周二上午十点".encode("gb18030"), "--encoding gb18030"),
        ("a.txt", "Łąka przyszła".encode("cp1250"), "name its encoding"),
        ("a.eml", b"Content-Type: text/plain; charset=x-none\n\nRow.\n", "x-none"),
        ("a.png", b"\x89PNG\r\n\x1a\n\0\0", "binary data, and .png is not a kind"),
        ("a.pdf", b"%PDF-1.4 nothing", "broken, encrypted or of an unknown version"),
        ("a.docx", b"nothing", "broken, encrypted or of an unknown version"),
        ("a.xlsx", b"nothing", "broken, encrypted or of an unknown version"),
        ("a.odt", b"nothing", "broken, encrypted or of an unknown version"),
        ("a.txt.gz", gzip.compress(b"x" * 999, mtime=0), "binary data, and .gz is not a kind"),
        ("a.json", "{", "not JSON in 1 of its lines, the first is line 1"),
        (
            "a.docx",
            b"PK\5\6" + b"\0" * 6 + b"\1\0\x2e\0\0\0" + b"\0" * 6,
            "broken, or nested too deeply",
        ),
        ("a.md", " \n", "no text in it"),
    ],
)
def test_files_that_are_not_read_are_named(read: Any, name: str, content: Any, reason: str) -> None:
    found, (problem,) = read(name, content)
    assert found == []
    assert reason in problem.reason
    assert not problem.partly


def test_files_that_are_too_large_are_not_read(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (convert.MAX_BYTES, convert.MAX_UNPACKED) == (2**27, 2**29)  # as the docs say
    monkeypatch.setattr(convert, "MAX_BYTES", 2**20)
    monkeypatch.setattr(convert, "MAX_UNPACKED", 2**22)
    with zipfile.ZipFile(docs / "a.docx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"x" * 10_000_000)
    (docs / "a.txt").write_bytes(b"x" * 2_000_000)
    reasons = {"a.docx": "unpacks to more than 4 MiB", "a.txt": "larger than 1 MiB"}
    for name, reason in reasons.items():
        with pytest.raises(convert.NotRead, match=reason):
            convert.convert(docs / name, None)


def test_rows_are_passages_at_any_depth(read: Any) -> None:
    reply = {"text": " ", "body": "Two."}
    parts = [reply, {"text": "One"}]  # the text has the second
    row = {"ctxs": [{"title": "T", "text": "One.", "parts": parts}, {"text": "Three."}]}
    found, _ = read("a.json", json.dumps([row]))
    texts = [(d.metadata["title"], d.page_content) for d in found]
    assert texts == [("T", "One."), ("T", "Two."), ("a", "Three.")]


def test_broken_lines_do_not_cost_the_rest(read: Any) -> None:
    lines = '{"text": "One.\u2028"}\nnot json\n{"text": "Two."}\n['
    found, (problem,) = read("a.jsonl", lines)
    assert [d.page_content for d in found] == ["One.", "Two."]
    assert problem.partly
    assert problem.reason == "not JSON in 2 of its lines, the first is line 2"


def test_an_encoding_can_be_named(read: Any) -> None:
    text = "会议每周二上午十点"
    (found,), problems = read("a.txt", text.encode("gb18030"), encoding="gb18030")
    assert (found.page_content, problems) == (text, [])
    (problem,) = read("b.txt", text.encode("gb18030"), encoding="no-such")[1]
    assert "give another --encoding" in problem.reason


@pytest.mark.parametrize(
    ("stand_in", "reason"),
    [("while True: pass", "takes longer than 1 s"), ("exit(1)", "the converter crashed on it")],
)
def test_a_file_that_hangs_or_crashes_costs_only_itself(
    docs: Path, monkeypatch: pytest.MonkeyPatch, stand_in: str, reason: str
) -> None:
    program = docs.parent / "stand_in.py"
    program.write_text(stand_in)
    monkeypatch.setattr(convert, "__file__", str(program))
    monkeypatch.setattr(documents, "TIME_LIMIT", 1.0)
    (docs / "a.pdf").write_bytes(pdf("One."))
    (docs / "b.txt").write_text("Fine.")
    problems: list[Problem] = []
    assert [d.page_content for d in load([docs], problems.append)] == ["Fine."]
    assert [problem.reason for problem in problems] == [reason]
