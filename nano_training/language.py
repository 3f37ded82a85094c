"""Passages, questions and answers about the made-up world, from `templates/*.toml`.

Template syntax: `{slot}` is a value, `<a|b|>` one of several texts, `{a=b}` one value shared by two
relations, `{v}` the value of the relation at hand. A slot that names a relation of the subject (or
one of its extra `values`) always gives the same value; any other slot draws a fresh one.
A relation is asked for in its own wordings and in those that many share (`questions.toml`). One in
five is held out of training and used in the evaluation; a shared construction that is held out for
one relation is trained with others.
"""

import re
import tomllib
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from nano_training.world import TEMPLATES, World, capitalise

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


FILES = ("person", "works", "places", "things")
CHOICE = re.compile(r"<([^<>]*)>")
VOWEL = re.compile(r"(?!uni|uk|ur|ug|ut|eu|one|use)[aeiouáéåö]", re.IGNORECASE)


@dataclass(frozen=True)
class Relation:
    """One thing that can be said of a subject, and asked."""

    name: str
    value: str
    """The kind of value, as `World.draw` knows it; `same` is the subject's own name."""
    facts: tuple[str, ...]
    asks: tuple[str, ...]
    """Ways of asking for it, in training."""
    held_out: tuple[str, ...]
    """Ways of asking for it that training never uses."""
    answer: str
    family: str
    """Relations of one family answer each other's questions (date and year of birth)."""
    slot: str
    """The slot that states it: its own name, but for a relation read backwards."""

    @property
    def forward(self) -> bool:
        """Whether the subject is named and the value asked for, not the other way round."""
        return "{name}" in self.asks[0]


@dataclass(frozen=True)
class Kind:
    """A kind of subject: how passages about it open, what else they say, what can be asked."""

    name: str
    weight: float
    naming: str
    leads: tuple[str, ...]
    extras: tuple[str, ...]
    values: Mapping[str, str]
    relations: Mapping[str, Relation]


@cache
def kinds() -> tuple[Kind, ...]:
    """Every kind of subject, read from the template files."""
    tables: dict[str, Any] = {}
    for file in FILES:
        tables |= tomllib.loads((TEMPLATES / f"{file}.toml").read_text(encoding="utf-8"))
    return tuple(_kind(name, table) for name, table in tables.items())


def _kind(name: str, table: Mapping[str, Any]) -> Kind:
    relations = {
        key: Relation(
            key,
            row["value"],
            tuple(row["facts"]),
            *split(wordings(row)),
            row["answer"],
            row.get("family", key),
            row.get("slot", key),
        )
        for key, row in table["relations"].items()
    }
    return Kind(
        name,
        table["weight"],
        table["name"],
        tuple(table["leads"]),
        tuple(table["extras"]),
        table.get("values", {}),
        relations,
    )


@dataclass
class Entity:
    """A subject with its values, filled in as they are needed."""

    kind: Kind
    name: str
    pronouns: tuple[str, str, str]
    """Subject, possessive and object form."""
    alive: bool
    values: dict[str, str] = field(default_factory=dict)

    def value(self, world: World, slot: str) -> str | None:
        """The value of a relation or extra of this subject; None for any other slot."""
        if slot in self.values:
            return self.values[slot]
        relation = self.kind.relations.get(slot)
        source = relation.value if relation else self.kind.values.get(slot)
        if source is None:
            return None
        self.values[slot] = self.name if source == "same" else world.draw(source)
        return self.values[slot]

    @property
    def be(self) -> str:
        """is or was."""
        return "is" if self.alive else "was"


@dataclass
class Passage:
    """A short text about one subject."""

    title: str
    sentences: list[str]
    stated: set[str]
    """Slots of the relations it states."""
    mentions: dict[str, list[str]]
    """Values that occur in it, by kind of value."""

    @property
    def text(self) -> str:
        """Title line and text, as it stands between the paragraph tokens."""
        return f"{self.title}\n{' '.join(self.sentences)}"


def new_entity(world: World, kind: Kind | None = None, name: str | None = None) -> Entity:
    """A fresh subject: of `kind`, called `name`, where given."""
    kind = kind or world.random.choices(kinds(), [k.weight for k in kinds()])[0]
    world.year_of_reference = world.random.randint(1750, 2000)
    person = (("he", "his", "him"), ("she", "her", "her"))
    pronouns = world.choice(person) if kind.name == "person" else ("it", "its", "it")
    alive = kind.name != "person" or world.chance(0.4)
    return Entity(kind, name or world.name(kind.naming), pronouns, alive)


class Writer:
    """Fills templates about one subject and keeps account of what has been said."""

    def __init__(self, world: World, entity: Entity) -> None:
        self.world, self.entity = world, entity
        self.stated: set[str] = set()
        self.families: set[str] = set()
        self.mentions: dict[str, list[str]] = defaultdict(list)

    def sentence(self, template: str, relation: Relation | None = None) -> str:
        """One finished sentence; `relation` is what `{v}` stands for."""
        text = CHOICE.sub(lambda m: self.world.choice(m[1].split("|")), template)
        if "{death" in text:
            self.entity.alive = False
        text = text.replace("{v}", f"{{{relation.name}}}") if relation else text
        return capitalise(" ".join(SLOT.sub(self._fill, text).split()))

    def _fill(self, match: re.Match[str]) -> str:
        article, slot = match.groups()
        text = self._value(slot)
        if article:
            return f"{article}{'n' if VOWEL.match(text) else ''} {text}"
        return text

    def _value(self, slot: str) -> str:
        entity, world = self.entity, self.world
        it, its, him = entity.pronouns
        match slot:
            case "name":
                return entity.name
            case "be":
                return entity.be
            case "his":
                return its
            case "he":
                return it
            case "him":
                return him
            case "it" | "its":
                short = entity.name.split(" ")[-1] if entity.kind.name == "person" else entity.name
                mention = world.choice((entity.name, short, it, it))
                if slot == "it":
                    return mention
                return its if mention == it else f"{mention}'s"
        names = slot.split("=")
        value = entity.value(world, names[0])
        if value is None:
            value = world.draw({"surname": "last"}.get(slot, slot))
            self.mentions[slot.removeprefix("later_")].append(value)
            return value
        for name in names:
            entity.values[name] = value
            if relation := entity.kind.relations.get(name):
                self.stated.add(name)
                self.families.add(relation.family)
                self.mentions[relation.value.removeprefix("later_")].append(value)
        return value


def slots(template: str) -> set[str]:
    """The slots of `template`, in all its variants."""
    return {name for _, slot in SLOT.findall(template) for name in slot.split("=")}


def salad(world: World) -> str:
    """A sentence of random words: reading must survive what it does not know."""
    glue = ("the", "of", "a", "in", "and", "to", "is", "with", "for", "by", "from", "was", "as")
    words = [
        world.choice(glue)
        if world.chance(0.35)
        else world.draw("word" if world.chance(0.85) else "place")
        for _ in range(world.random.randint(5, 16))
    ]
    return capitalise(" ".join(words)) + "."


def passage(
    world: World,
    entity: Entity,
    must: Relation | None = None,
    without: Relation | None = None,
    most: int = 8,
) -> Passage:
    """A passage about `entity` that states `must`, leaves out all of `without`'s family, and has
    at most about `most` sentences beside its lead and what it must state."""
    kind, writer = entity.kind, Writer(world, entity)
    entity.alive &= not (must and must.family == "death")
    closed = {r.slot for r in kind.relations.values() if without and r.family == without.family}
    closed |= {
        r.slot
        for r in kind.relations.values()
        if must and r.family == must.family and r.slot != must.slot
    }

    def allowed(templates: Sequence[str]) -> list[str]:
        return [t for t in templates if not slots(t) & closed]

    leads = allowed(kind.leads) or ["{name} is mentioned in {title}."]
    if must and world.chance(0.55):
        leads = [t for t in leads if must.slot in slots(t)] or leads
    lead = writer.sentence(world.choice(leads))
    if kind.name == "person" and " " in entity.name and world.chance(0.12):
        lead = lead.replace(entity.name, longer_name(world, entity.name), 1)
    body: list[str] = []
    for relation in world.random.sample(list(kind.relations.values()), len(kind.relations)):
        told = relation.family in writer.families
        if relation is must:
            wanted = relation.slot not in writer.stated
        else:
            wanted = not told and len(body) < most and world.chance(0.25)
            wanted &= not (entity.alive and relation.slot.startswith("death"))
        facts = [] if relation.slot in closed else allowed(relation.facts)
        if wanted and facts:
            body.append(writer.sentence(world.choice(facts), relation))
    for _ in range(world.choice([n for n in (0, 0, 1, 1, 2, 3, 5, 8) if n <= most])):
        extra = salad(world) if world.chance(0.15) else writer.sentence(world.choice(kind.extras))
        body.append(extra)
    world.random.shuffle(body)
    sentences = [*body[:1], lead, *body[1:]] if body and world.chance(0.06) else [lead, *body]
    title = capitalise(entity.name.removeprefix("the "))
    return Passage(title, sentences, writer.stated, dict(writer.mentions))


def longer_name(world: World, name: str) -> str:
    """A person's full name, as encyclopedias open with it: with middle names."""
    first, rest = name.split(" ", 1)
    middle = world.choice((world.draw("first"), world.coin(), f"{world.coin()} {world.coin()}"))
    return f"{first} {middle} {rest}"


def ask(world: World, entity: Entity, relation: Relation, held_out: bool = False) -> str:
    """A question for `relation`, in a wording of training or in a held-out one."""
    wording = world.choice(relation.held_out if held_out else relation.asks)
    return Writer(world, entity).sentence(wording, relation)


def answer(entity: Entity, relation: Relation, value: str) -> str:
    """The sentence that answers with `value`, right or wrong."""
    text = relation.answer.replace("{v}", "{value}")
    slot_values = {**entity.values, "name": entity.name, "be": entity.be, "value": value}

    def fill(match: re.Match[str]) -> str:
        article, slot = match.groups()
        filled = slot_values[slot]
        return f"{article}{'n' if VOWEL.match(filled) else ''} {filled}" if article else filled

    return capitalise(SLOT.sub(fill, text))
