"""Rows to label for a critic."""

import json
from pathlib import Path

from selfcorrect_rag.prompts.critique import Instance
from selfcorrect_rag.training.critic_data import CriticDataSettings

SETTINGS = CriticDataSettings("teacher")


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows))
    return path


def instances(number: int) -> list[Instance]:
    """Some without evidence, some without preceding sentences."""
    return [
        Instance(
            f"Who wrote book {i}?",
            output=f"It is old. She wrote it in {i}.",
            preceding_sentences="It is old." if i % 3 else "",
            segment=f"She wrote it in {i}.",
            evidence=f"Book {i}\nBook {i} is hers." if i % 2 else "",
        )
        for i in range(number)
    ]


def data(path: Path, number: int) -> Path:
    keys = {"segment": "target_output"}
    rows = [
        {keys.get(key, key): text for key, text in instance._asdict().items() if text}
        for instance in instances(number)
    ]
    return write(path, *rows)
