"""The pages in a real Chromium: watch, approve, weigh, compare, keys, widths, accessibility."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ui.conftest import LEE, ask, served

WIDE, PHONE = 1280, 390
Open = Callable[..., Any]


@pytest.fixture
def open_page(chromium: Any, client: httpx.Client) -> Iterator[Open]:
    """Opens a page of the server; at the end nothing complained, and nothing came from
    elsewhere."""
    complaints: list[str] = []
    requests: list[str] = []
    contexts = []
    base = str(client.base_url).rstrip("/")

    def opened(path: str, width: int = WIDE, **options: Any) -> Any:
        options = {"reduced_motion": "reduce", **options}
        context = chromium.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(200_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(base + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [c for c in complaints if "404" not in c and "422" not in c] == []
    assert [url for url in requests if not url.startswith(base)] == []


def overflow(page: Any) -> int:
    """Pixels by which the page is wider than the window."""
    return int(page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


def faults(page: Any) -> list[str]:
    """What an accessibility checker finds serious or critical."""
    axe = pytest.importorskip("axe_core_python.sync_playwright").Axe()
    found = axe.run(page, options={"resultTypes": ["violations"]})["violations"]
    return [
        f"{v['id']}: {v['nodes'][0]['html'][:200]}"
        for v in found
        if v["impact"] in ("serious", "critical")
    ]


@pytest.fixture(scope="module")
def runs(client: httpx.Client) -> dict[str, str]:
    """Runs of every graph, by its name."""
    asked = {"self_rag": "Who discovered penicillin?", "instruct_rag": "Who painted Guernica?"}
    return {
        graph: ask(client, asked.get(graph, LEE), graph)
        for graph in ("self_rag", "crag", "self_crag", "instruct_rag")
    }


def paths(runs: dict[str, str]) -> list[str]:
    played = "played=1&weight_isrel=0&hard_constraints=%5BUtility%3A5%5D"
    return [
        "/",
        "/?graph=crag&question=Who%3F&passages=8&upper=9",
        "/runs",
        "/runs?q=nothing+like+that",
        "/nowhere",
        *(f"/runs/{key}" for key in runs.values()),
        f"/runs/{runs['self_rag']}?{played}",
        f"/compare?a={runs['self_rag']}&b={runs['self_crag']}",
    ]


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (PHONE, "dark")])
def test_every_page_fits_and_is_accessible(
    runs: dict[str, str], open_page: Open, width: int, scheme: str
) -> None:
    page = open_page("/", width, color_scheme=scheme)
    base = page.url.rstrip("/")
    for path in paths(runs):
        page.goto(base + path)
        assert overflow(page) <= 0, path
        assert faults(page) == [], path
        page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        assert overflow(page) <= 0, path
    page.goto(base + paths(runs)[1])
    assert faults(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.is_visible("#keys")
    assert faults(page) == []


def test_a_question_is_asked_watched_and_answered(open_page: Open) -> None:
    page = open_page("/")
    page.locator("#question:focus").wait_for()
    page.keyboard.type("Who discovered penicillin?")
    page.check("#graph-self_crag")
    assert page.is_visible("text=Strips") or page.is_visible("text=Correction")
    assert "graph=self_crag" in page.url
    page.check("#graph-self_rag")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#shown #answer")
    assert "Alexander Fleming" in page.inner_text("#answer")
    assert page.inner_text(".rank-row.chosen .said") == "Alexander Fleming"


def test_a_search_is_changed_inline(open_page: Open) -> None:
    page = open_page(f"/?graph=crag&question={LEE.replace(' ', '+')}&approve_search=on")
    assert page.is_checked('[name="crag.approve_search"][type=checkbox]')
    page.click("#ask button.primary")
    page.wait_for_selector("#reply-query")
    assert faults(page) == []
    assert page.inner_text("#progress") == "A search waits for you"
    page.reload()
    page.wait_for_selector("#reply-query")
    page.fill("#reply-query", "  ")
    page.click("button[value=yes]")
    page.wait_for_selector(".approve .notice.error >> text=the query is empty")
    page.fill("#reply-query", "Harper Lee birthplace town")
    page.click("button[value=yes]")
    page.wait_for_selector("#shown #web")
    assert "Harper Lee birthplace town" in page.inner_text("#web")


def test_a_run_is_stopped(open_page: Open) -> None:
    page = open_page(f"/?graph=crag&question={LEE.replace(' ', '+')}&approve_search=on")
    page.click("#ask button.primary")
    page.wait_for_selector("#reply-query")
    page.click("button.stop")
    page.wait_for_selector("#shown")
    assert "stopped" in page.inner_text(".kicker")


def test_weights_are_moved_and_candidates_rank_anew(runs: dict[str, str], open_page: Open) -> None:
    page = open_page(f"/runs/{runs['self_rag']}")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.method))
    before = page.inner_text(".rank-row.chosen .score")
    page.fill("#play-weight_isrel", "0")
    page.wait_for_selector(".verdict")
    assert page.inner_text(".rank-row.chosen .score") != before
    assert page.input_value('[data-for="play-weight_isrel"]') == "0"
    page.click("#play summary")
    page.check('#play [value="[Utility:5]"]')
    page.wait_for_selector(".verdict ins >> text=The documents do not say.")
    assert "weight_isrel=0" in page.url
    assert "weight_isrel=0" in page.get_attribute("#edit", "href")
    assert set(asked) == {"GET"}
    page.reload()
    assert page.input_value("#play-weight_isrel") == "0"
    page.click("#rerun button")
    page.wait_for_selector(".sides")  # the run and the new one, side by side
    assert "The documents do not say." in page.inner_text(".sides section >> nth=1")
    assert "[Utility:5]" in page.inner_text(".differs")


def test_another_graph_is_asked_in_one_click(runs: dict[str, str], open_page: Open) -> None:
    page = open_page(f"/runs/{runs['crag']}")
    page.click(".side >> text=Self-RAG")
    page.wait_for_selector(".sides")
    assert page.inner_text("h1") == LEE
    first, second = (page.locator(".sides section").nth(i).bounding_box() for i in (0, 1))
    assert first["y"] == second["y"]


def test_a_mark_is_kept(runs: dict[str, str], open_page: Open) -> None:
    page = open_page(f"/runs/{runs['crag']}")
    page.check("#mark [value=right]")
    page.click("#mark button")
    page.wait_for_selector("#marked >> text=Saved")
    page.reload()
    assert page.is_checked("#mark [value=right]")


def test_a_fault_is_said_where_the_form_is(open_page: Open) -> None:
    page = open_page("/")
    page.fill("#question", "   ")
    page.click("#ask button.primary")
    page.wait_for_selector("#question + .notice.error >> text=the question is empty")
    page.fill("#question", "Who painted Guernica?")
    page.click("#ask button.primary")
    page.wait_for_selector("#shown #answer")
    page = open_page("/?graph=crag&question=Who%3F&upper=9")
    assert "less than or equal to 1" in page.inner_text(".notice.error")
    assert page.is_visible('[name="crag.upper"]')


def test_keys_held_down_ask_once(open_page: Open) -> None:
    page = open_page("/?question=Who+painted+Guernica%3F")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.method))
    page.focus("#question")
    page.keyboard.down("Control")
    for _ in range(3):
        page.keyboard.down("Enter")
    page.wait_for_selector("#shown #answer")
    assert asked.count("POST") == 1


def test_a_server_that_goes_away_is_waited_for(chromium: Any, folder: Path) -> None:
    form = {"question": LEE, "graph": "crag", "approve_search": "on"}
    page = chromium.new_page()
    page.set_default_timeout(200_000)
    with served(folder) as client:
        address = client.post("/ask", data=form).headers["location"]
        page.goto(str(client.base_url.join(address)))
        page.wait_for_selector("#reply-query")
        assert page.inner_text("#fault") == ""
    page.wait_for_selector("#fault >> text=The server does not answer")  # the run is stored
    with served(folder, "--port", str(client.base_url.port)) as client:
        page.wait_for_selector("#shown")
        assert "stopped" in page.inner_text(".kicker")
        address = client.post("/ask", data=form).headers["location"]
        page.goto(str(client.base_url.join(address)))
        page.wait_for_selector("#reply-query")
        os.kill(int(client.headers["x-process"]), signal.SIGKILL)
    with served(folder, "--port", str(client.base_url.port)) as client:
        page.wait_for_selector("text=no such run")  # which a kill costs, and no other
        assert len(client.get("/runs.json").json()["runs"]) == 1
    page.close()


def test_keys(runs: dict[str, str], open_page: Open) -> None:
    page = open_page("/runs")
    page.keyboard.press("j")
    first = page.evaluate("document.activeElement.href")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.href") != first
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.href") == first
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.is_visible("#keys")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_selector("#question")
    assert page.evaluate("document.activeElement.id") == "question"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"


def test_without_scripts_it_asks_and_reads_and_weighs(open_page: Open) -> None:
    page = open_page("/", java_script_enabled=False)
    page.fill("#question", "Who discovered penicillin?")
    page.click("#ask button.primary")
    page.wait_for_selector("#shown #answer")
    assert "Alexander Fleming" in page.inner_text("#answer")
    page.fill("#play-weight_isuse", "3")
    page.click("#play button")
    page.wait_for_selector(".verdict")
    assert page.input_value("#play-weight_isuse") == "3"


@pytest.mark.parametrize(("motion", "moves"), [("reduce", False), ("no-preference", True)])
def test_rows_move_only_where_motion_is_wanted(
    runs: dict[str, str], open_page: Open, motion: str, moves: bool
) -> None:
    page = open_page(f"/runs/{runs['self_rag']}", reduced_motion=motion)
    page.evaluate(
        "() => { window.moved = 0; const animate = Element.prototype.animate;"
        "Element.prototype.animate = function (...how) {"
        "  moved++; return animate.apply(this, how) } }"
    )
    order = "[...document.querySelectorAll('[data-key]')].map((row) => row.dataset.key)"
    before = page.evaluate(order)
    page.click("#play summary")
    page.check('#play [value="[Utility:5]"]')
    page.wait_for_selector(".verdict")
    assert page.evaluate(order) != before
    assert (page.evaluate("moved") > 0) is moves
