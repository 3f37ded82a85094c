"""InstructRAG's demonstrations: the file that ``ask`` reads them from, and the mode without one."""

import argparse
import json
from pathlib import Path

from selfcorrect_rag.commands.knobs import refuse_unless
from selfcorrect_rag.errors import BadDemonstrations
from selfcorrect_rag.settings import InstructRAGSettings
from selfcorrect_rag.state.instruct_rag import Demonstration

GRAPH = "instruct-rag"


def add_demonstrations_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that :func:`demonstrations_from` takes."""
    parser.add_argument_group(f"demonstrations ({GRAPH})").add_argument(
        "--demonstrations-from",
        type=Path,
        metavar="FILE",
        help='JSONL rows {"question": ..., "rationale": ..., "answers": [...]}, such as '
        "`train rationales` writes; rationales for --mode icl, answers for few_shot",
    )


def check_demonstrations(args: argparse.Namespace) -> None:
    """Refuse the option for another graph.

    Raises:
        BadKnob: it is given.
    """
    refuse_unless(
        args.demonstrations_from is None or args.graph == GRAPH, "--demonstrations-from", [GRAPH]
    )


def demonstrations_from(path: Path | None) -> list[Demonstration]:
    """The demonstrations in a file; none where there is no file.

    Raises:
        BadDemonstrations: the file cannot be read, or a line is no demonstration.
    """
    if path is None:
        return []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadDemonstrations(f"cannot read {path}: {error}") from error
    return [
        _demonstration(line, f"{path}:{number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


def _demonstration(line: str, place: str) -> Demonstration:
    try:
        row = json.loads(line)
        made = Demonstration(question=str(row["question"]))
    except (ValueError, KeyError, TypeError) as error:
        raise BadDemonstrations(f'{place}: not {{"question": ..., "rationale": ...}}') from error
    if row.get("rationale"):
        made["rationale"] = str(row["rationale"])
    if isinstance(row.get("answers"), list):
        made["answers"] = [str(answer) for answer in row["answers"]]
    return made


def with_default_mode(
    settings: InstructRAGSettings, *, nano: bool, demonstrations: list[Demonstration]
) -> InstructRAGSettings:
    """The settings; the nano model, fine-tuned as it is, is asked as in its training."""
    if settings.mode is None and nano and not demonstrations:
        return settings.model_copy(update={"mode": "ft"})
    return settings
