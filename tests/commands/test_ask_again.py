"""`selfcorrect-rag ask --again`: a saved result is made again, and names no code by itself."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.cli import main
from selfcorrect_rag.search import BM25Index
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts
from selfcorrect_rag.serving.saved import made_by
from selfcorrect_rag.settings import SelfRAGSettings
from tests.render.pages import Page


@pytest.fixture
def index(tmp_path: Path) -> Path:
    with BM25Index(tmp_path / "index") as made:
        made.add([Document("Tarnholm is a town.", metadata={"title": "Tarnholm"})])
    return tmp_path / "index"


def said(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["ask", *options, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_a_saved_result_is_made_again(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["What is Tarnholm?", "--index", str(index), "--weight-issup", "2"]
    first = said(capsys, *asked)
    assert first["made"]["settings"].keys() == SelfRAGSettings.model_fields.keys()
    assert first["made"]["settings"]["weight_issup"] == 2
    assert first["made"]["settings"]["mode"] == first["retrieval"]["mode"] == "always"
    assert first["made"]["versions"]["selfcorrect-rag"]
    saved, page = tmp_path / "run.json", tmp_path / "run.html"
    saved.write_text(json.dumps(first), encoding="utf-8")
    second = said(capsys, "--again", str(saved), "--html", str(page))
    drop = ("date",)
    assert {k: v for k, v in second["made"].items() if k not in drop} == {
        k: v for k, v in first["made"].items() if k not in drop
    }
    assert second["candidates"] == first["candidates"]
    text = Page(page.read_text(encoding="utf-8")).text
    for shown in ("weight_issup 2.0", str(index), second["made"]["date"], "path_rule mean"):
        assert shown in text
    third = said(capsys, "--again", str(saved), "--weight-issup", "0.25")
    assert third["made"]["settings"] == {**first["made"]["settings"], "weight_issup": 0.25}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no json", "no result"),
        ("[" * 100_000, "no result"),
        ("{}", "no result"),
        ('{"made": {}, "original_question": "Who?"}', "no result"),
        ({"config": {"store": "os:getcwd"}}, "--store os:getcwd, which may run code"),
        ({"config": {"engine": "server", "base_url": "http://a.org"}}, "--base-url http://a.org"),
        ({"config": {"engine": "vllm", "engine_option": ["trust_remote_code=true"]}}, "run code"),
        ({"config": {"nonsense": 1}}, "nonsense"),
        ({"settings": {"passages": 0}}, "greater than"),
        ({"settings": {"group_weights": "x"}}, "dictionary"),
        ({"graph": ["self-rag"]}, "no result"),
    ],
)
def test_what_is_not_made_again_is_one_line(
    text: Any, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if isinstance(text, dict):
        made = {"graph": "self-rag", "settings": {}, "config": {}, **text}
        text = json.dumps({"original_question": "Who?", "made": made})
    saved = tmp_path / "run.json"
    saved.write_text(text, encoding="utf-8")
    assert main(["ask", "--again", str(saved)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line


def test_a_question_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask"]) == 2
    assert "--again" in capsys.readouterr().err


def test_no_password_is_saved() -> None:
    config = ServingConfig(engine="server", base_url="https://me:hidden@a.org/v1")
    assert made_by("self-rag", SelfRAGSettings(), Parts(config))["config"]["base_url"] == (
        "https://a.org/v1"
    )
    options = ("hf_token=hidden", "max_model_len=4096")
    config = ServingConfig(engine="vllm", engine_option=options)
    saved = made_by("self-rag", SelfRAGSettings(), Parts(config))["config"]
    assert saved["engine_option"] == ["max_model_len=4096"]
