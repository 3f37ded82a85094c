"""The README's recording shows each row for as long as the terminal did."""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
NAME = "{http://www.w3.org/2000/svg}"
as_svg = runpy.run_path(str(DOCS / "recording.py"))["as_svg"]
SHOWN = [
    (0.0, ["$", ""]),
    (1.0, ["$ ask", "\x1b[1;32mloading\x1b[0m <1>"]),
    (2.0, ["$ ask", ""]),
    (3.0, ["$ ask", "\x1b[1;32mloading\x1b[0m <1>"]),
    (7.0, ["$ ask", "Priya & Tom"]),
]


def test_rows_are_visible_when_they_were_and_the_last_screen_stays() -> None:
    svg = as_svg(SHOWN)
    texts = ElementTree.fromstring(svg).findall(f"{NAME}text")
    said = {"".join(text.itertext()): text for text in texts}
    assert list(said) == ["$", "$ ask", "loading <1>", "Priya & Tom"]
    assert [name for name, text in said.items() if "last" in text.get("class", "")] == [
        "$ ask",
        "Priya & Tom",
    ]
    moves = {name: text.get("id") for name, text in said.items()}
    shown = {
        name: re.search(rf"@keyframes {moves[name].replace('v', 'k')}{{(.*?)}}#", svg)[1]  # type: ignore[index, union-attr]
        for name in said
    }
    on, off = "{visibility:visible}", "{visibility:hidden}"
    assert shown["$ ask"] == f"0%{off}10.00%{on}"  # of ten seconds: seven, and three to read
    assert shown["loading <1>"] == f"0%{off}10.00%{on}20.00%{off}30.00%{on}70.00%{off}"


def test_colours_are_kept_and_letters_have_fixed_places() -> None:
    (bold, plain) = ElementTree.fromstring(as_svg(SHOWN)).findall(f"{NAME}text")[2]
    assert (bold.text, bold.get("font-weight")) == ("loading", "bold")
    assert bold.get("fill") != plain.get("fill") is None
    step = float(bold.get("textLength", "")) / len("loading")
    behind = float(bold.get("x", "")) + step * len("loading")
    assert float(plain.get("x", "")) == pytest.approx(behind)


def test_the_readme_s_recording_ran_the_commands_of_the_program() -> None:
    svg = ElementTree.fromstring((DOCS / "assets" / "terminal.svg").read_text(encoding="utf-8"))
    shown = "\n".join("".join(text.itertext()) for text in svg.findall(f"{NAME}text"))
    for command in runpy.run_path(str(DOCS / "recording.py"))["COMMANDS"]:
        assert f"$ {command}\n" in shown
    assert "Priya Raman [1]" in shown
    assert "The documents do not say." in shown
