"""A run as a page: complete, inert whatever it holds, and whole without any key."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag import render_run, show_run
from selfcorrect_rag.ui import MAX_CHARACTERS
from selfcorrect_rag.ui.page import json_value, segments
from tests.agents.scripted import GRAPHS


@pytest.fixture(params=GRAPHS, ids=lambda graph: graph.__name__)
def result(request: pytest.FixtureRequest) -> Any:
    return request.param().invoke({"question": "Who wrote Emma?"})


class Ids(HTMLParser):
    """Collects the ids, links and tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if value and name in ("id", "href"):
                (self.ids if name == "id" else self.links).append(value)


def test_a_run_and_its_json_are_the_same_page(result: Any) -> None:
    page = render_run(result)
    assert render_run(json.loads(json.dumps(result, default=json_value))) == page
    found = Ids(page)
    assert len(found.ids) == len(set(found.ids))
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    assert "script" not in found.tags
    for passage in result["passages"]:
        assert passage.metadata["title"] in page
    assert result["answer"].splitlines()[-1].split("[")[0].strip()[:20] in page


def test_any_key_may_be_missing(result: Any) -> None:
    for key in result:
        assert render_run({name: value for name, value in result.items() if name != key})
    assert "No answer was written" in render_run({})


def test_citations_lead_to_their_passage_with_page_and_address() -> None:
    cited = {"number": 1, "title": "Emma", "source": "https://books.example/emma", "passage": 0}
    citation = {**cited, "quote": "", "page": 3, "heading": "Novels > Emma"}
    passages = [{"text": "Emma is a novel.", "metadata": {"title": "Emma"}}]
    page = render_run({"cited_answer": "Austen [1]", "citations": [citation], "passages": passages})
    for shown in (", page 3", "Novels &gt; Emma", 'href="https://books.example/emma"'):
        assert shown in page
    assert 'href="#passages-1"' in page


@given(st.text(max_size=50))
def test_no_text_becomes_markup_or_hides(text: str) -> None:
    hostile = f'<img src=x onerror="x">{text}</style><script>\u202e\x1b'
    cited = {"number": 1, "title": hostile, "source": "javascript:x", "quote": hostile}
    page = render_run(
        {
            "question": hostile,
            "answer": hostile,
            "cited_answer": f"{hostile} [1]",
            "citations": [{**cited, "passage": 0}],
            "passages": [{"text": hostile, "metadata": {"title": hostile, "source": hostile}}],
            "notes": [hostile],
            "rationale": hostile,
            "route": [{"step": hostile, "failed": hostile}],
        }
    )
    found = Ids(page)
    assert not {"img", "script"} & set(found.tags)
    assert found.tags.count("style") == 1
    assert not [link for link in found.links if link.startswith("javascript")]
    assert "\u202e" not in re.sub(r"<title>.*?</title>|class=\"kicker\".*?</p>", "", page)


def test_a_page_and_a_notebooks_frame_run_no_script() -> None:
    long = "a" * (MAX_CHARACTERS + 5)
    frame = show_run({"question": '"Who?"', "answer": long})
    assert "… (5 characters more)" in frame.html
    assert re.search(r"style-src 'sha256-[\w+/]{43}='", frame.html)
    assert "allow-scripts" not in frame._repr_html_()


def test_candidates_are_ranked_within_their_segment() -> None:
    scores = [(0, 0.5), (0, 1.5), (1, 0.1), (1, None), (1, 0.9)]
    candidates = [{"depth": depth, "path_score": score} for depth, score in scores]
    ranked = [[row["path_score"] for row in rows] for rows in segments(candidates)]
    assert ranked == [[1.5, 0.5], [0.9, 0.1, None]]
