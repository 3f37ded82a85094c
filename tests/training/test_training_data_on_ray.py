"""`train critic-data`, `rationales`, `generator-data` on actors of Ray: as without, and killed."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from selfcorrect_rag.bulk import actors as on_actors
from selfcorrect_rag.bulk.ray_cluster import ray_cluster
from selfcorrect_rag.cli import main, parser
from selfcorrect_rag.commands.ray_options import check_ray_options
from selfcorrect_rag.demo import demo_passages
from selfcorrect_rag.errors import FailedOnActor
from selfcorrect_rag.search import Index
from selfcorrect_rag.training import labelling
from tests.commands.mistakes import assert_said_in_one_line
from tests.test_docs import ROOT
from tests.training import on_ray
from tests.training.critic_runs import data
from tests.training.generator_runs import ROWS, opinionated

MODEL = "tests.training.on_ray:model"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of two cores; this process is connected to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        with ray_cluster("local", cpus=2, gpus=0) as ray:
            yield ray.get_runtime_context().gcs_address


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(labelling, "MAX_TRIES", 1)


def rationale_rows(number: int) -> None:
    rows = [
        {
            "question": f"Where was P{i} born?",
            "answers": [f"C{i}"],
            "documents": [{"title": f"P{i}", "text": f"P{i} was born in C{i}."}],
        }
        for i in range(number)
    ]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))


def critic_data(out: str, *more: str, model: str = MODEL) -> list[str]:
    files = ["--data", "rows.jsonl", "--out", out, "--model", model]
    return ["train", "critic-data", *files, "--max-concurrency", "4", *more]


def rationales(out: str, *more: str) -> list[str]:
    files = ["--data", "rows.jsonl", "--out", out, "--model", MODEL]
    return ["train", "rationales", *files, "--max-concurrency", "4", *more]


def on_two(batch: int = 2) -> list[str]:
    return ["--on", "ray", "--actors", "2", "--batch-size", str(batch)]


def test_labels_are_the_same_though_an_actor_is_killed(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data(Path("rows.jsonl"), 12)
    assert main(critic_data("local.jsonl")) == 0
    local = capsys.readouterr().out.replace("local.jsonl", "OUT")
    needed = Counter(on_ray.asked())
    on_ray.ASKED.unlink()
    on_ray.DEADLY.write_text("Who wrote book 7?")
    assert main(critic_data("ray.jsonl", *on_two())) == 0
    assert Path("buried").exists(), "an actor was killed in the middle"
    assert capsys.readouterr().out.replace("ray.jsonl", "OUT") == local
    assert Path("ray.jsonl").read_bytes() == Path("local.jsonl").read_bytes()
    again = Counter(on_ray.asked()) - needed
    assert Counter(on_ray.asked()).keys() == needed.keys()
    assert again
    assert again <= Counter(on_ray.asked_of_the_killed()), "nothing else"
    assert again.total() <= on_actors.AHEAD * 2 * 2, "what was on its way, at most to one of both"
    assert len(on_ray.processes()) == 3, "both were asked, and the one in place of the killed"
    wait(lambda: not any(map(is_alive, on_ray.processes() - {os.getpid()})))
    assert os.getpid() not in on_ray.processes()


def test_rationales_go_on_after_the_command_was_killed(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rationale_rows(40)
    assert main(rationales("local.jsonl")) == 0
    report = capsys.readouterr().out.replace("local.jsonl", "OUT")
    on_ray.ASKED.unlink()
    on_ray.SECONDS.write_text("0.1")
    told = rationales("ray.jsonl", *on_two(), "--address", address)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    written = Path("ray.jsonl.run/rationales.jsonl")
    with subprocess.Popen(
        [sys.executable, "-m", "selfcorrect_rag.cli", *told],
        env=environment,
        stderr=subprocess.PIPE,
    ) as run:
        wait(lambda: written.exists() and len(written.read_text().splitlines()) >= 8, run)
        run.kill()
    done = {json.loads(line)["rationale"] for line in written.read_text().splitlines()}
    assert 8 <= len(done) < 40
    wait(lambda: not any(map(is_alive, on_ray.processes())))
    before = on_ray.asked()
    assert len(before) <= len(done) + 4
    on_ray.SECONDS.unlink()
    assert main(rationales("ray.jsonl", *on_two())) == 0
    assert Path("ray.jsonl").read_bytes() == Path("local.jsonl").read_bytes()
    assert capsys.readouterr().out.replace("ray.jsonl", "OUT") == report
    assert len(on_ray.asked()) - len(before) == 40 - len(done), "what is done is not asked again"


def test_what_an_actor_raises_or_dies_of_is_a_failed_row(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_actors, "RETRIES", 1)
    rationale_rows(12)
    on_ray.FATAL.write_text("Where was P5 born?")
    on_ray.FAULTY.write_text("Where was P3 born?")
    assert main(rationales("out.jsonl", "--on", "ray", "--max-concurrency", "1")) == 1
    reasons = {
        row["question"]: row["reason"]
        for row in map(json.loads, Path("out.jsonl.run/failures.jsonl").read_text().splitlines())
    }
    assert "EngineFailed: actors were lost 2 times in one call" in reasons["Where was P5 born?"]
    assert reasons["Where was P3 born?"] == "ConnectionError: no route", "as without Ray"
    assert len(reasons) == 2
    on_ray.FAULTY.unlink()
    on_ray.FATAL.unlink()
    assert main(rationales("out.jsonl")) == 0, "which goes on without Ray too"
    assert main(rationales("local.jsonl")) == 0
    assert Path("out.jsonl").read_bytes() == Path("local.jsonl").read_bytes()


def test_a_critic_and_an_index_on_actors_make_the_same_rows(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    critic = opinionated()
    critic.model.save_pretrained("critic")
    critic.tokenizer.save_pretrained("critic")
    Path("rows.jsonl").write_text("".join(json.dumps(row._asdict()) + "\n" for row in ROWS[:5]))
    with Index("index", "bm25") as index:
        index.add(demo_passages())
    told = ["train", "generator-data", "--data", "rows.jsonl", "--critic", "critic"]
    told += ["--index", "index", "--top-k", "2", "--device", "cpu", "--out"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as an actor has: else the last digits of probabilities differ
    try:
        assert main([*told, "local.jsonl"]) == 0
    finally:
        torch.set_num_threads(threads)
    report = capsys.readouterr().out.replace("local.jsonl", "OUT")
    assert main([*told, "ray.jsonl", *on_two(8)]) == 0
    assert capsys.readouterr().out.replace("ray.jsonl", "OUT") == report
    for name in ("{}.jsonl", "{}.jsonl.run/decisions.jsonl"):
        assert Path(name.format("ray")).read_bytes() == Path(name.format("local")).read_bytes()


async def test_actors_are_asked_in_python_and_asynchronously(address: str) -> None:
    prompts = ["Document [1] (Title: P1)\nP1 was born in C1.", "Document [1] (Title: P2)"]
    with on_actors.on_actors({"model": on_ray.model}) as actors:
        model = on_actors.ActorRunnable(actors, "model")
        assert await model.abatch(prompts) == model.batch(prompts)
        with pytest.raises(FailedOnActor, match="TypeError"):
            await model.ainvoke(5)


def test_a_model_that_cannot_be_made_on_an_actor(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data(Path("rows.jsonl"), 2)
    broken = critic_data("out.jsonl", "--on", "ray", model="tests.training.on_ray:broken")
    assert main(broken) == 2
    said = capsys.readouterr().err
    assert said.splitlines()[-1] == (
        "selfcorrect-rag: the model cannot be opened on an actor: "
        "ConnectionError: the model's server has gone"
    )
    assert main(critic_data("out.jsonl", *on_two(), "--gpus-per-actor", "0.5")) == 2
    assert_said_in_one_line(capsys, "0 GPUs, which is room for 0 actors of 0.5 GPUs each: 2 are")
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--actors", "2"], "--actors is for --on ray"),
        (["--address", "auto"], "--address is for --on ray"),
        (["--gpus-per-actor", "1"], "--gpus-per-actor is for --on ray"),
        (["--batch-size", "4"], "--batch-size is for --on ray"),
    ],
)
def test_options_that_lead_nowhere(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data(Path("rows.jsonl"), 2)
    for command in (critic_data, rationales):
        if command is rationales:
            rationale_rows(2)
        assert main(command("out.jsonl", *options)) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("page", ["critic", "generator-data", "instruct-rag-training"])
def test_the_command_of_the_page(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"selfcorrect-rag (train .*\\\n *--on ray .*)\n", text)
    args = parser(["train"]).parse_args(shlex.split(command.replace("\\\n", " ")))
    assert (args.on, args.address) == ("ray", "10.0.0.1:6379")
    assert args.actors > 1 == args.gpus_per_actor
    check_ray_options(args)


def test_an_address_that_does_not_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    data(Path("rows.jsonl"), 2)
    assert main(critic_data("out.jsonl", "--on", "ray", "--address", "127.0.0.1:9")) == 2
    assert "no Ray answers at 127.0.0.1:9" in capsys.readouterr().err.splitlines()[-1]


def wait(until: Callable[[], bool], run: "subprocess.Popen[bytes] | None" = None) -> None:
    for _ in range(600):
        if until():
            return
        if run and run.poll() is not None and run.stderr:
            raise AssertionError(run.stderr.read().decode())
        time.sleep(0.1)
    raise AssertionError("it never came")


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
