"""The command line, as README and docs use it, on the embedded reader and two notes."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag.cli.main import COMMANDS, main
from selfcorrect_rag.reader.network import SHIPPED
from tests.training.toys import write

PORT = "Which port does the staging server run on?"
RENT = "How much is the rent of the office?"
NOTES = {
    "staging.md": "# Staging\n\nThe staging server runs on port 8443. Priya Raman approves it.\n",
    "office.md": "# Office\n\nTom waters the plants in the office on Mondays.\n",
}
REFUSAL = "The documents do not say."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two notes and their index."""
    root = tmp_path_factory.mktemp("own")
    (root / "notes").mkdir()
    for name, text in NOTES.items():
        (root / "notes" / name).write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert main(["index", "notes"]) == 0
    return root


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["ask", *arguments, "--json"]) == 0
    out = capsys.readouterr().out
    return json.loads(out[out.index("{") :])  # after what a person was asked


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_a_pipe_gets_the_answer_alone_and_a_terminal_its_sources(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["ask", PORT]) == 0
    assert capsys.readouterr().out == "8443\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["ask", PORT]) == 0
    shown = capsys.readouterr().out
    assert shown.index("8443 [1]") < shown.index("[1] Staging")
    assert "staging.md" in shown
    assert "“The staging server runs on port 8443.”" in shown
    assert "candidates" not in shown


@pytest.mark.parametrize("graph", ["self-rag", "crag", "self-crag", "instruct-rag"])
def test_explain_shows_what_led_to_the_answer(graph: str, capsys: Any) -> None:
    assert main(["ask", PORT, "--graph", graph, "--explain"]) == 0
    shown = capsys.readouterr().out
    assert "8443" in shown.splitlines()[0]
    assert "passages from .selfcorrect/index:" in shown
    assert "model call" in shown
    chosen = re.search(r"\* 1 [PK]1, score \d\.\d\d \(p\(y\) .*ISSUP .*\): 8443", shown)
    assert bool(chosen) == graph.startswith("self")
    assert ("action:" in shown) == ("crag" in graph)


def test_json_has_the_whole_result_and_settings_come_from_file_and_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "rag.toml"
    config.write_text("passages = 1\n[settings]\nthreshold = 0.5\nstrips = 3\n", encoding="utf-8")
    result = ask(capsys, PORT, "--config", str(config))
    assert result["citations"][0]["source"].endswith("staging.md")
    assert result["candidates"]
    assert result["usage"]
    (passage,) = result["passages"]
    assert passage["text"]
    assert len(ask(capsys, PORT, "--config", str(config), "--set", "passages=2")["passages"]) == 2
    refused = ask(capsys, PORT, "--set", "answer_above=1")
    assert (refused["answer"], refused["citations"]) == (REFUSAL, [])
    assert ask(capsys, PORT, "--reader", str(SHIPPED))["answer"] == result["answer"]
    assert "nowhere" in error_of(capsys, "ask", PORT, "--reader", "nowhere")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["aks", PORT], "Did you mean ask?"),
        (["train", "evaluator", "--set", "datta=x"], "no setting"),
        (["eval", "q.jsonl", "--out", "run", "--set", "concurrency=0"], "concurrency"),
        (["mcp", "--http", "--host", "0.0.0.0"], "--allow-host"),
        (["studio", "--host", "192.168.1.5"], "--allow-host"),
        (["studio", "--", "--host", "0.0.0.0"], "before --"),
        (["ui", "--host", "::"], "--allow-host"),
        (["--set", "pasages=3"], "did you mean passages?"),
        (["--set", "passages=0"], "passages"),
        (["--set", "passages"], "KEY=VALUE"),
        (["--set", "depth=3", "--graph", "crag"], "a setting of self-rag, self-crag, not of crag"),
        (["--set", "mode=sometimes"], "mode"),
        (["--index", "nowhere"], "nowhere"),
        (["--graph", "selfrag"], "selfrag"),
        (["--web", "tavily"], "--web: self-rag never searches the web"),
        (["--web", "tavily", "--graph", "instruct_rag"], "--web: instruct-rag never searches"),
        (["--config", "none.toml"], "none.toml"),
        (["--model", "nope:gpt"], "nope"),
        (["--engine", "vllm"], "engine vllm needs a model"),
        (["--graph", "crag", "--set", "approve_search=true"], "terminal"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["ask", PORT] if arguments[0].startswith("--") else []
    error = error_of(capsys, *command, *arguments)
    assert reason in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("command", "module"),
    [("mcp", "mcp.server.mcpserver"), ("studio", "langgraph_cli"), ("ui", "uvicorn")],
)
def test_a_missing_extra_is_named(command: str, module: str, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert f"selfcorrect-rag[{command}]" in error_of(capsys, command)


def test_html_is_written_and_a_foreign_file_is_kept(tmp_path: Path, capsys: Any) -> None:
    page = tmp_path / "run.html"
    for _ in range(2):  # its own page may be replaced
        assert main(["ask", PORT, "--html", str(page)]) == 0
    assert "8443" in page.read_text(encoding="utf-8")
    assert page.stat().st_mode & 0o077 == 0
    page.write_text("<p>mine", encoding="utf-8")
    capsys.readouterr()
    within = "notes/staging.md/run.html"
    for place, why in ((str(page), "was not written by this command"), (within, within)):
        assert main(["ask", PORT, "--html", place]) == 2
        told = capsys.readouterr()
        assert (told.out, why in told.err) == ("8443\n", True), "the answer is shown all the same"
    assert page.read_text(encoding="utf-8") == "<p>mine"
    assert list(tmp_path.iterdir()) == [page]


def make_stated() -> Any:
    return FakeListChatModel(responses=["It runs on port 8443 [1]."] * 50)


def test_a_chat_model_answers(capsys: pytest.CaptureFixture[str]) -> None:
    model = f"{__name__}:make_stated"
    result = ask(capsys, PORT, "--graph", "crag", "--model", model, "--evaluator", model)
    assert result["cited_answer"] == "It runs on port 8443 [1]."
    given = ["--graph", "instruct-rag", "--model", model, "--explain"]
    assert main(["ask", PORT, *given]) == 0
    assert "tokens not reported" in capsys.readouterr().out


def test_chat_answers_each_line(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter([PORT, RENT, ""])
    monkeypatch.setattr("builtins.input", lambda prompt="": next(lines))
    assert main(["chat"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("8443 [1]") < shown.index(REFUSAL)


@pytest.mark.parametrize(("reply", "searched"), [("yes", 1), ("no", 0), ("plants office", 1)])
def test_a_search_waits_for_approval(
    reply: str, searched: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for end in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{end}.isatty", lambda: True)
    monkeypatch.setattr("click.prompt", lambda *_, **__: reply)
    given = ["--graph", "crag", "--web", ".selfcorrect/index"]
    given += ["--set", "approve_search=true", "--set", "upper=1", "--set", "lower=1"]
    result = ask(capsys, RENT, *given)
    assert result["action"] == "incorrect"
    assert len(result["web_results"]) >= searched
    assert bool(result["web_results"]) == bool(searched)
    assert (result["web_query"] == reply) == (" " in reply)


def test_settings_and_options_of_trainings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    from selfcorrect_rag.cli.train import NAMES
    from selfcorrect_rag.training import ENTRYPOINTS

    assert set(NAMES) == set(ENTRYPOINTS)
    for arguments, first, second in (
        (["settings"], "index = none", "engine_options"),
        (["settings", "self_crag"], "upper = none", "weight_isuse"),
        (["train", "evaluator"], "CRAG", "data"),
    ):
        assert main(arguments) == 0
        shown = capsys.readouterr().out
        assert shown.index(first) < shown.index(second)


def open_model() -> RunnableLambda[str, str]:
    return RunnableLambda(lambda prompt: "The first document says Jane Austen.")


def test_a_training_that_asks_a_model_runs(tmp_path: Path, capsys: Any) -> None:
    """The line of progress was given in the place of the model."""
    row = {"question": "Who?", "answers": ["Jane Austen"], "documents": ["Emma is hers."]}
    data, out = write(tmp_path / "rows.jsonl", row), tmp_path / "out.jsonl"
    sets = {"data": data, "out": out, "model": f"{__name__}:open_model"}
    given = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    assert main(["train", "rationales", *given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["consistent"] == 1


def test_an_empty_index_is_named_and_hostile_text_does_not_control_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["index", "notes"]) == 1
    assert "index is empty: there was no text to read" in capsys.readouterr().err
    text = "# Staging\x1b[2J\n\nThe staging server runs on port 8443\x1b]0;owned\x07.\n"
    (notes / "a.md").write_text(text, encoding="utf-8")
    assert main(["index", "notes"]) == 0
    assert main(["ask", PORT, "--explain"]) == 0
    shown = capsys.readouterr().out
    assert "1 file read, 0 unchanged." in shown
    assert not {"\x1b", "\x07", "\r"} & {*shown}


HEAVY = {"torch", "transformers", "chromadb", "langgraph", "onnxruntime", "pydantic"}


def test_help_loads_nothing_heavy() -> None:
    code = f"""
import sys
from selfcorrect_rag.cli.main import main
assert main(["--version"]) == main(["--help"]) == 0
print(sorted({HEAVY} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        assert "Usage: selfcorrect-rag " + name in capsys.readouterr().out


def test_batch_answers_each_row_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ({"question": question, "id": question[:4]} for question in (PORT, RENT))
    questions = write(tmp_path / "questions.jsonl", *rows)
    given = ["batch", str(questions), "--out", str(tmp_path / "out"), "--keep", "id"]
    assert main(given) == 0
    assert "2 rows" in capsys.readouterr().out
    assert main(given) == 0
    assert "0 of them new" in capsys.readouterr().out
    lines = (tmp_path / "out" / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert ["8443" in line for line in lines] == [True, False]
    assert "Not a directory" in error_of(capsys, *given[:3], f"{questions}/out")


def test_eval_compares_methods_and_says_what_stopped_it(tmp_path: Path, capsys: Any) -> None:
    rows = ({"question": q, "answers": ["8443"]} for q in (PORT, f"{PORT} Now?"))
    questions, out = write(tmp_path / "questions.jsonl", "{", *rows), tmp_path / "run"
    given = ["eval", str(questions), "--out", str(out), "--method", "rag", "--method", "self-rag"]
    assert main([*given, "--set", "max_calls=1", "--set", "concurrency=1"]) == 1
    assert "stopped by max_calls" in capsys.readouterr().err
    assert main(given) == 0
    shown = capsys.readouterr()
    assert "self_rag: match" in shown.out
    assert shown.out.count("n = 2") == 4
    assert shown.out.count("0 of 2 failed") == 2
    assert "questions.jsonl:1: not JSON" in shown.err
    assert (out / "report.html").is_file()
    questions.write_text("{", encoding="utf-8")
    assert main(given) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"selfcorrect-rag: no valid question: {questions}:1: not JSON")


def test_calibrate_chooses_thresholds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = "The staging server runs on port 8443."
    row = {"question": PORT, "positives": [good], "negatives": ["Tom waters the plants."]}
    data = write(tmp_path / "graded.jsonl", row)
    assert main(["calibrate", str(data), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["thresholds"]["lower"] <= found["thresholds"]["upper"]
    assert found["action_accuracy"] == 1.0


def test_calibrate_bounds_wrong_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": f"{PORT} {n}?", "answers": ["8443"]} for n in range(4)]
    rows += [{"question": f"{PORT} Why {n}?", "answers": ["never"]} for n in range(4)]
    data, out = str(write(tmp_path / "questions.jsonl", *rows)), str(tmp_path / "run")
    given = ["calibrate", data, "--set", "answer_above=0", "--max-wrong"]
    assert main([*given, "0.2", "--out", out, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["without"]["answered"], found["without"]["wrong"]) == (8, 4)
    assert (found["metric"], found["questions"], found["left_out"]) == ("match", 8, 0)
    assert (found["wrong"] + 1) / 9 <= 0.2
    # eval shares the folder: it asks nothing again, and draws the curve
    shared = ["eval", data, "--out", out, "--set", "answer_above=0", "--method", "self_rag"]
    assert main([*shared, "--set", "max_calls=1"]) == 0
    assert "refusing by score_above" in (tmp_path / "run" / "report.html").read_text("utf-8")
    capsys.readouterr()
    assert main([*given, "0.9", "--graph", "crag"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown == [
        "every answer may be stated: no more than 0.9 are wrong, from 8 questions",
        "with it: 8 answered, 4 of them wrongly",
        "without it: 8 answered, 4 of them wrongly",
    ]
    assert "needs at least 9 labelled questions, got 8" in error_of(capsys, *given, "0.1")
    assert "--index has an effect only with" in error_of(capsys, "calibrate", data, "--index", ".")
    assert "'--max-wrong': 2" in error_of(capsys, *given, "2")
