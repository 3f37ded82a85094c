"""The configuration: files, variables, values as text, and the parts that it opens."""

import asyncio
import json
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from selfcorrect_rag import create_crag
from selfcorrect_rag.errors import BadSettings, NoQuestion
from selfcorrect_rag.reader.network import SHIPPED
from selfcorrect_rag.serving import Parts, ServingConfig, parts, served
from selfcorrect_rag.serving.config import BadOption, parse_value
from selfcorrect_rag.serving.hosts import studio
from selfcorrect_rag.settings import GRAPHS, PROTOCOL
from tests.crag_runs import WordEvaluator
from tests.providers import chat

GRAPH_FILES = sorted((Path(__file__).parents[2] / "graphs").glob("*.py"))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("passages", "7", 7),
        ("threshold", "none", None),
        ("threshold", "0.5", 0.5),
        ("closed_set", "true", True),
        ("options", "A, B", ("A", "B")),
        ("options", '["A", "B, C"]', ("A", "B, C")),
        ("hard_constraints", "[Fully supported]", ("[Fully supported]",)),
        ("instruction", "5", "5"),
        ("instruction", "none", None),
        ("engine_options", '{"dtype": "bfloat16"}', {"dtype": "bfloat16"}),
        ("index", "notes-index", Path("notes-index")),
        ("web", "none", "none"),
    ],
)
def test_values_are_read_from_text(name: str, text: str, value: Any) -> None:
    assert parse_value(name, text) == value


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"modle": "x"}, "did you mean model?"),
        ({"settings": {"pasages": 3}}, "did you mean passages?"),
        ({"engine": "gpu"}, "engine"),
        ({"answer_above": 2}, "answer_above"),
        ({"engine": "vllm"}, "needs a model"),
        ({"retriever": "a:b", "index": "c"}, "replaces the index"),
    ],
)
def test_mistakes_are_refused_by_name(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadOption, match=reason):
        ServingConfig(**given)


def test_variables_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rag.toml"
    file.write_text('model = "a"\nweb = "none"\npassages = 3\n', encoding="utf-8")
    config = ServingConfig.from_environment(
        {"SELFCORRECT_CONFIG": str(file), "SELFCORRECT_MODEL": "b", "SELFCORRECT_INDEX": ""}
    )
    assert (config.model, config.web, config.index) == ("b", "none", None)
    assert config.settings == {"passages": 3}


def test_a_server_in_another_folder_reads_the_same_files(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("pages", ".selfcorrect/index"):
        (tmp_path / folder).mkdir(parents=True)
    found = ServingConfig(web="pages", model="openai:gpt-4o-mini").located()
    assert (found.web, found.model) == (str(tmp_path / "pages"), "openai:gpt-4o-mini")
    assert found.index == tmp_path / ".selfcorrect" / "index"


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "model": st.text("abc:/", min_size=1),
            "base_url": st.just("http://gpu:8000"),
            "answer_above": st.floats(0, 1),
            "web": st.sampled_from(["none", "tavily"]),
            "engine_options": st.dictionaries(st.text("ab"), st.integers()),
            "index": st.just(Path("a b")),
            "settings": st.fixed_dictionaries({"passages": st.integers(1, 100)}),
        },
    )
)
def test_the_environment_carries_all_of_it(fields: dict[str, Any]) -> None:
    config = ServingConfig(**fields)
    assert ServingConfig.from_environment(config.as_environment()) == config


def test_the_engine_fits_the_models_name() -> None:
    models = {"openai:gpt-4o-mini": "chat", "selfrag/selfrag_llama2_7b": "transformers"}
    assert ServingConfig().runs_on == "reader"
    assert {model: ServingConfig(model=model).runs_on for model in models} == models
    assert ServingConfig(model="m", engine="vllm").runs_on == "vllm"


def test_each_graph_takes_its_own_settings() -> None:
    config = ServingConfig(passages=3, depth=2, strips=4, mode="always", index=Path("x"))
    opened = parts.SketchParts(config)
    assert opened.settings("crag").model_dump()["strips"] == 4
    self_rag: Any = opened.settings("self_rag", depth=5)
    assert (self_rag.passages, self_rag.depth, self_rag.mode) == (3, 5, "always")
    assert opened.settings("instruct_rag").prompt_mode is None


@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_runs_with_parts_by_name(name: str) -> None:
    retriever, model = "tests.search.test_filters:Careless", "tests.evaluation.scripted_parts:MODEL"
    config = ServingConfig(retriever=retriever, model=model, web="none")
    with Parts(config) as opened:
        result = opened.graph(name).invoke({"question": "Who wrote Emma?"})
    assert {"answer", "citations", "notes", "usage", "route"} <= set(result)


@pytest.mark.parametrize("path", GRAPH_FILES, ids=lambda path: path.stem)
def test_graphs_have_schemas_without_models(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFCORRECT_MODEL", "nowhere/none")
    parts._environment_parts.cache_clear()
    names: dict[str, Any] = {}
    exec(compile(path.read_text(encoding="utf-8"), path.name, "exec"), names)
    graph = asyncio.run(names["graph"](SimpleNamespace(execution_runtime=None)))
    assert graph.get_context_jsonschema()["properties"]["passages"]["description"]
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 30
    parts._environment_parts.cache_clear()


async def test_mcp_gets_one_question_and_one_text_of_a_graph() -> None:
    found = [Document("Gold.", metadata={"title": "Emma"})]
    graph = create_crag(chat("Jane Austen [1]."), lambda query: found, WordEvaluator())
    run: Any = SimpleNamespace(execution_runtime=object())
    factory = served(lambda opened: graph)
    assert await factory(run, {"configurable": {PROTOCOL: "a2a"}}) is graph
    config: Any = {"configurable": {PROTOCOL: "mcp"}}
    tool = await factory(run, config)
    assert tool.get_name() == "crag"
    schema = tool.get_input_jsonschema()
    assert (list(schema["properties"]), schema["required"]) == (["question"], ["question"])
    assert "$defs" not in schema
    assert tool.get_context_jsonschema() == graph.get_context_jsonschema()
    assert list(tool.get_output_jsonschema()["properties"]) == ["answer"]
    result = await tool.ainvoke({"question": "Who?"}, config, context={"passages": 1})
    assert result == {"answer": "Jane Austen [1].\n\nSources:\n[1] Emma"}
    with pytest.raises(BadSettings, match="passages"):
        await tool.ainvoke({"question": "Who?"}, config, context={"passages": 0})
    with pytest.raises(NoQuestion):
        await tool.ainvoke({"question": ""}, config)


def test_the_server_tells_runs_their_protocol() -> None:
    async def echo(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.headers.get(PROTOCOL, "none"))

    paths = {"/mcp": "mcp", "/a2a/some-id": "a2a", "/base/mcp": "mcp", "/runs/wait": "none"}
    routes = [Route(path, echo) for path in paths]
    app = Starlette(routes=routes, middleware=[*studio.user_middleware])
    with TestClient(app, base_url="http://localhost") as client:
        assert {path: client.get(path).text for path in paths} == paths
    named = json.loads((GRAPH_FILES[0].parents[1] / "langgraph.json").read_text(encoding="utf-8"))
    assert named["http"]["configurable_headers"] == {"includes": [PROTOCOL]}
    told = {name: graph["description"] for name, graph in named["graphs"].items()}
    pytest.importorskip("mcp.server.mcpserver")
    from selfcorrect_rag.serving.mcp_server import TOOLS

    assert TOOLS.items() <= told.items(), "one description of a tool, whichever server it is on"


async def test_runs_that_begin_together_build_a_graph_once() -> None:
    built: list[Any] = []

    def build(opened: Parts) -> Any:
        built.append(opened)
        return object()

    factory = served(build)
    run: Any = SimpleNamespace(execution_runtime=object())
    graphs = await asyncio.gather(*(factory(run) for _ in range(8)))
    assert len(built) == len(set(map(id, graphs))) == 1


def test_a_readers_folder_replaces_the_embedded_one_for_answers_and_grades(tmp_path: Path) -> None:
    folder = Path(copytree(SHIPPED, tmp_path / "weights"))
    changed = json.loads((folder / "reader.json").read_text(encoding="utf-8"))
    changed["calibration"]["title"] = [1.0, -1.0]
    (folder / "reader.json").write_text(json.dumps(changed), encoding="utf-8")
    config = ServingConfig(reader=folder)
    with Parts(config) as parts:
        llm: Any = parts.llm
        evaluator: Any = parts.evaluator
        assert llm.reader is evaluator.reader is parts.reader
        assert parts.reader.calibration.title == (1.0, -1.0)
        assert parts.answers == f"the reader in {folder}"
    assert ServingConfig.from_environment(config.as_environment()) == config
    graded = ServingConfig(reader=folder, model="openai:gpt-4o-mini")
    for chosen in (graded, ServingConfig(model=str(folder), engine="reader")):
        with Parts(chosen) as parts:
            assert parts.reader.calibration.title == (1.0, -1.0)
