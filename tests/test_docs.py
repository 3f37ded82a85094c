"""The Python and the commands of README, AGENTS.md and docs run word for word."""

import asyncio
import gc
import io
import json
import pkgutil
import re
import shlex
import subprocess
from ast import literal_eval
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.vectorstores import InMemoryVectorStore
from starlette.testclient import TestClient

import selfcorrect_rag
from selfcorrect_rag.batch.run import COLUMNS
from selfcorrect_rag.cli.main import main
from selfcorrect_rag.evaluation.metrics import METRICS
from selfcorrect_rag.evaluation.tasks import FORMATS
from selfcorrect_rag.search import Index
from selfcorrect_rag.training import ENTRYPOINTS
from tests.agents.scripted import ScriptedAgentModel, reflecting
from tests.conftest import byte_level_tokenizer, random_model
from tests.crag_runs import PagesSearch, WordEvaluator, document
from tests.evaluation.scripted_parts import ScriptedParts
from tests.search.stand_ins import WordHash
from tests.snippets import BLOCK, ROOT
from tests.test_faults import DOWN, Parts, raises
from tests.training.toys import write

SHOWN = re.compile(r"```python\n(.*?)```\n(?:\n```\n(.*?)```)?", re.DOTALL)
"""A block of Python, and the output that the page shows right below it."""
FACTS = {
    "deployments": ("approves", "Priya Raman approves the deployments"),
    "plants": ("waters", "Tom waters the plants"),
    "PostgreSQL": ("5432", "PostgreSQL uses port 5432"),
    "": ("Eliot", "George Eliot wrote Middlemarch"),
}
"""By a word of the question: a word of the text that answers it, and the answer."""
GOLD = document("Gold: Middlemarch is by George Eliot.", "Middlemarch")
SEQUEL = document("Gold: George Eliot wrote no sequel.", "Sequels")


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def python(block: str) -> str:
    return f"```python\n{block}```\n"


def answer(prompt: str) -> str:
    """The chat model of these tests: it grades, judges and answers by FACTS."""
    question = (re.findall(r"(?:[Qq]uestion|Instruction): (.*)", prompt) or [""])[-1]
    mark, fact = next(found for word, found in FACTS.items() if word in question)
    if prompt.startswith("Given a question, does"):
        asked = prompt[prompt.rindex("Question:") :]
        verdicts = ["yes" if mark in text else "no" for text in asked.split("<document")[1:]]
        if 'number="1"' not in asked:
            return verdicts[0]
        return "\n".join(f"{n}: {verdict}" for n, verdict in enumerate(verdicts, 1))
    if "Last question: " in prompt:
        return "When was George Eliot born?"
    case = prompt.rpartition("\n\n##\n")[2]
    if "Need retrieval?" in case:
        return "[Yes]"
    if "Evidence 1:" in case:
        texts = case.split("Evidence ")[1:]
        judged = ["Relevant" if mark in text else "Irrelevant" for text in texts]
        return "\n".join(f"{n}: [{token}]" for n, token in enumerate(judged, 1))
    if case.endswith("Rating:"):
        return "[Relevant]" if mark in case else "[Irrelevant]"
    if "Perceived utility" in prompt:
        return "Score: [Fully supported]\nPerceived utility: 5"
    return f"{fact}." if prompt.startswith("Answer the question.") else f"{fact} [1]."


def chat_model() -> ScriptedAgentModel:
    """Answers as :func:`answer` does."""
    return ScriptedAgentModel(
        reply=lambda messages: AIMessage(answer("\n".join(m.text for m in messages)))
    )


def run(text: str, **given: Any) -> dict[str, Any]:
    """The names that a page's Python makes; checks the output that the page shows below a block."""
    names: dict[str, Any] = {
        "llm": chat_model(),
        "chat_model": chat_model(),
        "generator": reflecting(),
        "embeddings": WordHash(),
        "retriever": lambda query: [GOLD],
        "evaluator": WordEvaluator(),
        "web": PagesSearch(),
        "document": GOLD,
        **given,
    }
    for block, shown in SHOWN.findall(text):
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, "page.md", "exec"), names)
        if shown:
            assert printed.getvalue() == shown
        for said in re.findall(r"^ *print\(.*\)  # ([^,\n]*)", block, re.MULTILINE):
            assert said.strip() in printed.getvalue(), block
    return names


def shell(text: str) -> str:
    """Run a page's commands, those of this package in this process; return what they print."""
    with redirect_stdout(io.StringIO()) as printed:
        for line in "".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).splitlines():
            words = shlex.split(line)
            if words[0] == "selfcorrect-rag":
                assert main(words[1:]) == 0, line
            elif words[0] not in ("pip", "export"):
                subprocess.run(line, shell=True, check=True)
    return printed.getvalue()


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAVILY_API_KEY", "tvly-unused")
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    monkeypatch.setattr("langchain.chat_models.init_chat_model", lambda *args, **more: chat_model())


@pytest.fixture
def notes(tmp_path: Path) -> InMemoryVectorStore:
    store = InMemoryVectorStore(WordHash())
    text = "Deployments happen every Tuesday, and Priya Raman approves them."
    store.add_texts([text], [{"title": "The staging server", "source": "notes/staging.md"}])
    for folder in ("notes", "papers"):
        Path(folder).mkdir()
        Path(folder, "staging.md").write_text(f"---\nowner: ada\n---\n\n{text}\n", "utf-8")
    return store


def test_readme_and_home(notes: InMemoryVectorStore) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.encode()) <= 7_000
    run(text, vector_store=notes)
    run(page("index"), vector_store=notes)


def test_for_assistants() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    assert run(text)["result"]["action"] == "incorrect", "nothing is in its store"
    for name in re.findall(r"`(create_\w+)\(", text):
        assert hasattr(selfcorrect_rag, name)


@pytest.mark.slow
def test_tutorial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langchain_openai.OpenAIEmbeddings", WordHash)
    text = page("tutorial")
    said = shell(text)
    assert "Priya Raman [1]" in said
    assert "The documents do not say." in said
    assert Path("compared/report.html").is_file()
    run(text)
    assert "Priya Raman" in Path("run.html").read_text(encoding="utf-8")


def test_choose_a_graph_and_the_graphs() -> None:
    assert "George Eliot" in run(page("choose-a-graph"))["result"]["answer"]
    cited = run(page("self-rag"))["result"]["cited_answer"]
    assert cited == "George Eliot wrote Middlemarch. [1]"
    assert run(page("self-crag"))["result"]["candidates"]
    names = run(page("crag"))
    assert "__interrupt__" not in names["result"]
    graded = names["by_words"].invoke({"question": "Who wrote Middlemarch"})["grades"]
    assert -1 < graded[0]["score"] < 1
    searcher = FakeListLLM(responses=["<search>it</search>", "<answer>George Eliot</answer>"])
    names = run(page("search-r1"), llm=searcher)
    assert (names["result"]["queries"], len(names["result"]["citations"])) == (["it"], 1)
    names = run(page("instruct-rag"))
    assert names["result"]["useful_documents"] == [0]
    assert names["baseline"]["rationale"] == ""


def test_your_model(checkpoint: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = page("your-model").replace("selfrag/selfrag_llama2_7b", str(checkpoint))
    names = run(text)
    assert "unregistered type" not in caplog.text, "a thread holds plain values"
    assert names["reflecting"].get_token_ids("Emma")
    assert names["second"]["question"] == "When was George Eliot born?"
    assert names["second"]["original_question"] == "When was she born?"
    for candidates, calls in ((2, 6), (1, 4)):
        llm = names["PromptedReflectionLLM"](chat_model(), candidates=candidates)
        graph = selfcorrect_rag.create_self_rag(llm, lambda query: [GOLD, SEQUEL])
        first, then = (graph.invoke({"question": "Who wrote Middlemarch?"}) for _ in range(2))
        assert then["usage"]["model_calls"] == calls
        assert calls <= first["usage"]["model_calls"] <= calls + 2


def test_your_documents(notes: Any) -> None:
    text = page("your-documents")
    shell(text)
    names = run(text)
    assert not names["report"].problems
    titles = [names[key]["passages"][0].metadata for key in ("from_function", "from_input")]
    assert titles == [{"title": "Novels"}] * 2
    for found in ("from_files", "filtered"):
        assert [d.metadata["owner"] for d in names[found]["passages"]] == ["ada"]
    assert len(names["store"].similarity_search("x", k=9)) == 2


def test_agents() -> None:
    def chat(messages: list[BaseMessage]) -> AIMessage:
        last = str(messages[-1].content)
        if isinstance(messages[-1], ToolMessage):
            return AIMessage(last)
        if len(messages) > 1 and "<document" in str(messages[-2].content):
            return AIMessage("George Eliot [1].")
        name = "library" if "Middlemarch" in last else "crag"
        return AIMessage("", tool_calls=[{"name": name, "args": {"question": last}, "id": "1"}])

    results: list[Any] = []
    names: dict[str, Any] = {"chat_model": ScriptedAgentModel(reply=chat)}
    noise = document("Noise.", "Emma")
    names["retriever"] = lambda query: [GOLD if "Emma" not in query else noise]
    for block in BLOCK.findall(page("agents")):
        names = run(python(block), **names)
        results.append(names.get("result"))
    tool, approved, _, citing, grounded, outer, replied, found, claims, *_ = results
    assert names["seen"][:2] == ["retrieved", "graded"]
    assert "Sources:\n[1] Middlemarch (notes)" in tool["messages"][-1].content
    assert approved["messages"][-2].artifact["web_query"]
    (cites,) = citing["messages"][-1].content_blocks
    assert {note["title"] for note in cites["annotations"]} == {"Middlemarch"}
    assert grounded["refused"] == ""
    assert [type(m) for m in outer["messages"]] == [HumanMessage, AIMessage]
    (block,) = replied["messages"][-1].content_blocks
    assert [note["title"] for note in block["annotations"]] == ["Middlemarch"]
    assert [document.metadata["action"] for document in found] == ["correct"]
    assert [claim["text"] for claim in claims] == ["George Eliot wrote Middlemarch."]
    assert names["revised"]["answer"] == "The documents do not say.", "a judge that says nothing"


def test_batch() -> None:
    text = page("batch")
    emma = Document("Emma is a novel by Jane Austen.", metadata={"title": "Emma"})
    Index("my-index").add([emma])
    rows = [{"question": f"Who wrote {name}?", "number": name} for name in ("Emma", "Dune")]
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    run(text)
    answers = Path("answers/answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["kept"]["number"] for line in answers] == ["Emma", "Dune"]
    assert tuple(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == COLUMNS


def test_faults() -> None:
    """The retriever fails at first, the model after the first segment; then both work."""
    parts, failures = Parts(), iter([ConnectionError("no route")])

    def retriever(query: str) -> Any:
        if error := next(failures, None):
            raise error
        return [document("Emma", "Emma is a novel.")]

    parts.model.does, parts.model.after = raises(DOWN), 2
    first, then = map(python, BLOCK.findall(page("faults")))
    names = run(first, llm=parts.reflecting(), retriever=retriever)
    assert (names["result"]["answer"], names["result"]["stopped"]) == ("Austen.", "model")
    parts.model.does = parts.model.works
    names = run(then, **names)
    assert (names["result"]["answer"], names["result"]["stopped"]) == ("Austen. In 1815.", None)


def test_serving() -> None:
    host, *blocks, _ = BLOCK.findall(page("serving"))  # the last one is test_mcp's
    text = "".join(map(python, blocks))
    names = run(text, llm=reflecting())
    gc.unfreeze()
    asked = [names[turn]["original_question"] for turn in ("emma", "ulysses", "resumed")]
    assert asked == ["Who wrote Emma?", "Who wrote Ulysses?", "Who wrote Ulysses?"]
    assert [len(names[turn].get("messages", [])) for turn in ("emma", "ulysses")] == [0, 2]
    assert names["again"]["score"] > names["resumed"]["score"]
    assert names["first"]["candidates"] == names["second"]["candidates"]
    assert names["second"]["usage"]["model_calls"] == 0
    assert names["result"]["action"] == "correct", "streamed"
    Index("idx").add([GOLD])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFCORRECT_INDEX", "idx")
        with TestClient(run(python(host))["app"]) as client:
            said = client.post("/ask", json={"question": "Who is Middlemarch by?"}).json()
    assert "George Eliot" in said["answer"]


def test_ui() -> None:
    run(page("ui"), graph=selfcorrect_rag.create_self_rag(chat_model(), lambda query: [GOLD]))
    assert "<html" in Path("run.html").read_text(encoding="utf-8")


def test_architecture() -> None:
    text = page("architecture")
    names = run(text, llm=reflecting())
    shouted = names["shouting"].invoke({"question": "Who wrote Middlemarch?"})["answer"]
    assert shouted == shouted.upper()
    house = text.split("## Where things are")[1].split("```")[1]
    places = re.findall(r"^(\S+)  ", house, re.MULTILINE)
    rooms = {p.name for p in (ROOT / "selfcorrect_rag").iterdir() if (p / "__init__.py").exists()}
    assert [place for place in places if not (ROOT / place).exists()] == []
    assert rooms <= {Path(place).name for place in places}
    named = re.findall(r"`(selfcorrect_rag[.\w]*)` \|", text)
    assert len(named) > 12
    assert all(pkgutil.resolve_name(name) for name in named)


def test_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfcorrect_rag.serving.parts.Parts", ScriptedParts)
    text = page("evaluation")
    names = run(text)
    shown = re.search(r"^    (no significant .*)$", text, re.MULTILINE)
    assert shown
    assert shown[1] in [str(each) for each in names["compare_all"](names["right"])]
    for heading, known in (("Tasks", FORMATS), ("Metrics", METRICS)):
        section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
        cells = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
        assert sorted(n.strip(" `") for cell in cells for n in cell.split(",")) == sorted(known)


TRAINING = page("training")


@pytest.mark.slow
def test_training() -> None:
    words = byte_level_tokenizer()
    for folder in ("runs/critic/critic", "runs/generator/generator"):
        random_model(len(words), 500).save_pretrained(folder)
        words.save_pretrained(folder)
    documents = [{"title": "Emma", "text": "Emma is a novel by Jane Austen."}]
    write(Path("rows.jsonl"), {"question": "Who?", "answers": ["Eliot"], "documents": documents})
    assert run(TRAINING)["report"]["consistent"] == 1


def test_training_commands_have_such_options() -> None:
    commands = re.findall(r"train ([\w-]+) (--set .*)$", TRAINING, re.MULTILINE)
    assert {name for name, _ in commands} == ENTRYPOINTS.keys()
    for name, sets in commands:
        items = [item for item in shlex.split(sets) if item != "--set"]
        given = dict(item.split("=", 1) for item in items)
        ENTRYPOINTS[name].options(**{k: v for k, v in given.items() if k != "trainer"})


def test_security() -> None:
    (block,) = BLOCK.findall(page("security"))
    names = run(python(block))
    calls = re.findall(r"^quoted\((.*)\)  # (.*)$", block, re.MULTILINE)
    assert len(calls) == 2
    for text, shown in calls:
        said = literal_eval(text)
        assert names["quoted"](said) == (said if "as it is" in shown else literal_eval(shown))


def test_vllm_answers_many() -> None:
    (block,) = [block for block in BLOCK.findall(page("vllm")) if "abatch" in block]
    graph = selfcorrect_rag.create_self_rag(reflecting(), lambda query: [GOLD])
    answer_all = run(python(block))["answer_all"]
    assert len(asyncio.run(answer_all(graph, ["Who?", "Why?"]))) == 2
