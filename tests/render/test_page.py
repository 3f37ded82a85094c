"""The page of a run: what is on it, and that nothing of the run becomes markup."""

import json
import re
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import create_crag, render_run, show_run
from selfcorrect_rag.commands.ask import result_as_json
from selfcorrect_rag.render.markup import LONGEST
from selfcorrect_rag.render.route import in_words
from tests.crag_runs import INCORRECT, PagesWebSearch, WordEvaluator, document
from tests.instruct_runs import RATIONALE, run
from tests.render.conftest import Run
from tests.render.pages import HOSTILE, SOURCES, Page, rationale_of, result_of
from tests.scripted import echo

GRAPHS = ("self_rag", "crag", "self_crag", "instruct_rag")
NAMES = {
    "self_rag": "Self-RAG",
    "crag": "CRAG",
    "self_crag": "Self-CRAG",
    "instruct_rag": "InstructRAG",
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_real_run(graph: str, runs: dict[str, Run]) -> None:
    result, nodes = runs[graph]
    page = Page(render_run(result))
    assert f"A run of {NAMES[graph]}" in page.text
    assert result["question"] in page.text
    assert " ".join(result["answer"].split()) in page.text
    for node in nodes:
        assert in_words(node) in page.text
        assert node in [span.get("title") for span in page.of("span")]
    for passage in result["passages"]:
        assert passage.metadata["title"] in page.text
        assert " ".join(passage.page_content.split())[:80] in page.text
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        assert link.startswith("#")
        assert link[1:] in page.ids
    name = "knowledge" if "crag" in graph else "passage"
    # A ReflectionLLM reads CRAG's knowledge as one passage and points at none of it.
    assert bool(result["citations"]) == (graph != "crag")
    for citation in result["citations"]:
        assert f"#{name}-{citation['passage'] + 1}" in page.links


@pytest.mark.parametrize("graph", GRAPHS)
def test_json_gives_the_same_page(graph: str, runs: dict[str, Run]) -> None:
    result, _ = runs[graph]
    given = json.loads(result_as_json(result, 1.5))
    assert render_run(given) == render_run({**result, "seconds": 1.5})


def test_json_of_a_paused_run_says_what_it_waits_for() -> None:
    graph = create_crag(
        echo(),
        lambda query: [document(text) for text in INCORRECT],
        WordEvaluator(),
        PagesWebSearch(),
        checkpointer=InMemorySaver(),
        settings={"approve_search": True},
    )
    paused = graph.invoke({"question": "Who wrote Emma?"}, {"configurable": {"thread_id": "1"}})
    (waits,) = paused["__interrupt__"]
    given = json.loads(result_as_json(paused, 1.5))
    assert given["__interrupt__"] == [{"value": waits.value, "id": waits.id}]
    page = render_run(given)
    assert page == render_run({**paused, "seconds": 1.5})
    assert "Paused ask: search the web?" in Page(page).text


def test_scores_of_candidates_are_text_and_bars(runs: dict[str, Run]) -> None:
    result, _ = runs["self_rag"]
    page = render_run(result)
    for i, candidate in enumerate(result["candidates"], start=1):
        card = page[page.index(f'id="candidate-{i}"') :]
        for group in ("ISREL", "ISSUP", "ISUSE"):
            shown = re.search(rf'{group}</span>(.*?)<span class="value">([^<]*)<', card, re.DOTALL)
            assert shown
            value = candidate["critique"][group]
            if value is None:
                assert (shown[2], "fill" in shown[1]) == ("\u2013", False)
            else:
                assert shown[2].replace("\u2212", "-") == f"{round(value, 2) + 0.0:.2f}"
                assert "fill" in shown[1]
    assert page.count('class="card chosen"') == sum(c["chosen"] for c in result["candidates"])


def test_bars_are_as_long_as_their_values() -> None:
    scores = {"ISREL": 0.25, "ISSUP": 1.0, "ISUSE": -0.5}
    given = {"critique": scores, "depth": 0, "beam": 0}
    page = Page(render_run({"candidates": [given]}))
    fills = [(f["class"], f["x"], f["width"]) for f in page.of("rect", "fill")]
    assert fills == [
        ("fill", "0.0", "25.0"),
        ("fill", "0.0", "100.0"),
        ("fill negative", "25.0", "25.0"),
    ]


def test_thresholds_are_on_the_bars() -> None:
    given = {
        "grades": [{"document": 0, "score": 0.2}],
        "action": "ambiguous",
        "passages": [Document("a")],
        "thresholds": {"upper": 0.5, "lower": 0.0},
    }
    page = Page(render_run(given))
    assert [tick["x"] for tick in page.of("rect", "tick")] == ["49.6", "74.6"]
    assert (
        "best score 0.200; Correct above 0.5, Incorrect below 0 (marked on the bars)" in page.text
    )
    without = Page(render_run({k: v for k, v in given.items() if k != "thresholds"}))
    assert not without.of("rect", "tick")


def test_a_grade_stands_by_the_document_that_it_is_of() -> None:
    given = {
        "grades": [{"document": 1, "score": 0.75}],
        "action": "correct",
        "passages": [Document("a", metadata={"title": "First"}), Document("b")],
    }
    text = Page(render_run(given)).text
    assert text.index("First") < text.index("Untitled") < text.rindex("0.75")
    assert "0.75" not in text[text.index("First") : text.index("Untitled")]


def test_strips_kept_and_dropped(runs: dict[str, Run]) -> None:
    result, _ = runs["crag"]
    page = Page(render_run(result))
    strips = result["strips"] + result["web_strips"]
    assert len(page.of("li", "kept")) == sum(strip["kept"] for strip in strips)
    assert len(page.of("li", "dropped")) == sum(not strip["kept"] for strip in strips)


def test_the_tree_joins_each_candidate_to_the_one_it_continues() -> None:
    page = Page(render_run(result_of("text", "")))
    assert len(page.of("circle")) == 1 + 6
    ends = [re.findall(r"[\d.]+ [\d.]+", path["d"] or "") for path in page.of("path")]
    dots = {f"{dot['cx']} {dot['cy']}" for dot in page.of("circle")}
    assert len(ends) == 6
    for points in ends:
        assert {points[0], points[-1]} <= dots
    assert len(page.of("path", "chosen")) == 2
    assert "Tree of 6 candidates for 2 segments" in str(page.of("svg", "tree"))
    assert {f"#candidate-{i}" for i in range(1, 7)} <= set(page.links)
    assert "K2 1.00: text (dropped: text)" in page.text
    assert "Segment 1" in page.text


def test_what_was_kept_comes_first_and_what_was_dropped_is_folded_and_sorted() -> None:
    scores = [0.1, 0.3, 0.9, 0.2]
    candidates = [
        {"text": f"C{i}.", "path_score": s, "chosen": i == 1, "dropped": "rule" if i == 2 else None}
        for i, s in enumerate(scores)
    ]
    strips = [
        {"document": 0, "text": f"S{i}.", "score": s, "kept": i == 1} for i, s in enumerate(scores)
    ]
    page = render_run(
        {"candidates": candidates, "strips": strips, "passages": [Document("S0. S1. S2. S3.")]}
    )
    cards, texts = page[page.index('id="candidates"') :], page[page.index('id="passages"') :]
    for order, shown in (
        (("C1.", "<details", "C3.", "C0.", "C2."), cards),
        (
            ("S1.", "<details", "S2.", "S3.", "S0."),
            texts,
        ),
    ):
        places = [shown.index(word) for word in order if word != "<details"]
        assert places == sorted(places)
        assert places[0] < shown.index("best first") < places[1]


def order_of(result: dict[str, Any], kind: str) -> tuple[list[str], list[str]]:
    """The texts of cards that show, and of those that are folded."""
    section = (
        render_run(result).partition('<h2 id="passages-heading"')[2].partition("</section>")[0]
    )
    open_, _, folded = section.partition("<details")
    found = [re.findall(rf'id="{kind}-(\d)"', part) for part in (open_, folded)]
    return found[0], found[1]


PASSAGES = [{"page_content": f"Text {n}."} for n in range(3)]
GRADES = [{"document": n, "score": score} for n, score in enumerate((0.1, 0.9, 0.5))]
KEPT = [{"document": n, "text": f"Text {n}.", "score": 0.1, "kept": n == 1} for n in (0, 1)]


@pytest.mark.parametrize(
    ("result", "shown", "folded"),
    [
        ({"action": "correct", "strips": KEPT}, ["2"], ["3", "1"]),
        ({"action": "incorrect", "strips": []}, [], ["2", "3", "1"]),
        ({"action": "ambiguous", "strips": []}, ["1", "2", "3"], []),
        ({}, ["1", "2", "3"], []),
    ],
)
def test_documents_that_are_used_come_first(
    result: dict[str, Any], shown: list[str], folded: list[str]
) -> None:
    found = {"question": "Who?", "passages": PASSAGES, "grades": GRADES, **result}
    assert order_of(found, "passage") == (shown, folded)


def test_documents_that_the_rationale_dismisses_are_folded() -> None:
    found = {
        "rationale": "Document [3] answers.",
        "passages": PASSAGES,
        "numbering": [2, 1, 0],
        "useful_documents": [0],
        "dismissed_documents": [2],
    }
    assert order_of(found, "passage") == (["2", "1"], ["3"])


def test_the_rationale_leads_to_the_documents_it_names() -> None:
    page = Page(render_run(run(RunnableLambda(lambda messages: RATIONALE))))
    assert page.links.count("#passage-1") >= 2, "Document [3] and the citation: the best is last"
    assert "Document [3] Middlemarch useful" in page.text
    assert "Document [1] Emma dismissed" in page.text
    assert "Document [2] Eliot Park not named" in page.text
    assert "Document [7] is named but was not shown" in page.text


@pytest.mark.parametrize("make", [result_of, rationale_of])
def test_no_text_becomes_markup(make: Any) -> None:
    hostile, benign = (Page(render_run(make(text, "notes"))) for text in (HOSTILE, "x y"))
    assert _skeleton(hostile) == _skeleton(benign)
    assert not {"script", "img", "iframe", "link"} & {tag for tag, _ in hostile.elements}
    assert "</title></style><script>alert(1)</script><img src=x" in hostile.text
    for seen in ("U+202E", "U+2066", "U+200B", "U+0000", "U+001B", "U+E0041"):
        assert seen in hostile.text
    assert not re.search("[\u202e\u2066\u200b\x00\x1b\U000e0041]", render_run(make(HOSTILE, "x")))


def _skeleton(page: Page) -> list[tuple[str, tuple[str, ...], str | None]]:
    """Tags, names of attributes and links: all that is not text."""
    return [
        (tag, tuple(given), given.get("href"))
        for tag, given in page.elements
        if given.get("class") != "unseen"
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_only_plain_web_addresses_become_links(source: str) -> None:
    for make in (result_of, rationale_of):
        page = Page(render_run(make("text", source)))
        assert [link for link in page.links if not link.startswith("#")] == []


def test_web_addresses_are_links_that_tell_nobody() -> None:
    page = Page(render_run(result_of("text", "https://example.org/a?b=1&c=2")))
    links = [a for a in page.of("a") if not (a["href"] or "").startswith("#")]
    assert links
    for link in links:
        assert link["href"] == "https://example.org/a?b=1&c=2"
        assert link["rel"] == "noopener noreferrer nofollow"


def test_huge_texts_are_folded_and_cut() -> None:
    huge = "word " * 400_000
    page = render_run(result_of(huge, huge))
    assert len(page) < 60 * LONGEST
    assert "characters left out" in page
    assert Page(page).of("details")
    long = Page(render_run({"passages": [Document("one two " * 200)]}))
    assert "more characters" in long.text
    assert long.text.count("one two") == 199, "one falls on the border"


PARTS = [
    {},
    {"question": "Who?"},
    {"messages": []},
    {"candidates": []},
    {"candidates": [{}], "citations": [{}], "passages": [None, "text", {}], "usage": None},
    {"grades": [{}], "action": None, "strips": [{}], "knowledge": None, "thresholds": {"upper": 1}},
    {"action": "nonsense", "grades": "no list", "web_query": 3, "notes": "no list"},
    {"rationale": None, "numbering": [7, "x", None, -1], "passages": [Document("a")]},
    {"retrieval": {"retrieve": True, "probability": float("nan"), "threshold": float("inf")}},
    {"candidates": [{"depth": 4, "parent": 99, "passage": 9, "score": float("nan")}]},
]


@pytest.mark.parametrize("part", PARTS)
def test_whatever_is_missing_there_is_a_page(part: dict[str, Any]) -> None:
    page = Page(render_run(part))
    assert "No answer was written." in page.text
    assert not [link for link in page.links if link[1:] not in page.ids]


def test_every_key_may_be_missing(runs: dict[str, Run]) -> None:
    for result, _ in runs.values():
        for key in result:
            assert Page(render_run({k: v for k, v in result.items() if k != key})).of("main")


def test_knowledge_leads_to_the_chunk_that_it_is_from() -> None:
    chunks = [
        Document(f"Gold {i}. Noise {i}.", metadata={"title": "A", "source": "a.txt"}, id="a.txt")
        for i in range(3)
    ]
    kept = [Document(f"Gold {i}.", metadata=chunks[i].metadata, id="a.txt") for i in range(3)]
    strips = [
        {"document": i, "text": f"{word} {i}.", "score": 0.9, "kept": word == "Gold"}
        for i in range(3)
        for word in ("Gold", "Noise")
    ]
    page = render_run(
        {
            "question": "Who?",
            "action": "correct",
            "passages": chunks,
            "knowledge": kept,
            "strips": strips,
        }
    )
    links = [link for link in Page(page).links if link.startswith("#passage-")]
    assert links == ["#passage-1", "#passage-2", "#passage-3"]


def test_an_index_in_the_answer_is_no_link() -> None:
    result = {**result_of("text", ""), "cited_answer": "x[1] is it [1][1]"}
    page = Page(render_run(result))
    answer = page.text[page.text.index("x[1]") :]
    assert answer.startswith("x[1] is it")
    cited = {**result, "cited_answer": "x[1] is it"}
    without = Page(render_run(cited)).links.count("#knowledge-1")
    assert page.links.count("#knowledge-1") == without + 2


@pytest.mark.parametrize(
    ("more", "links"),
    [
        (" In code, `x = [1]` and [1](http://evil.org).", 0),
        (" ```\n[1]\n```", 0),
        (" [[1]](http://evil.org) and [see [1] there](http://evil.org)", 0),
        (" x[1] and [2].", 0),
        (" She did [1].", 1),
    ],
)
def test_what_is_no_mark_in_the_answer_is_no_link(more: str, links: int) -> None:
    def count(answer: str) -> int:
        page = Page(render_run({**result_of("text", ""), "cited_answer": answer}))
        return page.links.count("#knowledge-1")

    assert count("Austen wrote it [1]." + more) == count("Austen wrote it.") + 1 + links


def test_best_effort_and_silence_are_said() -> None:
    broken = Page(render_run({**result_of("text", ""), "constraints_met": False}))
    assert "broke a hard constraint" in broken.text
    uncited = {**result_of("text", ""), "citations": [], "cited_answer": "text"}
    assert "nothing is cited" in Page(render_run(uncited)).text


def test_a_citation_shows_its_sentence_unless_the_answer_is_that() -> None:
    result = result_of("Emma.", "")
    assert "Quote: Emma." in Page(render_run(result)).text
    same = {**result, "cited_answer": "So. Quote: Emma. [1]"}
    assert Page(render_run(same)).text.count("Quote: Emma.") == 1
    uncited = {**result, "citations": [{**result["citations"][0], "quote": ""}]}
    quotes = [len(Page(render_run(of)).of("q")) for of in (result, same, uncited)]
    assert quotes == [quotes[1] + 1, quotes[1], quotes[1]]


def test_the_page_asks_for_nothing_and_runs_nothing(runs: dict[str, Run]) -> None:
    for result, _ in runs.values():
        page = Page(render_run(result))
        (policy,) = [m["content"] or "" for m in page.of("meta") if "http-equiv" in m]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        for _, given in page.elements:
            assert not {"src", "style", "srcset", "action"} & set(given)
            assert not [name for name in given if name.startswith("on")]
    assert "url(" not in _style()
    assert "@import" not in _style()


def test_landmarks_and_headings(runs: dict[str, Run]) -> None:
    page = Page(render_run(runs["self_crag"][0], title="A title"))
    assert "A title" in page.text
    for landmark in ("header", "nav", "main", "footer"):
        assert len(page.of(landmark)) == 1
    assert len(page.of("h1")) == 1
    for section in page.of("section"):
        assert section["aria-labelledby"] in page.ids
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))


def _style() -> str:
    return files("selfcorrect_rag.render").joinpath("page.css").read_text(encoding="utf-8")


def test_colours_have_the_contrast_of_aa() -> None:
    light, dark = (
        dict(re.findall(r"--(\w+): (#\w{6});", block))
        for block in re.findall(r":root \{(.*?)\}", _style(), re.DOTALL)[:2]
    )
    assert set(dark) == set(light)
    for colours in (light, dark):
        for ink in ("ink", "muted", "accent", "good", "fair", "bad"):
            for paper in ("paper", "card", "target"):
                assert _contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)
        assert _contrast(colours["accent"], colours["track"]) >= 3


def _contrast(one: str, other: str) -> float:
    """Of two colours, as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_notebook_shows_it_in_a_frame_of_its_own() -> None:
    shown = show_run(result_of(HOSTILE, "https://example.org/"), height=300)
    assert repr(shown) == "RunPage(height=300)", "a notebook keeps that too, beside the page"
    frame = Page(shown._repr_html_())
    ((tag, given),) = frame.elements
    assert tag == "iframe"
    assert "allow-scripts" not in (given["sandbox"] or "")
    assert "allow-same-origin" not in (given["sandbox"] or "")
    assert given["srcdoc"] == shown.html
    assert "height:300px" in (given["style"] or "")
    ((_, fitting),) = Page(show_run({})._repr_html_()).elements
    assert "allow-same-origin" in (fitting["sandbox"] or "")
    assert "allow-scripts" not in (fitting["sandbox"] or "")
