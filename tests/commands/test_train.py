"""`selfcorrect-rag train evaluator` from files to an evaluator that loads."""

import argparse
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from selfcorrect_rag.cli import main, parser
from selfcorrect_rag.commands import calibrate, train
from selfcorrect_rag.commands.train_generator import PRESETS
from selfcorrect_rag.commands.training_options import preset_from
from selfcorrect_rag.models import T5Evaluator
from tests.training.test_evaluator import ROWS, toy


def test_from_files_to_an_evaluator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, words = toy()
    model.save_pretrained(tmp_path / "base")
    words.save_pretrained(tmp_path / "base")  # type: ignore[attr-defined]
    data = tmp_path / "graded.jsonl"
    rows = [
        {"question": row.question, "positives": row.positives, "negatives": row.negatives}
        for row in ROWS
    ]
    data.write_text("\n".join(map(json.dumps, rows)))
    command = ["train", "evaluator", "--data", str(data), "--out", str(tmp_path / "run")]
    options = ["--model", str(tmp_path / "base"), "--num-train-epochs", "2", "--max-length", "48"]
    assert main([*command, *options, "--learning-rate", "0.003", "--hard-negatives", "1"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed.splitlines()[0])["num_train_epochs"] == 2
    assert '"auc"' in printed
    evaluator = T5Evaluator.from_pretrained(tmp_path / "run" / "evaluator")
    assert len(evaluator.score("Who?", ["a", "b"])) == 2


def test_bad_rows_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "graded.jsonl"
    data.write_text("{}")
    assert main(["train", "evaluator", "--data", str(data), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"selfcorrect-rag: {data}:1: not")


def test_numbers_that_count_something_are_1_at_least(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "evaluator", "--data", str(tmp_path / "none"), "--out", str(tmp_path)]
    for option in ("--batch-size", "--max-length"):
        with pytest.raises(SystemExit):
            main([*command, option, "0"])
        assert f"{option}: 0 is less than 1" in capsys.readouterr().err
    assert main([*command, "--hard-negatives", "0", "--lora-rank", "0", "--seed", "0"]) == 2
    assert "cannot read" in capsys.readouterr().err


def options() -> Iterator[tuple[str, argparse.Action]]:
    """Each option of ``calibrate`` and of every kind of ``train``, after its command."""

    def below(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for kind, subparser in action.choices.items():
                    yield from below(f"{name} {kind}".strip(), subparser)
            elif action.dest != "help":
                yield name, action

    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    train.add_parser(partial(commands.add_parser, "train"))
    calibrate.add_parser(partial(commands.add_parser, "calibrate"))
    return below("", parser)


def test_every_option_says_its_meaning_its_unit_and_its_default() -> None:
    seen = set()
    for command, action in options():
        where = f"{command} {action.option_strings}"
        seen.add(command)
        assert action.help, where
        assert len(action.help.split()) >= 3, where
        takes_value = action.nargs != 0
        if takes_value and not action.choices:
            unit = str(action.metavar)
            assert re.fullmatch(r"[A-Za-z:|=]{3,}", unit) or "GPUs" in action.help
        if takes_value and not action.required:
            assert re.search(r"[Dd]efault|required", action.help), where
    assert len(seen) == 8, seen


def test_every_preset_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "generator", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    for shown in (
        "2e-05 (7b, 13b), 1e-05 (8b), 0.0003 (nano)",
        "2048 (7b), 1524 (13b), 4096 (8b), 640 (nano)",
        "128 (7b, 13b, 8b), 16 (nano)",
    ):
        assert shown in printed


def test_an_option_of_zero_or_off_overrides_the_preset() -> None:
    options = ["--per-device-batch-size", "0", "--warmup-ratio", "0", "--no-packing"]
    files = ["--data", "rows.jsonl", "--out", "run"]
    args = parser(["train"]).parse_args(["train", "generator", *files, *options])
    settings = preset_from(args, PRESETS)
    assert PRESETS["7b"].packing
    assert PRESETS["7b"].per_device_batch_size == 1
    assert (settings.per_device_batch_size, settings.warmup_ratio) == (0, 0.0)
    assert not settings.packing
    assert settings.max_length == PRESETS["7b"].max_length
