"""What a run that can be killed keeps beside its results, so that it goes on as it began."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selfcorrect_rag.errors import BadTrainingData


def refuse_others(file: Path, settings: Mapping[str, Any]) -> None:
    """Do nothing if ``file`` holds ``settings``, or does not exist yet.

    Raises:
        BadTrainingData: it is of a run with other settings.
    """
    if file.exists() and json.loads(file.read_text(encoding="utf-8")) != settings:
        raise BadTrainingData(f"{file} is of a run with other settings: write somewhere else")


def keep_settings(file: Path, settings: Mapping[str, Any]) -> None:
    """Write ``settings`` (JSON values) to ``file``, unless it holds others.

    Raises:
        BadTrainingData: see :func:`refuse_others`.
    """
    refuse_others(file, settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = file.with_name(f"{file.name}.new")  # a kill leaves the old file or the new one
    whole.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    whole.replace(file)


def newest_checkpoint(folder: Path) -> str | None:
    """The newest of the Trainer's checkpoints in ``folder``; None before the first."""
    from transformers.trainer_utils import get_last_checkpoint

    if not folder.is_dir():
        return None
    newest: str | None = get_last_checkpoint(str(folder))  # type: ignore[no-untyped-call]
    return newest
