"""What the nano models learn from real text: facts found in encyclopedic passages by pattern, and
questions that people typed.

2WikiMultihopQA's passages come without questions: a fact is found where a sentence has the form in
which encyclopedias state it, and asked in the wordings of the made-up world. NQ-open has questions
and answers; one in five of them, by CRC-32, is never learned from.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nano_training.language import Kind, kinds
from nano_training.names import lists

TITLE = r"(?:[A-Z][\w'’\-]+|[A-Z]\.|de|van|von|der|la|bin|al|del|di|da|of|upon)"
NAME = rf"[A-Z][\w'’\-.]*[\w'’](?: {TITLE})*"
MONTH = "|".join(lists()["month"])
DATE = rf"(?:\d{{1,2}} (?:{MONTH})|(?:{MONTH}) \d{{1,2}},) \d{{4}}"
ENDS = "who|from|born|based|known|best|whose|active|of|in|for|at|with"
PERFORMER = r"by (?:[a-z\-]+ |American |British |English ){0,4}"
FOUND = {
    ("person", "occupation"): r"\b(?:is|was) an? (?:[A-Z][\w\-]+ ){1,2}([a-z][\w\- ,]*?)"
    rf"(?=[.;(]| (?:{ENDS}) )",
    ("person", "birth_place"): rf"\bborn (?:[^.;)]{{0,50}}? )?(?:in|at) (?!{MONTH})({NAME})",
    ("person", "birth_date"): rf"\(\s?(?:born )?({DATE})",
    ("person", "death_date"): rf"[–-] ?({DATE})\)",
    ("film", "director"): rf"\bfilm (?:\w+ ){{0,4}}directed by ({NAME})",
    ("film", "screenwriter"): rf"\bfilm [^.]*?\bwritten by ({NAME})",
    ("film", "star"): rf"\bfilm [^.]*?\bstarring ({NAME})",
    ("music", "performer"): rf"\b(?:song|album|single) (?:\w+ ){{0,3}}{PERFORMER}({NAME})",
}
"""How a fact stands in a passage: by kind of subject and relation."""
CUES = {
    ("person", "birth_place"): "born|native|rais|birth|from|hails",
    ("person", "occupation"): r"\b(?:is|was|as) an?\b",
    ("person", "father"): "son|daughter|father|child|parent",
    ("person", "mother"): "son|daughter|mother|child|parent",
    ("person", "spouse"): "wife|husband|marri|spouse|widow|consort|wed",
    ("person", "university"): "universit|college|educat|stud|graduat|school",
    ("person", "award"): "award|prize|won|medal|honour|honor|Oscar",
    ("person", "religion"): "relig|church|christ|musl|islam|jew|cathol|buddh|hind|bishop|priest",
    ("film", "director"): "direct",
    ("film", "composer"): "music|compos|score|soundtrack",
    ("film", "producer"): "produc",
    ("film", "screenwriter"): "writ|wrote|screenplay|script|adapt",
    ("music", "producer"): "produc",
    ("music", "label"): "record|label|released|music",
}
"""What a passage that is silent on a relation does not have."""
WORK = re.compile(r"(?:ist|er|or|ian|eer|ess|man|woman|star|general|peer)$")
NO_WORK = {"member", "brother", "sister", "daughter", "father", "mother", "newspaper", "former"}


class Fact(NamedTuple):
    """Something that a real passage states."""

    kind: Kind | None
    """None for a question that somebody typed."""
    relation: str
    """Of the kind; or the question."""
    name: str
    """Of the subject."""
    value: str
    title: str
    text: str


class Silence(NamedTuple):
    """A real passage that does not say something of its subject."""

    kind: Kind
    relation: str
    name: str
    title: str
    text: str


class RealText(NamedTuple):
    """What is learned from."""

    facts: list[Fact]
    silences: list[Silence]


def is_held_out(question: str) -> bool:
    """Whether a question that somebody typed is never learned from: one in five."""
    return zlib.crc32(question.encode()) % 5 == 0


def real_text(folder: Path) -> RealText:
    """Facts and silences of ``nq_open_oracle_2655.jsonl.gz`` and
    ``2wikimultihopqa_corpus_6119.json``; pages that PopQA's questions are about are left out."""
    lines = (folder / "popqa_dev_741.jsonl").read_text(encoding="utf-8").splitlines()
    kept = {json.loads(line)["s_wiki_title"] for line in lines}
    result = RealText([], [])
    for row in json.loads((folder / "2wikimultihopqa_corpus_6119.json").read_text("utf-8")):
        if row["title"] not in kept:
            _read(row["title"], _clean(row["text"]), result)
    result.facts.extend(fact for fact in typed(folder) if not is_held_out(fact.relation))
    return result


def typed(folder: Path) -> Iterator[Fact]:
    """NQ-open's questions, where an answer stands in the gold passage."""
    with gzip.open(folder / "nq_open_oracle_2655.jsonl.gz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            page = row["ctxs"][0]
            text = " ".join(page["text"].split())
            stated = [answer for answer in row["answers"] if answer in text]
            if stated:
                yield Fact(None, row["question"], "", stated[0], page["title"], text)


def _read(title: str, text: str, result: RealText) -> None:
    name = re.sub(r" \(.*\)$", "", title)
    if not text.startswith(('"', name.split(" ")[0])):
        return
    by_name = {kind.name: kind for kind in kinds()}
    of_kind = set()
    for (kind, relation), pattern in FOUND.items():
        found = re.search(pattern, " ".join(text.split(" ")[:60]))
        value = found[1].strip(" ,.") if found else ""
        if value and (relation != "occupation" or _is_work(value)):
            of_kind.add(kind)
            result.facts.append(Fact(by_name[kind], relation, name, value, title, text))
    if len(of_kind) == 1:
        (kind,) = of_kind
        for (of, relation), cues in CUES.items():
            if of == kind and not re.search(cues, text, re.IGNORECASE):
                result.silences.append(Silence(by_name[kind], relation, name, title, text))


def _is_work(text: str) -> bool:
    last = text.split(" ")[-1]
    return last not in NO_WORK and bool(WORK.search(last))


def _clean(text: str) -> str:
    """2Wiki's text with spaces where they belong."""
    text = re.sub(r"\s*\(\s*", " (", text)
    return " ".join(re.sub(r"\s+([,.;:)])", r"\1", text).split())
