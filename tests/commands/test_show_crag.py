"""CRAG and Self-CRAG in a terminal, and the hostile text that can do nothing to it."""

import io
from collections.abc import Mapping
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from rich.console import Console

from selfcorrect_rag.commands.show import DROPPED_SHOWN, inert, show_run
from selfcorrect_rag.search import RetrieverWebSearch, WebSearch
from selfcorrect_rag.self_crag import create_self_crag
from selfcorrect_rag.self_rag import create_self_rag
from tests.crag_runs import PagesWebSearch, WordEvaluator, document, run
from tests.scripted import FULL, RELEVANT, ScriptedReflectionLLM, segment

THRESHOLDS = {"thresholds": {"upper": 0.5, "lower": -0.5}}
HOSTILE = "[bold red]x[/bold red] [/dim] :smile: \\ \x1b[31m\x07\u202e\u200b\r\n\\\\\\"


def shown(result: Mapping[str, Any], **options: Any) -> str:
    screen = Console(file=io.StringIO(), width=2000, highlight=False, **options)
    show_run(screen, dict(result), 1.25, "my notes", "the reader")
    return screen.file.getvalue()  # type: ignore[attr-defined]


def crag(*texts: str, web: WebSearch | None = None, **context: Any) -> dict[str, Any]:
    return {**run(texts, web=web, **context), **THRESHOLDS}


def self_crag(llm: ScriptedReflectionLLM, *texts: str, web: WebSearch | None = None) -> Any:
    def retriever(query: str) -> list[Document]:
        return [document(text) for text in texts]

    graph = create_self_crag(llm, retriever, WordEvaluator(), web or PagesWebSearch())
    return {**graph.invoke({"question": "Who wrote Emma?"}), **THRESHOLDS}


@pytest.mark.parametrize(
    ("text", "action", "colour"),
    [("Gold.", "Correct", "32"), ("Noise.", "Incorrect", "31"), ("Vague.", "Ambiguous", "33")],
)
def test_the_action_with_its_thresholds_in_colour(text: str, action: str, colour: str) -> None:
    result = crag(text)
    score = result["grades"][0]["score"]
    line = f"  {action}: best score {score:.3f}; Correct above 0.5, Incorrect below -0.5\n"
    assert line in shown(result)
    coloured = shown(result, force_terminal=True, color_system="standard")
    assert f"\x1b[1;{colour}m{action}\x1b[0m" in coloured
    assert f"\x1b[{colour}m{score:6.3f}\x1b[0m" in coloured, "the document's score too"


def test_everything_on_the_way_to_the_answer() -> None:
    llm = FakeListChatModel(responses=["She did [1], they say [2]."])
    result = run(["Vague is this.", "Noise is that."], llm) | THRESHOLDS
    lines = shown(result).splitlines()
    assert lines[0] == "Who wrote Emma?"
    for line in (
        "  passages from my notes:",
        "  P1   0.000  Vague is t: Vague is this.",
        "  P2  -0.900  Noise is t: Noise is that.",
        "  strips: 1 of 2 kept",
        "  + P1   0.000  Vague is this.",
        "  - P2  -0.900  Noise is that.",
        "  searched pages for: wrote, Emma",
        "  W1  Web 1, https://a.org: Gold of the web.",
        "  + W1   0.900  Gold of the web.",
        "  - W2  -1.000  Worthless.",
        "  K2  Web 1: Gold of the web.",
        "  [1] Vague is t, notes",
        "  [2] Web 1, https://a.org",
        "  the reader: 1.25 s",
    ):
        assert line in lines


def test_what_failed_is_said_once_with_its_reason() -> None:
    text = shown(crag("Noise.", web=PagesWebSearch(RuntimeError("no route"))))
    assert "  nothing from pages for: wrote, Emma" in text
    assert text.count("no route") == 1
    assert "written from the best document retrieved" in text


def test_nothing_retrieved() -> None:
    assert "  Incorrect: nothing was retrieved; Correct above" in shown(crag())


def test_only_the_best_of_many_dropped_strips_are_shown() -> None:
    text = shown(crag("Gold.", *(f"Noise {i}." for i in range(9))))
    assert text.count("\n  - ") == DROPPED_SHOWN
    assert f"  and {9 - DROPPED_SHOWN} more dropped\n" in text


def test_self_crag_shows_both_halves() -> None:
    llm = ScriptedReflectionLLM(write=lambda prompt: segment("She did.", RELEVANT, FULL))
    lines = shown(self_crag(llm, "Noise.")).splitlines()
    assert "  retrieve: P(retrieve) 0.900 > threshold 0.2" in lines
    assert any(line.startswith("  Incorrect: best score -0.900") for line in lines)
    (header,) = (line.split() for line in lines if "ISREL" in line)
    assert header[0] == "K", "candidates are numbered as knowledge is"
    assert "  She did. [1]" in lines
    assert "  [1] Web 1, https://a.org" in lines
    assert any("model calls" in line for line in lines)


def test_self_crag_without_retrieval_shows_no_correction() -> None:
    llm = ScriptedReflectionLLM(write=lambda prompt: segment("Hello."), retrieval=0.0)
    text = shown(self_crag(llm, "Noise."))
    assert "no retrieval" in text
    assert "thresholds" not in text
    assert "Correct above" not in text
    assert "  Hello.\n" in text


@pytest.mark.parametrize("kind", ["self-rag", "crag", "self-crag"])
def test_hostile_text_is_shown_and_does_nothing(kind: str) -> None:
    page = Document(f"Gold {HOSTILE}", metadata={"title": HOSTILE, "source": HOSTILE}, id="1")
    llm = ScriptedReflectionLLM(write=lambda prompt: segment(HOSTILE, RELEVANT, FULL))
    web = RetrieverWebSearch(lambda query: [page], name=HOSTILE)
    if kind == "self-rag":
        question = {"question": f"Who? {HOSTILE}"}
        graph = create_self_rag(llm, lambda query: [page])
        result = dict(graph.invoke(question))  # type: ignore[arg-type]
    elif kind == "crag":
        result = crag(f"Vague {HOSTILE}", web=web)
    else:
        result = self_crag(llm, f"Vague {HOSTILE}", web=web)
    result["notes"] = [*result["notes"], HOSTILE]
    text = shown(result)
    assert "[bold red]x[/bold red] [/dim] :smile: \\" in text
    for control in "\x1b\x07\r\u202e\u200b":
        assert control not in text
    assert all(line.isprintable() for line in text.splitlines())
    shown(result, force_terminal=True)  # no style that a text opened or closed breaks it


def test_inert_text_stays_on_its_line() -> None:
    assert inert("a\tb\nc\x1b[2Jd\u00a0é\ud800") == "a b c[2Jd é"
