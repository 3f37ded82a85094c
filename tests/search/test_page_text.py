"""Pages of the web as text: nothing of a text is lost, and no page is too broken or too deep."""

import pytest

from selfcorrect_rag.search.page_text import page_text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<b>bold</b> &lt;kept&gt;<!-- gone -->", "bold <kept>"),
        ("<p>one<p>two<br>three</p>\n<ul><li>four<li>five</ul>", "one\ntwo\nthree\nfour\nfive"),
        ("<!DOCTYPE html><html><head><title>T</title></head><body>b</body></html>", "T\nb"),
        ("<?xml version='1.0'?><a href='x'>link</a>", "link"),
        ("<style>p { color: red }</style>a<SCRIPT>if (a<b) '</div>'</SCRIPT >b", "a b"),
        ("<svg><script>k</script></svg>a<noscript>b</noscript>", "a b"),
        ("<textarea><b>typed</b></textarea>", "<b>typed</b>"),
        ("<a title='1 < 2' href=\"x\">two</a>", "two"),
        ("It&amp;s &copy; AT&T &amp;lt; &nbsp;&#x41;&#66;", "It&s \u00a9 AT&T &lt; AB"),
        ("a\r\n\n \t\nb\u2028c", "a\nb\nc"),
    ],
)
def test_markup_is_left_out(page: str, text: str) -> None:
    assert page_text(page) == text


@pytest.mark.parametrize(
    "text",
    [
        "if a < b and c > d:\nx",
        "List<int> x = new Map<String, List<T>>();",
        "a <- b -> c <= d <> e << f",
        "write <!-- to begin a comment",
        "the <script> element, the <b> one and the <script",
        "<stdio.h> <alice@example.org> <3 <",
        "<![CDATA[ kept ]]>",
        "x <p and <li without an end",
    ],
)
def test_what_is_no_markup_is_text(text: str) -> None:
    assert page_text(text) == text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<div>" * 100_000 + "deep", "deep"),
        ("<div>" * 100_000 + "deep" + "</div>" * 100_000, "deep"),
        (f"<p title='{'x' * 11_000_000}' {'a=1 ' * 10_000}>after</p>", "after"),
        ("a&bogus; &#; &#0; &#xD800; &#99999999999; &", "a&bogus; &#; \ufffd \ufffd \ufffd &"),
        ("a\x00b \ud83d <b>c\udfff</b>\x1b[31m\u202ed\u200b\ufeff", "a b c [31m d"),
        ("</p></div></nothing>a", "a"),
        ("<p title='never ended>all of it", ""),
        ("", ""),
    ],
)
def test_what_is_broken_or_huge_is_read(page: str, text: str) -> None:
    # Without ids, which would be as huge.
    assert page_text(page) == text
