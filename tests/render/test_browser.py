"""Pages in a real Chromium: CHROMIUM names one, else it is the one on the path."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag import render_run, show_run
from selfcorrect_rag.render.page import RunPage
from tests.render.conftest import Run
from tests.render.pages import HOSTILE, rationale_of, result_of

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on the path, none in CHROMIUM"
)

WIDE, PHONE = 1280, 360
Show = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as p:
        started = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Show]:
    """Opens a page from a file; at the end nothing was asked for and nothing complained."""
    complaints: list[str] = []
    requests: list[str] = []
    contexts = []

    def open_page(page: str, width: int, **options: Any) -> Any:
        file = tmp_path / "run.html"
        file.write_text(page, encoding="utf-8")
        viewport = {"width": width, "height": 800}
        context = browser.new_context(viewport=viewport, reduced_motion="reduce", **options)
        contexts.append(context)
        opened = context.new_page()
        opened.on("console", lambda message: complaints.append(message.text))
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on("request", lambda request: requests.append(request.url))
        opened.goto(file.as_uri())
        return opened

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in requests if not url.endswith("/run.html")] == []


def overflow(page: Any) -> int:
    """Pixels by which the page is wider than the window."""
    return int(page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_real_runs(width: int, scheme: str, runs: dict[str, Run], show: Show) -> None:
    for result, _ in runs.values():
        page = show(render_run(result), width, color_scheme=scheme)
        assert overflow(page) <= 0
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(252, 251, 248)" if scheme == "light" else "rgb(22, 21, 19)")


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_hostile_and_unbreakable_text(width: int, show: Show) -> None:
    for make in (result_of, rationale_of):
        page = show(
            render_run(make(HOSTILE + "unbreakable" * 200, "https://a.org/" + "b" * 900)), width
        )
        for details in page.query_selector_all("details"):
            details.evaluate("element => element.open = true")
        assert overflow(page) <= 0
        assert page.query_selector("script, img") is None


def test_a_citation_leads_to_its_passage(runs: dict[str, Run], show: Show) -> None:
    # The nano model writes no [n], so its CRAG run cites nothing.
    cited = {name: result for name, (result, _) in runs.items() if result["citations"]}
    assert cited.keys() == {"self_rag", "self_crag", "instruct_rag"}
    for name, result in cited.items():
        page = show(render_run(result), PHONE)
        kind = "knowledge" if "crag" in name else "passage"
        target = f"{kind}-{result['citations'][0]['passage'] + 1}"
        assert page.evaluate("window.scrollY") == 0
        page.click(f'#answer a[href="#{target}"] >> nth=0')
        card = page.query_selector(f"#{target}")
        page.wait_for_function("window.scrollY > 0")
        assert 0 <= card.bounding_box()["y"] < 800
        assert card.evaluate("element => element.matches(':target')")


def test_a_dot_of_the_tree_leads_to_its_folded_candidate(show: Show) -> None:
    page = show(render_run(result_of("text", "")), WIDE)
    for i in range(1, 7):
        page.click(f'svg.tree a[href="#candidate-{i}"]')
        assert page.locator(f"#candidate-{i}").is_visible()


def test_a_wide_screen_is_used(show: Show) -> None:
    page = show(render_run(result_of("text", "")), WIDE)
    first, second = (page.locator(f"#knowledge-{i}").bounding_box() for i in (1, 2))
    assert first["y"] == second["y"]
    assert second["x"] + second["width"] > WIDE * 0.9


def test_with_scripts_off_all_content_is_there(runs: dict[str, Run], show: Show) -> None:
    result, _ = runs["self_rag"]
    page = show(render_run(result), WIDE, java_script_enabled=False)
    assert result["answer"] in page.inner_text("#answer").replace("[1]", "")
    closed = page.locator("details table").first
    assert not closed.is_visible()
    page.click("details summary >> nth=0")
    assert closed.is_visible()


def test_the_keyboard_reaches_links_and_shows_where_it_is(runs: dict[str, Run], show: Show) -> None:
    page = show(render_run(runs["crag"][0]), WIDE)
    page.keyboard.press("Tab")
    focused = page.evaluate(
        "[document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]"
    )
    assert focused == ["A", "solid"]


def test_on_paper(runs: dict[str, Run], show: Show) -> None:
    page = show(render_run(runs["self_crag"][0]), WIDE, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.is_visible("nav")
    assert page.pdf().startswith(b"%PDF")


def notebook(shown: RunPage) -> str:
    return f"<!DOCTYPE html><title>N</title><p id=own>x</p>{shown._repr_html_()}"


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_in_a_notebook_the_frame_is_as_high_as_the_page(
    runs: dict[str, Run], show: Show, width: int
) -> None:
    page = show(notebook(show_run(runs["self_crag"][0])), width)
    page.wait_for_function("document.querySelector('iframe').clientHeight !== 640")
    page.click("iframe", position={"x": 5, "y": 5})
    high = page.evaluate("document.querySelector('iframe').clientHeight")
    inside = page.frames[1].evaluate("document.documentElement.scrollHeight")
    assert high == inside > 800


def test_in_a_notebook_styles_stay_apart_and_citations_lead_inside(
    runs: dict[str, Run], show: Show
) -> None:
    result, _ = runs["self_rag"]
    page = show(notebook(show_run(result, height=640)), WIDE)
    assert page.evaluate("getComputedStyle(document.body).maxWidth") == "none"
    frame = page.frames[1]
    frame.click("#answer sup a >> nth=0")
    frame.wait_for_function("window.scrollY > 0")
    assert frame.url.startswith("about:srcdoc#passage-")
