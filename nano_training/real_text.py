"""Training rows from real text: facts found in encyclopedic passages by pattern, and questions that
people typed.

2WikiMultihopQA's passages come without questions: a fact is found where a sentence has the form in
which encyclopedias state it, and asked in the wordings of the made-up world. NQ-open has questions
and answers; one in five of them, by CRC-32, is never learned from.
"""

import gzip
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nano_training.language import Entity, Kind, answer, ask, kinds
from nano_training.rows import (
    Mixture,
    TrainingRow,
    disguise,
    evidence,
    finish,
    irrelevant,
    prompt,
)
from nano_training.world import World, capitalise, lists
from selfcorrect_rag.reflection import FULLY_SUPPORTED, NO_SUPPORT

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
"""Patterns of facts in passages: by kind of subject and relation."""
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
"""Words that a passage on a kind of subject lacks where it does not state a relation."""
WORK = re.compile(r"(?:ist|er|or|ian|eer|ess|man|woman|star|general|peer)$")
NO_WORK = {"member", "brother", "sister", "daughter", "father", "mother", "newspaper", "former"}


class Fact(NamedTuple):
    """Something that a real passage states."""

    kind: Kind | None
    """None for a question that somebody typed."""
    relation: str
    """A relation of the kind; or the question."""
    name: str
    """Name of the subject."""
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
    """All facts and silences of the data sets."""

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


SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z])")
SHORTEST = 8
"""Words that must be left of a passage without its answer."""


class RealRows:
    """Rows on facts and silences of real passages."""

    def __init__(self, folder: Path) -> None:
        """``folder``: of the real data."""
        found = real_text(folder)
        facts: dict[str, list[Fact]] = defaultdict(list)
        for fact in found.facts:
            facts[fact.relation if fact.kind else "typed"].append(fact)
        pages = {relation: {fact.title for fact in some} for relation, some in facts.items()}
        self._facts = {
            relation: some for relation, some in facts.items() if len(pages[relation]) > 1
        }
        self._silences: dict[str, list[Silence]] = defaultdict(list)
        for silence in found.silences:
            self._silences[silence.relation].append(silence)

    def answered(self, world: World, most: int) -> TrainingRow:
        """A fact asked for, its passage, the right answer and wrong ones."""
        fact, peers = self._drawn(world)
        right = finish(_said(world, fact, fact.value), FULLY_SUPPORTED, 5)
        others = [world.choice(peers).value, *re.findall(NAME, fact.text)]
        values = {world.choice(others), world.choice(others), world.choice(peers).value}
        wrong = [v for v in sorted(values) if v not in fact.value and fact.value not in v]
        texts = [finish(_said(world, fact, value), NO_SUPPORT, 2) for value in wrong[:2]]
        head = prompt(_question(world, fact)) + evidence(f"{fact.title}\n{fact.text}")
        return TrainingRow(head, (right, *texts), fact.value)

    def unhelpful(self, world: World, most: int) -> TrainingRow:
        """A fact asked for, and a passage on something else or without what is asked."""
        fact, peers = self._drawn(world)
        rest = [s for s in SENTENCE.split(fact.text) if fact.value.lower() not in s.lower()]
        if not fact.kind and len(" ".join(rest).split(" ")) >= SHORTEST and world.chance(0.5):
            page = f"{fact.title}\n{' '.join(rest)}"
        else:
            other = world.choice(peers)
            while other.title == fact.title:
                other = world.choice(peers)
            page = f"{other.title}\n{other.text}"
        return TrainingRow(prompt(_question(world, fact)) + evidence(page), (irrelevant(),), "")

    def unstated(self, world: World, most: int) -> TrainingRow:
        """A passage on the right subject that does not say what is asked."""
        silent = world.choice(self._silences[world.choice(list(self._silences))])
        question = _asked(world, silent.kind, silent.relation, silent.name)
        head = prompt(question) + evidence(f"{silent.title}\n{silent.text}")
        return TrainingRow(head, (irrelevant(),), "")

    def _drawn(self, world: World) -> tuple[Fact, list[Fact]]:
        """A fact, and those of its relation; relations in proportion to the root of their facts."""
        sorts = list(self._facts.values())
        peers = world.random.choices(sorts, [len(facts) ** 0.5 for facts in sorts])[0]
        return world.choice(peers), peers


def _question(world: World, fact: Fact) -> str:
    if fact.kind is None:
        return fact.relation
    return _asked(world, fact.kind, fact.relation, fact.name)


def _asked(world: World, kind: Kind, relation: str, name: str) -> str:
    entity = Entity(kind, name, ("it", "its", "it"), True)
    return disguise(world, ask(world, entity, kind.relations[relation]))


def _said(world: World, fact: Fact, value: str) -> str:
    """An answer: a sentence, or the bare value to a question that somebody typed."""
    if fact.kind is None:
        return capitalise(value) + "."
    alive = not re.search(r"\bwas\b", fact.text)
    entity = Entity(fact.kind, fact.name, ("it", "its", "it"), alive)
    return answer(entity, fact.kind.relations[fact.relation], value)


def with_real_text(mixture: Mixture, folder: Path) -> Mixture:
    """The mixture, and half as many rows again on real text."""
    real, total = RealRows(folder), sum(mixture.shares.values())
    shares = {real.answered: 0.25, real.unhelpful: 0.1, real.unstated: 0.15}
    scaled = {make: share * total for make, share in shares.items()}
    return Mixture({**mixture.shares, **scaled}, mixture.most)
