"""A run as a page: complete, inert whatever it holds, and whole without any key."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from selfcorrect_rag import (
    create_crag,
    create_instruct_rag,
    create_self_crag,
    create_self_rag,
    render_run,
    show_run,
)
from selfcorrect_rag.render.view import MAX_CHARACTERS, json_value, segments, visible
from tests.agents.scripted import reflecting
from tests.crag_runs import PagesWebSearch, WordEvaluator

PASSAGES = [
    Document(
        "Emma is a novel by Jane Austen. Gold.",
        metadata={"title": "Emma", "source": "https://books.example/emma", "page": 3},
    ),
    Document("Vague words.", metadata={"title": "Noise", "source": "noise.txt"}),
]
QUESTION = {"question": "Who wrote Emma?"}


def retrieve(query: str) -> list[Document]:
    return PASSAGES


def chat() -> Any:
    return FakeListChatModel(responses=["Document [1] says it.\n\nAnswer: Jane Austen [1]"] * 9)


RUNS = {
    "self_rag": lambda: create_self_rag(reflecting(), retrieve),
    "crag": lambda: create_crag(chat(), retrieve, WordEvaluator(), PagesWebSearch()),
    "self_crag": lambda: create_self_crag(
        reflecting(), retrieve, WordEvaluator(), PagesWebSearch()
    ),
    "instruct_rag": lambda: create_instruct_rag(chat(), retrieve),
}


class Ids(HTMLParser):
    """Collects ids and links within a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.ids += [given["id"]] if given.get("id") else []  # type: ignore[list-item]
        self.links += [given["href"]] if given.get("href") else []  # type: ignore[list-item]


@pytest.mark.parametrize("graph", RUNS)
def test_a_run_and_its_json_are_the_same_page(graph: str) -> None:
    result = RUNS[graph]().invoke(QUESTION)
    page = render_run(result)
    assert render_run(json.loads(json.dumps(result, default=json_value))) == page
    found = Ids(page)
    assert len(found.ids) == len(set(found.ids))
    inside = [link[1:] for link in found.links if link.startswith("#")]
    assert set(inside) <= set(found.ids)
    assert "script" not in found.tags
    for passage in result["passages"]:
        assert passage.metadata["title"] in page
    assert result["answer"].splitlines()[-1].split("[")[0].strip() in page


def test_citations_lead_to_their_passage_with_page_and_address() -> None:
    result = RUNS["self_rag"]().invoke(QUESTION)
    citation = {**result["citations"][0], "page": 3, "heading": "Novels > Emma"}
    page = render_run({**result, "citations": [citation]})
    assert ", page 3" in page
    assert "Novels &gt; Emma" in page
    assert 'href="https://books.example/emma"' in page
    assert f'href="#passages-{citation["passage"] + 1}"' in page


@given(st.text(max_size=50))
def test_no_text_becomes_markup_or_hides(text: str) -> None:
    hostile = f'<img src=x onerror="x">{text}</style><script>\u202e\x1b'
    result = {
        "question": hostile,
        "answer": hostile,
        "cited_answer": f"{hostile} [1]",
        "citations": [
            {
                "number": 1,
                "title": hostile,
                "source": "javascript:x",
                "quote": hostile,
                "passage": 0,
            }
        ],
        "passages": [{"text": hostile, "metadata": {"title": hostile, "source": hostile}}],
        "notes": [hostile],
        "rationale": hostile,
        "route": [{"step": hostile, "failed": hostile}],
    }
    page = render_run(result, title=hostile)
    found = Ids(page)
    assert not {"img", "script"} & set(found.tags)
    assert found.tags.count("style") == 1
    assert not [link for link in found.links if link.startswith("javascript")]
    assert "\u202e" not in re.sub(r"<title>.*?</title>|class=\"kicker\".*?</p>", "", page)


@pytest.mark.parametrize("graph", RUNS)
def test_any_key_may_be_missing(graph: str) -> None:
    result = RUNS[graph]().invoke(QUESTION)
    for key in result:
        assert render_run({name: value for name, value in result.items() if name != key})
    assert "No answer was written" in render_run({})


def test_long_texts_are_cut_and_say_so() -> None:
    assert visible("a" * (MAX_CHARACTERS + 5)).endswith("… (5 characters more)")
    assert visible("a\u200db c") == "a\u200db c"


def test_the_style_is_the_one_that_the_page_allows() -> None:
    page = render_run({"question": "Who?"})
    assert re.search(r"style-src 'sha256-[\w+/]{43}='", page)
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_notebook_gets_a_frame_without_scripts() -> None:
    frame = show_run({"question": '"Who?"'}, height=300)._repr_html_()
    assert "allow-scripts" not in frame
    assert "height:300px" in frame
    assert frame.count('"') % 2 == 0


def test_candidates_are_ranked_within_their_segment() -> None:
    scores = [(0, 0.5), (0, 1.5), (1, 0.1), (1, None), (1, 0.9)]
    candidates = [{"depth": depth, "path_score": score} for depth, score in scores]
    ranked = [[row["number"] for row in rows] for rows in segments(candidates, "passages")]
    assert ranked == [[1, 0], [4, 2, 3]]
