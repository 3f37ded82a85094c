"""The local page in a real Chromium, on the demo's documents: ask, approve, weigh, phone, axe."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.conftest import started

pytestmark = pytest.mark.slow
LEE = "Where was Harper Lee born?"
"""A question that the demo's second corpus answers, and the first does not."""
SLOW = 180_000
"""Milliseconds that a busy machine may take for anything."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started(tmp_path_factory.mktemp("ui"), "ui") as (address, _):
        yield address


@pytest.fixture(scope="module")  # its event loop would be in the way of other modules' own
def chromium() -> Iterator[Any]:
    """A real browser; CHROMIUM names one, else it is the one on the path."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on the path, none in CHROMIUM")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, url: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page at the address; nothing complains, and nothing comes from elsewhere."""
    options: dict[str, Any] = getattr(request, "param", {})
    complaints: list[str] = []
    requests: list[str] = []
    context = chromium.new_context(
        viewport={"width": options.pop("width", 1280), "height": 800}, **options
    )
    made = context.new_page()
    made.set_default_timeout(SLOW)
    made.on("console", lambda message: complaints.append(message.text))
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on("request", lambda asked: requests.append(asked.url))
    made.goto(url)
    yield made
    context.close()
    assert [c for c in complaints if "favicon" not in c and "404" not in c] == []
    assert [asked for asked in requests if not asked.startswith(url)] == []


def ask(page: Any, question: str, graph: str = "self_rag", **settings: str) -> None:
    page.select_option("#graph", graph)
    page.wait_for_url("**graph=*")
    page.fill("[name=question]", question)
    if settings:
        page.click("summary")
    for name, value in settings.items():
        page.select_option(f"[name={name}]", value)
    page.click("button.main")


def check_layout(page: Any) -> None:
    """Nothing is wider than the window, or serious to an accessibility checker."""
    axe = pytest.importorskip("axe_core_python.sync_playwright").Axe()
    violations = axe.run(page, options={"resultTypes": ["violations"]})["violations"]
    serious = [v for v in violations if v["impact"] in ("serious", "critical")]
    assert [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in serious] == []
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") == 0


@pytest.mark.parametrize(
    "page", [{}, {"width": 390, "color_scheme": "dark"}], indirect=True, ids=["wide", "phone, dark"]
)
def test_a_question_is_asked_and_weighed(page: Any, tmp_path: Path) -> None:
    check_layout(page)
    ask(page, "Who discovered penicillin?", "self_crag")
    page.wait_for_selector("#answer .answer")
    assert "Alexander Fleming" in page.inner_text("#answer")
    check_layout(page)
    answer, weights = page.locator("#answer"), page.locator("#weigh")
    assert answer.bounding_box()["y"] < weights.bounding_box()["y"] < 800 * 2
    with page.expect_response(lambda r: "weight_isrel=0" in r.url):
        page.locator("[name=weight_isrel]").fill("0")
    page.wait_for_url("**weight_isrel=0**")
    assert page.locator("#why .card").count() >= 1


def test_a_search_is_approved(page: Any) -> None:
    ask(page, LEE, "crag", approve_search="true")
    page.wait_for_selector("#waiting")
    check_layout(page)
    page.click("button[value=yes]")
    page.wait_for_selector("#answer .answer")
    assert "Monroeville" in page.inner_text("#answer")
    page.click("text=Past runs")
    assert LEE in page.inner_text("main")
    check_layout(page)


@pytest.mark.parametrize("page", [{"java_script_enabled": False}], indirect=True)
def test_it_works_without_a_script(page: Any) -> None:
    page.fill("[name=question]", "Who painted Guernica?")
    page.click("button.main")
    page.wait_for_selector("#answer .answer")  # the page reloads by itself
    assert "Picasso" in page.inner_text("#answer")
