"""Faults of the training commands."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import Trainer

from selfcorrect_rag.cli import main
from selfcorrect_rag.demo import demo_passages
from selfcorrect_rag.old_journal import Journal, newest_checkpoint, only_run
from selfcorrect_rag.search import Index
from selfcorrect_rag.training.evaluator import read_graded, train_evaluator
from selfcorrect_rag.training.fine_tuning import RunOptions
from tests.faults.cases import Seen, fault
from tests.faults.indexing import disk, raised_by, remount
from tests.training import critic_runs, generator_runs, test_critic, test_evaluator, toy_generator

ROOT = Path(__file__).parents[2]


def until(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 300
    while not ready():
        assert process.poll() is None, "it ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def killed(arguments: Sequence[str], ready: Callable[[], bool]) -> str:
    """Run a command in a process of its own, and kill it when something is ``ready``."""
    command = [sys.executable, "-m", "selfcorrect_rag.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=-3, stderr=-3) as process:
        until(ready, process)
        process.send_signal(signal.SIGKILL)
    return f"ended by signal {-process.returncode}"


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# Fine-tunings: the weights are those of a run that nobody stopped


def _fine_tuning(
    tmp_path: Path,
    kind: str,
    base: tuple[Any, Any],
    rows: Sequence[Any],
    options: Sequence[str],
) -> Seen:
    for part in base:
        part.save_pretrained(tmp_path / "base")
    data = write(tmp_path / "rows.jsonl", rows)

    def command(out: str) -> list[str]:
        files = ["--data", str(data), "--model", str(tmp_path / "base")]
        return ["train", kind, *files, "--out", str(tmp_path / out), "--save-steps", "4", *options]

    checkpoint = tmp_path / "cut" / "checkpoints" / "checkpoint-4" / "trainer_state.json"
    ended = killed(command("cut"), checkpoint.exists)
    assert not (tmp_path / "cut" / kind).exists()
    taken: list[int] = []
    step = Trainer.training_step

    def count(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        taken[-1] += 1
        return step(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "training_step", count)
        for out in ("cut", "whole"):
            taken.append(0)
            assert main(command(out)) == 0
    assert taken[0] < taken[1], "it went on from a checkpoint"
    one, other = (
        load_file(tmp_path / out / kind / "model.safetensors") for out in ("cut", "whole")
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    reports = [(tmp_path / out / "report.json").read_text() for out in ("cut", "whole")]
    assert reports[0] == reports[1]
    return Seen(None, [ended], "when run again")


@fault("Training", "kill -9, train evaluator")
def _(tmp_path: Path) -> Seen:
    rows = [dataclasses.asdict(row) for row in test_evaluator.ROWS]
    options = [
        "--batch-size",
        "8",
        "--num-train-epochs",
        "3",
        "--hard-negatives",
        "0",
        "--max-length",
        "48",
    ]
    return _fine_tuning(tmp_path, "evaluator", test_evaluator.toy(), rows, options)


@fault("Training", "kill -9, train critic")
def _(tmp_path: Path) -> Seen:
    rows = [{"key": str(i), **row._asdict()} for i, row in enumerate(test_critic.ROWS)]
    options = [
        "--batch-size",
        "8",
        "--per-device-batch-size",
        "8",
        "--num-train-epochs",
        "2",
        "--max-length",
        "160",
    ]
    return _fine_tuning(tmp_path, "critic", test_critic.causal(), rows, options)


@fault("Training", "kill -9, train generator")
def _(tmp_path: Path) -> Seen:
    rows = [row._asdict() for row in toy_generator.rows(60)]
    options = [
        "--batch-size",
        "8",
        "--per-device-batch-size",
        "4",
        "--num-train-epochs",
        "5",
        "--max-length",
        "160",
    ]
    return _fine_tuning(tmp_path, "generator", toy_generator.toy(), rows, options)


# Data made by models: nothing is asked twice but what was in flight


def _making(
    tmp_path: Path, command: Callable[[str], list[str]], journal: str, lines: int, log: str
) -> Seen:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.syspath_prepend(str(tmp_path))
        patch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{tmp_path}")
        patch.setenv(log, "killed.log")
        kept = tmp_path / "cut.jsonl.run" / journal
        ended = killed(
            command("cut.jsonl"),
            lambda: kept.exists() and kept.read_bytes().count(b"\n") >= lines,
        )
        assert not Path("cut.jsonl").exists()
        written = kept.read_bytes().splitlines()
        with kept.open("ab") as file:
            file.write(written[0][:57])  # as if the kill had torn a row
        for out in ("cut", "whole"):
            patch.setenv(log, f"{out}.log")
            assert main(command(f"{out}.jsonl")) in (0, 1)
        calls = [
            Counter(Path(f"{name}.log").read_text().splitlines())
            for name in ("killed", "cut", "whole")
        ]
        assert Path("cut.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
        keys = [
            Counter(json.loads(line)["key"] for line in (run / journal).read_bytes().splitlines())
            for run in (Path("cut.jsonl.run"), Path("whole.jsonl.run"))
        ]
        assert keys[0] == keys[1]
    twice = (calls[0] + calls[1] - calls[2]).total()
    assert twice <= 4, "what was in flight, at most"
    assert not calls[2] - calls[0] - calls[1], "nothing is left out"
    return Seen(None, [ended], "when run again")


@fault("Training", "kill -9, train critic-data")
def _(tmp_path: Path) -> Seen:
    critic_runs.data(tmp_path / "rows.jsonl", 30)
    options = ["--model", "tests.training.teacher:slow", "--max-concurrency", "4"]

    def command(out: str) -> list[str]:
        return ["train", "critic-data", "--data", "rows.jsonl", "--out", out, *options]

    return _making(tmp_path, command, "labels.jsonl", 20, "TEACHER_LOG")


@fault("Training", "kill -9, train generator-data")
def _(tmp_path: Path) -> Seen:
    write(tmp_path / "rows.jsonl", [row._asdict() for row in generator_runs.ROWS[:12]])
    with Index(tmp_path / "index", "bm25") as index:
        index.add(demo_passages())
        index.search("the scores are computed")
    model = ["--critic", "tests.training.teacher:slow_and_steady", "--index", "index"]
    options = [*model, "--chunk-size", "4", "--max-concurrency", "4", "--top-k", "2"]

    def command(out: str) -> list[str]:
        return ["train", "generator-data", "--data", "rows.jsonl", "--out", out, *options]

    return _making(tmp_path, command, "decisions.jsonl", 4, "TEACHER_LOG")


SLOW = """
import os
import time

from langchain_core.language_models.llms import LLM


class Slow(LLM):
    @property
    def _llm_type(self):
        return "slow"

    def _call(self, prompt, stop=None, run_manager=None, **kwargs):
        with open(os.environ["CALLS"], "a") as calls:
            calls.write(prompt.split("question: ")[1].split("\\n")[0] + "\\n")
        time.sleep(0.05)
        return "Document [1] says " + prompt.split("Document [1]")[1].split("\\n")[0]


llm = Slow()
"""


@fault("Training", "kill -9, train rationales")
def _(tmp_path: Path) -> Seen:
    (tmp_path / "slow_model.py").write_text(SLOW)
    documents = [[{"title": f"P{i}", "text": f"P{i} was born in C{i}."}] for i in range(40)]
    rows = [
        {"question": f"Where was P{i} born?", "answers": [f"C{i}"], "documents": found}
        for i, found in enumerate(documents)
    ]
    write(tmp_path / "rows.jsonl", rows)
    options = ["--model", "slow_model:llm", "--max-concurrency", "3"]

    def command(out: str) -> list[str]:
        return ["train", "rationales", "--data", "rows.jsonl", "--out", out, *options]

    return _making(tmp_path, command, "rationales.jsonl", 8, "CALLS")


# The folder of the run


@fault("Training", "disk full in a fine-tuning")
def _(tmp_path: Path) -> Seen:
    often = RunOptions(save_steps=4)

    def run(out: Path) -> object:
        return train_evaluator(
            test_evaluator.ROWS, out, test_evaluator.TOY, often, base=test_evaluator.toy()
        )

    with disk(tmp_path, "400k") as folder:
        error = raised_by(lambda: run(folder / "run"))
        remount(folder, "size=50m")
        assert run(folder / "run") == run(tmp_path / "whole")
    return Seen(error, goes_on="when run again")


@fault("Training", "disk full in a labelling")
def _(tmp_path: Path) -> Seen:
    def run(journal: Journal) -> None:
        with only_run(journal.path.parent):
            for key in map(str, range(2000)):
                if key not in journal.rows:
                    journal.append(key, {"label": "x" * 100})

    with disk(tmp_path, "100k") as folder:
        journal = Journal(folder / "labels.jsonl")
        error = raised_by(lambda: run(journal))
        assert 0 < len(journal.rows) < 2000
        later = Journal(journal.path)
        assert later.rows == journal.rows, "half a row is as if it had never been"
        remount(folder, "size=50m")
        run(journal)
        lines = journal.path.read_text().splitlines()
        assert [json.loads(line)["key"] for line in lines] == [str(i) for i in range(2000)]
    return Seen(error, goes_on="when run again")


@fault("Training", "two runs in one folder")
def _(tmp_path: Path) -> Seen:
    def run() -> None:
        with only_run(tmp_path):
            pass

    with only_run(tmp_path):
        error = raised_by(run)
    run()
    return Seen(error, goes_on="when run again")


@fault("Training", "folder of a run with other settings")
def _(tmp_path: Path) -> Seen:
    def run(seed: int) -> object:
        settings = dataclasses.replace(test_evaluator.TOY, num_train_epochs=0.2, seed=seed)
        rows, often = test_evaluator.ROWS, RunOptions(save_steps=1)
        return train_evaluator(rows, tmp_path, settings, often, base=test_evaluator.toy())

    run(1)
    return Seen(raised_by(lambda: run(2)))


@fault("Training", "row that cannot be read")
def _(tmp_path: Path) -> Seen:
    data = write(
        tmp_path / "rows.jsonl", [dataclasses.asdict(row) for row in test_evaluator.ROWS[:1]]
    )
    data.write_text(data.read_text() + '{"question": "half')
    return Seen(raised_by(lambda: read_graded(data)))


@fault("Training", "checkpoint that is half written")
def _(tmp_path: Path) -> Seen:
    def run(out: str) -> object:
        rows, often = test_evaluator.ROWS, RunOptions(save_steps=10)
        settings = dataclasses.replace(test_evaluator.TOY, num_train_epochs=2)
        return train_evaluator(rows, tmp_path / out, settings, often, base=test_evaluator.toy())

    whole = run("whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    checkpoints = tmp_path / "cut" / "checkpoints"
    newest = newest_checkpoint(checkpoints)
    assert newest
    state = Path(newest, "trainer_state.json")
    state.write_text(state.read_text()[:100])
    before = newest_checkpoint(checkpoints)
    assert before
    assert run("cut") == whole
    return Seen(None, [f"{Path(before).name} is before {Path(newest).name}"], "yes")
