"""A question about a made-up subject, with passages that answer it and passages that do not."""

from dataclasses import dataclass

from langchain_core.documents import Document

from nano_training.language import (
    Entity,
    Passage,
    Relation,
    answer,
    ask,
    new_entity,
    passage,
)
from nano_training.world import World


@dataclass
class WorldQuestion:
    """A question about an entity, its right answer, and passages for and against it."""

    world: World
    entity: Entity
    relation: Relation
    question: str
    value: str
    gold: Passage
    most: int

    @property
    def target(self) -> str:
        """The string that a right answer contains: the value, or the name where that is asked."""
        return self.value if self.relation.forward else self.entity.name

    @property
    def evidence(self) -> str | None:
        """The words of the gold passage that answer the question; None where that is its title."""
        return None if self.value == self.entity.name else self.value

    @property
    def answer(self) -> str:
        """The right answer."""
        return answer(self.entity, self.relation, self.value)

    def wrong_answer(self) -> str:
        """An answer with another value: from the same passage, a look-alike, or a random one."""
        world, relation = self.world, self.relation
        kind = relation.value.removeprefix("later_")
        roll = world.random.random()
        nearby = [m for m in self.gold.mentions.get(kind, []) if m not in self.target]
        if not relation.forward:
            people = [m for m in self.gold.mentions.get("person", []) if m != self.entity.name]
            name = world.choice(people) if people and roll < 0.5 else world.alike(self.entity.name)
            liar = Entity(self.entity.kind, name, self.entity.pronouns, True, self.entity.values)
            return answer(liar, relation, name if kind == "same" else self.value)
        if nearby and roll < 0.5:
            return answer(self.entity, relation, world.choice(nearby))
        named = self.value[0].isupper() or any(letter.isdigit() for letter in self.value)
        twist = kind == "same" or (named and roll < 0.75)
        value = world.alike(self.value) if twist else world.draw(relation.value)
        if value == self.value:
            value = world.coin()
        return answer(self.entity, relation, value)

    def other(self) -> Passage:
        """A passage about another subject of the same kind that states the same relation."""
        return passage(
            self.world, new_entity(self.world, self.entity.kind), self.relation, most=self.most
        )

    def similar(self) -> Passage:
        """A passage about a subject with a similar name."""
        entity = new_entity(self.world, self.entity.kind, self.world.alike_name(self.entity.name))
        if self.relation.slot in self.entity.values and not self.relation.forward:
            entity.values[self.relation.slot] = self.world.alike(self.value)
        return passage(self.world, entity, self.relation, most=self.most)

    def missing(self) -> Passage:
        """A passage about the same subject that does not say what is asked."""
        return passage(self.world, self.entity, without=self.relation, most=self.most)

    def stranger(self) -> Passage:
        """A passage about anything else."""
        return passage(self.world, new_entity(self.world), most=self.most)

    def distractor(self) -> Passage:
        """A passage that does not answer."""
        return self.world.random.choices(
            (self.other, self.similar, self.stranger, self.missing), (2, 3, 1, 4)
        )[0]()

    def documents(self, distractors: int = 4) -> list[Document]:
        """The gold passage among ``distractors`` that do not answer, in random order."""
        passages = [self.gold, *(self.distractor() for _ in range(distractors))]
        self.world.random.shuffle(passages)
        return [document(passage) for passage in passages]


def document(passage: Passage) -> Document:
    """A passage as a retriever gives it."""
    return Document(" ".join(passage.sentences), metadata={"title": passage.title})


def new_question(world: World, most: int, held_out: bool = False) -> WorldQuestion:
    """A fresh question with its gold passage; `most` bounds the sentences of its passages."""
    while True:
        entity = new_entity(world)
        relation = world.choice(list(entity.kind.relations.values()))
        if entity.kind.name == "person" and world.chance(0.2):
            relation = entity.kind.relations[world.choice(("birth_place", "occupation"))]
        gold = passage(world, entity, relation, most=most)
        question = ask(world, entity, relation, held_out)
        value = entity.value(world, relation.name)
        if value is not None:
            return WorldQuestion(world, entity, relation, question, value, gold, most)
