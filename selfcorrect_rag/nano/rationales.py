"""InstructRAG's task in the made-up world: documents, questions on them, and their rationales.

The teacher is a rule that knows the world: it names the document that answers, says what the others
are about, and concludes. A few questions have a document on the subject that does not answer, or
none at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.instruct_prompts import inference_prompt
from selfcorrect_rag.nano.cases import Case, new_case
from selfcorrect_rag.nano.language import Passage, ask, new_entity, passage
from selfcorrect_rag.nano.world import World
from selfcorrect_rag.prompts import Part

BRIEFLY = "Give only the answer, without an explanation."
"""The instruction of in-context RALM, whose prompt is otherwise that of a rationale."""
NOT_KNOWN = "not known"
"""The bare answer where no document has it: the nano model knows nothing by itself."""
USEFUL = (
    "{answer} Document [{n}] says so.",
    "{answer} This is said in document [{n}].",
    "{answer} Document [{n}] is the one that is useful.",
    "From the documents we learn the following. {answer} Document [{n}] says so.",
)
"""What is found comes before where: so small a model reads the number off what it has found."""
REST = (
    "The other documents do not help.",
    "The other documents are not relevant.",
    "None of the other documents answers the question.",
    "",
)
CLOSE = ("document [{n}] is about {name}, but it does not say this.",)
NONE = (
    "None of the documents answers the question.",
    "The documents do not contain the answer to the question.",
)
CONCLUSION = ("Therefore, the answer is: {target}", "So the answer is: {target}")


class Asked(NamedTuple):
    """A question on shared documents."""

    case: Case
    gold: int | None
    """Index of the document that answers; None where none does."""
    close: int | None
    """Index of one on the same subject that does not."""


@dataclass(frozen=True)
class Reading:
    """Documents, and the questions that are asked about them."""

    documents: list[Document]
    asked: list[Asked]


def new_reading(world: World, count: int = 5, *, most: int = 4, held_out: bool = False) -> Reading:
    """``count`` documents on subjects that are easily confused, in random order.

    The first question's own document, one of another subject of the same kind, one of a similar
    name, one on the same subject that lacks what is asked, and strangers.
    """
    first = new_case(world, most, held_out)
    other = _like(world, first, None, held_out)
    similar = _like(world, first, world.alike_name(first.entity.name), held_out)
    stranger = new_case(world, most, held_out)
    absent = new_case(world, most, held_out)
    cases = [first, *world.random.sample([other, similar, stranger], 3)][: max(1, count - 1)]
    pages: list[tuple[Passage, Case | None]] = [(case.gold, case) for case in cases]
    if count > 1:
        pages.append((first.missing(), None))
    world.random.shuffle(pages)
    close = next((i for i, (_, case) in enumerate(pages) if case is None), None)
    asked = [
        Asked(case, i, close if case is first else None)
        for i, (_, case) in enumerate(pages)
        if case
    ]
    documents = [
        Document(" ".join(page.sentences), metadata={"title": page.title}) for page, _ in pages
    ]
    return Reading(documents, [*asked, Asked(absent, None, None)])


def _like(world: World, case: Case, name: str | None, held_out: bool) -> Case:
    """The same relation of another subject of the same kind."""
    while True:
        entity = new_entity(world, case.entity.kind, name)
        gold = passage(world, entity, case.relation, most=case.most)
        value = entity.value(world, case.relation.name)
        if value is not None:
            question = ask(world, entity, case.relation, held_out)
            return Case(world, entity, case.relation, question, value, gold, case.most)


def rationale(world: World, asked: Asked) -> str:
    """What the teacher writes."""
    case = asked.case
    if asked.gold is None:
        return world.choice(NONE)
    useful = world.choice(USEFUL).format(n=asked.gold + 1, answer=case.answer)
    rest = world.choice(REST)
    if asked.close is not None and world.chance(0.5):
        said = world.choice(CLOSE).format(n=asked.close + 1, name=case.entity.name)
        rest = f"{said[0].upper()}{said[1:]}"
    conclusion = f"{world.choice(CONCLUSION).format(target=case.target)}."
    return " ".join(filter(None, (useful, rest, conclusion)))


def training_texts(world: World, reading: Reading) -> list[tuple[str, str]]:
    """(prompt, completion) of every question; one in five asks for the answer alone."""
    texts = []
    for asked in reading.asked:
        briefly = world.chance(0.2)
        target = asked.case.target if asked.gold is not None else NOT_KNOWN
        completion = f"{target}." if briefly else rationale(world, asked)
        texts.append((prompt(asked.case.question, reading.documents, briefly), completion))
    return texts


def prompt(question: str, documents: Sequence[Document], briefly: bool) -> str:
    """The prompt as the graph gives it to an LLM: of InstructRAG-FT, or of in-context RALM."""
    made = inference_prompt(
        "ralm" if briefly else "ft", question, documents, (), BRIEFLY if briefly else None
    )
    parts: tuple[Part, ...] = (*made.parts, Part("\n", "trusted"))
    return "".join(part.text for part in parts)
