"""The documentation site builds offline without a warning, and every link of README and docs leads
somewhere, from the repository, the site and the registry."""

import re
import shutil
import subprocess
import sys
import tomllib
from html import unescape
from pathlib import Path

import pytest
import yaml

from tests.test_docs import ROOT

URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
SITE, BLOB = URLS["Documentation"], f"{URLS['Repository']}/blob/main/"
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
BUILT = ROOT / "build" / "site"
LINK = re.compile(r"\]\(([^)\s]+)\)")


def links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return LINK.findall(text)


def nav() -> list[str]:
    sections = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    return [page for section in sections for pages in section.values() for page in pages]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_nav_once() -> None:
    assert sorted(nav()) == [page.relative_to(DOCS).as_posix() for page in PAGES]


def test_pages_leave_the_docs_by_absolute_links() -> None:
    left = [
        (page.name, link)
        for page in PAGES
        for link in links(page)
        if ":" not in link and DOCS not in (page.parent / link).resolve().parents
        if not link.startswith("#")
    ]
    assert left == [], f"links out of docs/ are dead on the site: begin them with {BLOB}"


def test_the_readmes_links_are_good_on_the_registry() -> None:
    assert [link for link in links(ROOT / "README.md") if not link.startswith("https://")] == []


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *PAGES], ids=lambda page: page.name)
def test_absolute_links_lead_to_what_is_there(page: Path) -> None:
    for link in links(page):
        if link.startswith(BLOB):
            assert (ROOT / link.removeprefix(BLOB).partition("#")[0]).exists(), link
        elif link.startswith(SITE) and link != f"{SITE}llms.txt":
            path, _, anchor = link.removeprefix(SITE).partition("#")
            source = DOCS / f"{path.rstrip('/') or 'index'}.md"
            assert source.exists(), link
            assert not anchor or anchor in anchors(source), link


@pytest.fixture(scope="module")
def site() -> Path:
    pytest.importorskip("zensical", reason="zensical, of the group docs, is not installed")
    shutil.rmtree(BUILT, ignore_errors=True)
    build = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    run = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "No issues found" in run.stderr
    return BUILT


def test_the_site_has_every_page_and_asks_no_other_server(site: Path) -> None:
    for page in nav():
        name = page.removesuffix(".md").removesuffix("index")
        html = (site / name / "index.html").read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|iframe|source)[^>]*\ssrc="([^"]+)"', html)
        fetched += re.findall(
            r'<link[^>]*rel="(?:stylesheet|preload|icon)"[^>]*href="([^"]+)"', html
        )
        assert fetched
        assert [url for url in fetched if "//" in url] == [], page


def test_llms_txt_has_the_nav(site: Path) -> None:
    listed = re.findall(rf"<{SITE}(.*)>", (site / "llms.txt").read_text(encoding="utf-8"))
    expected = [
        page if page == "index.md" else f"{page.removesuffix('.md')}/index.md" for page in nav()
    ]
    assert listed == expected
    assert all((site / page).stat().st_size > 100 for page in listed)


def test_the_reference_reads_our_docstrings(site: Path) -> None:
    html = (site / "reference" / "graphs" / "index.html").read_text(encoding="utf-8")
    assert "Retrieve when P(Retrieval)" in html, "what knobs say"
    assert "at most 1000000" in html, "a bound that is a constant"
    pages = [page.read_text(encoding="utf-8") for page in (site / "reference").rglob("*.html")]
    assert len(pages) == 2
    assert not [page for page in pages if re.search(r":\w+:<code>|:class:", page)]


def test_the_drawings_are_the_graphs() -> None:
    from docs.drawings import ASSETS, graphs

    for name, graph in graphs().items():
        svg = unescape((ASSETS / f"graph-{name}.svg").read_text(encoding="utf-8"))
        drawn = graph.get_graph()
        shown = re.findall(r"<title>(\w+)(?:->(\w+))?</title>", svg)
        assert {node for node, to in shown if not to} == set(drawn.nodes)
        edges = sorted((edge.source, edge.target) for edge in drawn.edges)
        assert sorted(pair for pair in shown if pair[1]) == edges, "run docs/drawings.py"
