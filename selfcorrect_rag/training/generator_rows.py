"""Rows that a generator is trained on, without reflection tokens and with them.

Both have the official keys: instruction, output, input, id and dataset_name.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from selfcorrect_rag.errors import BadTrainingData, require
from selfcorrect_rag.prompts.self_rag import question_text
from selfcorrect_rag.reflection import (
    CONTINUE,
    END_PARAGRAPH,
    GROUP_OF,
    GROUPS,
    IRRELEVANT,
    NO_RETRIEVAL,
    PARAGRAPH,
    RELEVANT,
    RETRIEVAL,
    Group,
    control_tokens,
)
from selfcorrect_rag.training.rows import read_rows


class _Fields(NamedTuple):
    instruction: str
    output: str
    input: str = ""
    id: str = ""
    dataset_name: str = ""


class GeneratorRow(_Fields):
    """An instruction, what it is about where the task keeps that apart, and an output."""

    @property
    def question(self) -> str:
        """The instruction slot, as at inference."""
        return question_text(self.input, self.instruction) if self.input else self.instruction

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the row, the same in any run."""
        known = json.dumps(self)
        return hashlib.sha256(known.encode()).hexdigest()[:32]


def read_generator_rows(path: Path) -> list[GeneratorRow]:
    """Rows of a JSONL file, or of one JSON list: ``instruction`` and ``output``, and the other
    keys where there are.

    Raises:
        BadTrainingData: the file or a row is not so; the message names file and line.
    """
    rows = [_row(value, place) for place, value in read_rows(path)]
    if not rows:
        raise BadTrainingData(f"{path} holds no rows")
    return rows


def _row(row: Any, place: str) -> GeneratorRow:
    given = {key: row.get(key) for key in GeneratorRow._fields} if isinstance(row, dict) else {}
    texts = {key: str(value) for key, value in given.items() if isinstance(value, str | int)}
    unread = [key for key, value in given.items() if value is not None and key not in texts]
    if unread or not all(texts.get(key, "").strip() for key in ("instruction", "output")):
        raise BadTrainingData(
            f'{place}: not {{"instruction": ..., "output": ...}}, with or without input, id, '
            "dataset_name"
        )
    return GeneratorRow(**texts)


def segments(output: str, language: str) -> list[str]:
    """The sentences of an output, which together are the output (A.2).

    A sentence of one word, such as the number in a list, goes with the one after it.

    Args:
        output: not blank.
        language: its ISO 639-1 code, such as ``en``.
    """
    whole: list[str] = []
    begun, start = "", 0
    # Strips and chunks are cut by a rule of ours, which needs no package at inference: a cut after
    # "Dr." costs them little. Here each cut becomes a segment, and the generator learns to make it.
    # Half a surrogate pair, which JSON may hold, is a letter more to Python and an error to Rust.
    readable = output.encode(errors="replace").decode()
    for found in require("sentencex", "train").segment(language, readable):
        sentence = output[start : start + len(found)]
        start += len(found)
        if whole and not begun and not sentence.strip():
            whole[-1] += sentence
        elif len(sentence.split()) < 2:
            begun += sentence
        else:
            whole.append(begun + sentence)
            begun = ""
    if whole:
        whole[-1] += begun
    return whole or [output]


_SIGNS = {
    NO_RETRIEVAL: "N",
    RETRIEVAL: "Y",
    CONTINUE: "C",
    PARAGRAPH: "<",
    END_PARAGRAPH: ">",
    RELEVANT: "R",
    IRRELEVANT: "I",
}
_ORDER = re.compile(r"t?(?:[NC]tg*|Y<t>(?:It|RtS)g*)*a*Ua*")
"""Order of the signs, with t for text: each segment after its decision, its critique, one ISUSE;
g and a are registered groups that judge a segment or its passage, and the answer."""


def _sign(token: str) -> str:
    group = GROUP_OF.get(token, "")
    if group in (Group.ISSUP, Group.ISUSE):
        return "S" if group == Group.ISSUP else "U"
    return _SIGNS.get(token) or ("a" if GROUPS[group].judges == "answer" else "g")


@cache
def token_pattern(tokens: tuple[str, ...]) -> re.Pattern[str]:
    """Matches each of ``tokens``, as the one group of the pattern."""
    return re.compile(f"({'|'.join(map(re.escape, tokens))})")


def tokens_and_texts(output: str) -> Iterator[tuple[str, bool]]:
    """The parts of an output with reflection tokens, in order, and whether each is a token."""
    for number, part in enumerate(token_pattern(control_tokens()).split(output)):
        if part:
            yield part, number % 2 == 1


def order_faults(output: str) -> list[str]:
    """Errors in the order of tokens of an output, as Figure 2 and Table 4 show it.

    A segment follows ``[No Retrieval]``; ``[Continue to Use Evidence]``; or ``[Retrieval]``, a
    passage and ISREL, and then ISSUP follows where the passage is relevant; tokens of registered
    groups end it. ISUSE ends the output, beside registered groups that judge the answer.
    """
    signs = "".join(_sign(part) if is_token else "t" for part, is_token in tokens_and_texts(output))
    if not _ORDER.fullmatch(signs):
        return [f"tokens are out of order: {signs}"]
    faults = []
    if signs.startswith("t"):
        faults.append("text before the first token")
    if "C" in signs.split("Y")[0]:
        faults.append(f"{CONTINUE} before any passage")
    return faults
