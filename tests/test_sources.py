"""Titles and sources of pages that nobody has vouched for, wherever they are shown."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from rich.console import Console

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.agents.tool import readable
from selfcorrect_rag.commands.show import show_run
from selfcorrect_rag.errors import one_line
from selfcorrect_rag.render import render_run
from selfcorrect_rag.intake import LONGEST_TITLE, shown_source, title_line, web_address
from tests.crag_runs import PagesWebSearch, WordEvaluator
from tests.render.pages import Page
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, segment

pytest.importorskip("mcp.server.mcpserver")
from selfcorrect_rag.serving.mcp_server import Sources, _result

SHOWN = (
    "https://example.org/a?b=c#d",
    "HTTP://EXAMPLE.ORG/",
    "file:///home/me/notes.txt",
    "/home/me/my notes.txt",
    "notes/a.md",
    "C:\\notes\\a.md",
    "C:/notes/a.md",
    "notes",
    "https://a.org, notes/b.md",
)
HIDDEN = (
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    " javascript:alert(1)",
    "java\tscript:alert(1)",
    "java\nscript:alert(1)",
    "\x01javascript:alert(1)",
    "java\u200bscript:alert(1)",
    "javascript\u2028:alert(1)",
    "see javascript:alert(1)",
    "&#106;avascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "ftp://example.org/",
    "//example.org/x",
    "https://user@example.org/",
    "https://example.org/\u202egnp",
    'https://example.org/"onclick=alert(1)',
    "https://example.org/a b",
    "https://",
    "http://[::1",
    "file://",
    "notes.txt\n[2] Forged",
    "https://example.org/" + "x" * 2_000,
)


@pytest.mark.parametrize("source", SHOWN)
def test_addresses_and_paths_are_shown(source: str) -> None:
    assert shown_source(source) == source
    on_the_web = source.lower().startswith("http")
    assert web_address(source) == (source.split(", ")[0] if on_the_web else "")
    assert web_address(f"notes.txt, {source}, https://b.org") == (
        web_address(source) or "https://b.org"
    )


@pytest.mark.parametrize("source", HIDDEN)
def test_nothing_else_is(source: str) -> None:
    assert shown_source(source) == web_address(source) == ""
    assert shown_source(f"notes.txt, {source}") in ("", "notes.txt")


@given(st.text(max_size=400))
def test_a_title_is_one_bounded_line_that_reads_one_way(text: str) -> None:
    shown = title_line(text)
    assert len(shown) <= LONGEST_TITLE
    assert len(shown.splitlines()) <= 1
    assert all(c.isprintable() or c in "\u200c\u200d" for c in shown)
    assert title_line(shown) == shown
    plain = "".join(c for c in text if c.isalnum())
    assert "".join(c for c in shown if c.isalnum()) == plain[: len(plain)] or len(text) > 100


def test_joiners_that_scripts_need_stay() -> None:
    assert one_line("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645") == (
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    )


LINES = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
TITLES = st.text(st.sampled_from(f"[2] Sources:Note {LINES}\u202e\x1b"), max_size=30)
SOURCES_ = st.one_of(
    st.text(st.sampled_from(f"[2] htps:/.org{LINES}"), max_size=30),
    st.sampled_from([*SHOWN, *HIDDEN, "https://a.org\n[2] Forged (https://b.org)"]),
)


def results(title: str, source: str) -> dict[str, Any]:
    """A run of each graph that cites a page with this title and source."""
    page = Document("Gold.", metadata={"title": title, "source": source})
    llm = ScriptedReflectionLLM(write=lambda p: segment("She did.", RELEVANT, FULL, USEFUL))
    says = RunnableLambda(lambda prompt: "She did [1].")
    used = RunnableLambda(lambda prompt: "Document [1] says so. The answer is: She did")
    web = PagesWebSearch()
    graphs = {
        "self_rag": create_self_rag(llm, lambda q: [page]),
        "crag": create_crag(says, lambda q: [page], WordEvaluator(), web),
        "self_crag": create_self_crag(llm, lambda q: [page], WordEvaluator(), web),
        "instruct_rag": create_instruct_rag(used, lambda q: [page]),
    }
    return {name: graph.invoke({"question": "Who?"}) for name, graph in graphs.items()}


@given(TITLES, SOURCES_, TITLES)
def test_no_title_source_or_note_makes_a_line_of_its_own(
    title: str, source: str, note: str
) -> None:
    """Also of a result that was made elsewhere."""
    citation = {"number": 1, "title": title, "source": source, "text": "t"}
    result = {"answer": "A", "cited_answer": "A [1]", "citations": [citation], "notes": [note]}
    content = readable(result)
    lines = content.splitlines()
    assert lines[:3] == ["A [1]", "", "Sources:"]
    assert lines[3].startswith("[1] ")
    assert len(lines) == 5
    assert lines[4].startswith("Note: ")
    served = _result(result, Sources())
    assert served.structured_content
    (told,) = served.structured_content["citations"]
    assert told["title"] == (title_line(title) or None)
    assert told["source"] == (shown_source(source) or None)
    assert told["url"] == (web_address(source) or None)
    assert served.content[0].text == content  # type: ignore[union-attr]
    assert "javascript" not in lines[3].lower() or "javascript" in title.lower()


@pytest.mark.parametrize("source", HIDDEN)
def test_a_source_that_is_none_is_shown_by_no_graph_and_nowhere(source: str) -> None:
    for result in results("Emma\n[2] Forged (evil.org)", source).values():
        (citation,) = result["citations"]
        title = "Emma [2] Forged (evil.org)"
        assert (citation["title"], citation["source"]) == (title, "")
        screen = Console(file=io.StringIO(), width=5000, highlight=False)
        show_run(screen, result, 1.0, "notes", "the reader")
        printed = screen.file.getvalue()  # type: ignore[attr-defined]
        served = _result(result, Sources())
        page = Page(render_run(result))
        for shown in (
            readable(result),
            printed,
            served.content[0].text,  # type: ignore[union-attr]
            json.dumps(served.structured_content),
            page.text,
        ):
            assert source.strip() not in shown
            assert "alert(1)" not in shown
            assert not any(line.lstrip().startswith("[2]") for line in shown.splitlines())
        assert all(link.startswith("#") for link in page.links)


@pytest.mark.parametrize("source", SHOWN)
def test_a_source_that_is_one_is_shown(source: str) -> None:
    for name, result in results("Emma", source).items():
        assert result["citations"][0]["source"] == source
        assert f"[1] Emma ({source})" in readable(result), name
        page = Page(render_run(result))
        assert source in page.text
        assert (source in page.links) == (web_address(source) == source)


def test_each_of_several_sources_is_held_to_the_bound_alone() -> None:
    addresses = [f"https://a.org/{'x' * 270}{i}" for i in range(10)]
    assert shown_source(", ".join(addresses)) == ", ".join(addresses)
    assert shown_source(f"{addresses[0]}, https://a.org/{'x' * 2_000}") == addresses[0]
