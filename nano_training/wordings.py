"""Ways of asking, and which of them training never sees.

A relation is asked in its own wordings and in those that many relations share (`questions.toml`).
One wording in five is held out of training and used in the evaluation; a shared construction that
is held out for one relation is trained with others.
"""

import re
import tomllib
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from nano_training.names import TEMPLATES

SLOT = re.compile(r"(?:\b([Aa]) )?\{([\w=]+)\}")
"""A value in a template, with the article before it."""


@cache
def questions() -> Mapping[str, list[str]]:
    """The ways of asking that many relations share."""
    return tomllib.loads((TEMPLATES / "questions.toml").read_text(encoding="utf-8"))


def wordings(row: Mapping[str, Any]) -> list[str]:
    """Every way of asking for a relation: its own, then the shared ones in its words."""
    asked = SLOT.search(row["asks"][0])
    subject = f"{{{asked[2]}}}" if asked else ""
    shared = []
    for words in row.get("agent", ()):
        past, participle, noun = words.split(" ", 2)
        given = {"past": past, "participle": participle, "noun": noun}
        shared += [(frame, given) for key in ("agent", "agent_noun") for frame in questions()[key]]
    shared += [(frame, {"noun": n}) for n in row.get("noun", ()) for frame in questions()["noun"]]
    shared += [
        (frame, {"participle": participle})
        for key in ("when", "where")
        for participle in row.get(key, ())
        for frame in questions()[key]
    ]
    made = [
        frame.format(x=subject, **given)
        for frame, given in shared
        if all(given.get(word) != "-" for word in re.findall(r"\{(\w+)\}", frame))
    ]
    return list(dict.fromkeys([*row["asks"], *made]))


def split(asks: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Wordings to train with, and those held out: by a hash of the wording, so that relations
    which share one agree about it."""
    held = [zlib.crc32(SLOT.sub("{x}", wording).encode()) % 5 == 0 for wording in asks]
    trained = tuple(wording for wording, out in zip(asks, held, strict=True) if not out)
    return trained, tuple(wording for wording, out in zip(asks, held, strict=True) if out)
