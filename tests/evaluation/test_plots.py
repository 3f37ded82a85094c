"""Plots: what is drawn, and that names of strangers stay text."""

import xml.etree.ElementTree as ET

import pytest

from selfcorrect_rag.evaluation.plots import Line, plot

SVG = "{http://www.w3.org/2000/svg}"
LINE = Line("crag", [(0, 0.1), (1, 0.5)], [(0.0, 0.2), (0.4, 0.6)])


def texts(svg: str) -> list[str]:
    return [
        "".join(element.itertext()).strip() for element in ET.fromstring(svg).iter(f"{SVG}text")
    ]


def test_the_same_lines_give_the_same_text() -> None:
    assert plot([LINE], "weight", "match") == plot([LINE], "weight", "match")
    other = LINE._replace(points=[(0, 0.1), (1, 0.6)])
    assert plot([LINE], "weight", "match") != plot([other], "weight", "match")


def test_axes_and_several_lines_are_named() -> None:
    one = texts(plot([LINE], "weight", "match"))
    assert {"weight", "match"} <= set(one)
    assert "crag" not in one
    both = texts(plot([LINE, LINE._replace(name="rag")], "weight", "match"))
    assert {"crag", "rag"} <= set(both)


def test_values_that_are_no_numbers_are_named_below_the_axis() -> None:
    assert {"none", "correct"} <= set(texts(plot([LINE], "x", "y", at=["none", "correct"])))


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "$\\frac$", "a --> b", "& < >"])
def test_a_name_is_text_and_no_markup_or_formula(name: str) -> None:
    drawn = plot([LINE._replace(name=name), LINE], name, "y")
    assert "<script" not in drawn
    assert texts(drawn).count(name) == 2


def test_the_diagonal_and_the_interval_are_drawn_where_they_are_wanted() -> None:
    plain, full = plot([LINE._replace(ends=())], "x", "y"), plot([LINE], "x", "y")
    assert 'fill-opacity="0.15"' in full
    assert 'fill-opacity="0.15"' not in plain
    assert plot([LINE], "x", "y", diagonal=True) != full


def test_colours_need_no_style_which_a_page_would_not_let_in() -> None:
    drawn = plot([LINE._replace(name='a style="b: c"')], "x", "y", at=['style="d: e"'])
    assert "<style" not in drawn
    elements = list(ET.fromstring(drawn).iter())
    assert not [element for element in elements if "style" in element.attrib]
    assert 'style="d: e"' in texts(drawn)
    assert any(element.get("stroke") == "#1b6ca8" for element in elements)
