"""Training rows from real text, as `examples.py` makes them from the made-up world."""

import re
from collections import defaultdict
from pathlib import Path

from nano_training.examples import (
    Mixture,
    Row,
    disguise,
    evidence,
    finish,
    irrelevant,
    prompt,
)
from nano_training.language import Entity, Kind, answer, ask
from nano_training.names import capitalise
from nano_training.real_text import NAME, Fact, Silence, real_text
from nano_training.world import World
from selfcorrect_rag.reflection import FULLY_SUPPORTED, NO_SUPPORT

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

    def answered(self, world: World, most: int) -> Row:
        """A fact asked for, its passage, the right answer and wrong ones."""
        fact, peers = self._drawn(world)
        right = finish(_said(world, fact, fact.value), FULLY_SUPPORTED, 5)
        others = [world.choice(peers).value, *re.findall(NAME, fact.text)]
        values = {world.choice(others), world.choice(others), world.choice(peers).value}
        wrong = [v for v in sorted(values) if v not in fact.value and fact.value not in v]
        texts = [finish(_said(world, fact, value), NO_SUPPORT, 2) for value in wrong[:2]]
        head = prompt(_question(world, fact)) + evidence(f"{fact.title}\n{fact.text}")
        return Row(head, (right, *texts), fact.value)

    def unhelpful(self, world: World, most: int) -> Row:
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
        return Row(prompt(_question(world, fact)) + evidence(page), (irrelevant(),), "")

    def unstated(self, world: World, most: int) -> Row:
        """A passage on the right subject that does not say what is asked."""
        silent = world.choice(self._silences[world.choice(list(self._silences))])
        question = _asked(world, silent.kind, silent.relation, silent.name)
        head = prompt(question) + evidence(f"{silent.title}\n{silent.text}")
        return Row(head, (irrelevant(),), "")

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
