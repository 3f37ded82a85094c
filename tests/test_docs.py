"""What the README and the examples show works as written."""

import gc
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.vectorstores import InMemoryVectorStore

from selfcorrect_rag.state import CRAGOutput, InstructRAGOutput, SelfRAGOutput

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_readmes_python_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a scripted model in place of the provider's; it prints what the README shows."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = BLOCK.findall(text)
    shown = text.split(block)[1].split("```\n")[2].removesuffix("```")
    note = "Deployments happen every Tuesday, and Priya Raman approves the deployments."
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_texts([note], [{"title": "The staging server", "source": "notes/staging.md"}])
    replies = ["1: yes", "1: yes", "Priya Raman approves the deployments [1]."]
    model = FakeListChatModel(responses=replies)
    monkeypatch.setattr("selfcorrect_rag.models.from_name.find_language_model", lambda _: model)
    monkeypatch.setenv("TAVILY_API_KEY", "tvly-unused")
    exec(compile(block, "README.md", "exec"), {"vector_store": store})
    assert capsys.readouterr().out.strip() == shown.strip()


def test_the_make_targets_of_the_pages_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md")]
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", shown, re.MULTILINE))
    assert {"demo", "docs", "lint", "test"} <= targets
    for target in targets:
        assert re.search(rf"^[a-z -]*\b{target}\b[a-z -]*:", makefile, re.MULTILINE), target


def test_links_lead_to_files() -> None:
    folders = ("docs", "examples", "integrations", "reader_training", "selfcorrect_rag")
    pages = [
        *ROOT.glob("*.md"),
        *(page for name in folders for page in (ROOT / name).rglob("*.md")),
    ]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#\s:]+)[^):]*\)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 20
    assert not [(page.name, link) for page, link in links if not (page.parent / link).exists()]


def test_ci_runs_what_every_change_must_pass() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    checks = contributing.split("must pass")[1].split("```")[1]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert set(re.findall(r"^make \S+", checks, re.MULTILINE)) <= set(ci.splitlines())


def test_workflows_run_every_python_that_we_name() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    first = jobs["all"]["steps"][1]["with"]["python-version"]
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert [first, *jobs["versions"]["strategy"]["matrix"]["python"]] == named
    assert jobs["all"]["steps"][-1]["run"] == ".ci/run"


def test_own_documents_example(tmp_path: Path) -> None:
    (tmp_path / "falls.txt").write_text(
        "Oskar Lind\n\nOskar Lind, a Swedish composer, was born in Tarnholm in 1931.\n",
        encoding="utf-8",
    )
    run = subprocess.run(
        [
            sys.executable,
            ROOT / "examples" / "own_documents.py",
            tmp_path,
            "Where was Oskar Lind born?",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    counted, answer, cited = run.stdout.splitlines()
    assert counted == "1 passages; unreadable: []"
    assert answer.startswith("Tarnholm")
    assert cited == f"[1] falls ({tmp_path / 'falls.txt'})"


def test_the_python_of_the_docs_on_crag_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from langchain_core.documents import Document
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    from tests.tiny_evaluators import t5, t5_tokenizer

    t5().save_pretrained(tmp_path)
    t5_tokenizer().save_pretrained(tmp_path)
    monkeypatch.setenv("TAVILY_API_KEY", "tvly-unused")
    text = (ROOT / "docs" / "crag.md").read_text(encoding="utf-8")
    block, approval = BLOCK.findall(text.replace("path/to/evaluator", str(tmp_path)))
    passage = Document("Middlemarch is by George Eliot.", metadata={"title": "Middlemarch"})
    names: dict[str, object] = {
        "llm": FakeListChatModel(responses=["George Eliot [1]."]),
        "retriever": lambda query: [passage],
        "second_retriever": lambda query: [passage],
    }
    exec(compile(block, "crag.md", "exec"), names)
    assert names["result"]["answer"] == "George Eliot."  # type: ignore[index]
    exec(compile(approval, "crag.md", "exec"), names)
    assert "__interrupt__" not in names["result"]  # type: ignore[operator]


def test_the_python_of_the_docs_on_instruct_rag_runs() -> None:
    from langchain_core.documents import Document
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    (block,) = BLOCK.findall((ROOT / "docs" / "instruct-rag.md").read_text(encoding="utf-8"))
    rationale = "Document [1] names the author. The answer is George Eliot."
    responses = [rationale, "George Eliot [1]."]
    passage = Document("Middlemarch is by George Eliot.", metadata={"title": "Middlemarch"})
    names: dict[str, object] = {
        "llm": FakeListChatModel(responses=responses),
        "retriever": lambda query: [passage],
    }
    exec(compile(block, "instruct-rag.md", "exec"), names)
    result, baseline = names["result"], names["baseline"]
    assert result["answer"] == "The answer is George Eliot."  # type: ignore[index]
    assert result["useful_documents"] == [0]  # type: ignore[index]
    assert (baseline["answer"], baseline["rationale"]) == ("George Eliot [1].", "")  # type: ignore[index]


def test_the_python_of_the_docs_on_cost_runs(capsys: pytest.CaptureFixture[str]) -> None:
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    from tests.crag_runs import PagesWebSearch, WordEvaluator, document

    block, freezing = BLOCK.findall((ROOT / "docs" / "cost.md").read_text(encoding="utf-8"))
    names: dict[str, object] = {
        "llm": FakeListChatModel(responses=["Jane Austen."]),
        "retriever": lambda query: [document("Gold is here.")],
        "evaluator": WordEvaluator(),
        "web_search": PagesWebSearch(),
    }
    exec(compile(block, "cost.md", "exec"), names)
    exec(compile(freezing, "cost.md", "exec"), {})
    gc.unfreeze()
    shown = capsys.readouterr().out
    assert "grade_documents 1 None None" in shown
    note = "max_model_calls is 2: passages were kept whole"
    assert f"Jane Austen. max_model_calls [{note!r}]" in shown


def test_the_glossarys_places_exist() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    places = re.findall(r"`(selfcorrect_rag[.\w]*)`", text)
    assert len(places) > 15
    for place in places:
        assert pkgutil.resolve_name(place), place
    keys = set(re.findall(r"`(\w+)` of a result", text))
    states = (CRAGOutput, InstructRAGOutput, SelfRAGOutput)
    assert keys <= {key for state in states for key in state.__annotations__}


def test_the_house_stands() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    house = text.split("## The house")[1].split("```")[1]
    places = re.findall(r"^(\S+)  ", house, re.MULTILINE)
    rooms = {p.name for p in (ROOT / "selfcorrect_rag").iterdir() if (p / "__init__.py").exists()}
    assert [place for place in places if not (ROOT / place).exists()] == []
    assert rooms <= {Path(place).name for place in places}
