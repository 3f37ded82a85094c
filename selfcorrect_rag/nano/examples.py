"""Training rows in Self-RAG's format, drawn without end from the made-up world.

A row is one string: prompt, control tokens, passages, segments, `</s>`. What is trained in it
follows from its token ids alone (see `labels.py`): text of a segment that is not judged fully
supported is read, not learned, so a row may hold a wrong answer and its critique.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from selfcorrect_rag.nano.cases import new_case
from selfcorrect_rag.nano.language import (
    new_entity,
    passage,
)
from selfcorrect_rag.nano.names import TEMPLATES, capitalise
from selfcorrect_rag.nano.world import World
from selfcorrect_rag.reflection import (
    CONTINUE,
    END_PARAGRAPH,
    FULLY_SUPPORTED,
    IRRELEVANT,
    NO_RETRIEVAL,
    NO_SUPPORT,
    PARAGRAPH,
    PARTIALLY_SUPPORTED,
    RELEVANT,
    RETRIEVAL,
    UTILITY,
)

EOS = "</s>"
NOT_SAID = "The passage does not say."
TRUE_OR_FALSE = (
    "Is the following statement correct or not? Say true if it's correct; otherwise say false."
)
FOUR_CHOICES = "Given four answer candidates, A, B, C and D, choose the best answer choice."
BREAKS = ("", "\n\n", " ")
"""What stands between a task's instruction and its input in the data sets of the papers."""


def prompt(instruction: str) -> str:
    """The generator's prompt (Self-RAG, official code)."""
    return f"### Instruction:\n{instruction}\n\n### Response:\n"


def evidence(text: str) -> str:
    """A passage as it stands in a row."""
    return f"{RETRIEVAL}{PARAGRAPH}{text}{END_PARAGRAPH}"


def disguise(world: World, question: str) -> str:
    """The question as people also type it."""
    if world.chance(0.88):
        return question
    bare = question.rstrip("?.")
    return world.choice(
        (
            bare,
            f"Question: {question}",
            f"{question} Answer briefly.",
            f"Can you tell me: {question}",
            f"Please answer: {question}",
        )
    )


def finish(text: str, critique: str, utility: int) -> str:
    """A last segment after a relevant passage."""
    return f"{RELEVANT}{text}{critique}{UTILITY[utility - 1]}{EOS}"


def irrelevant() -> str:
    """What follows a passage that does not help: no ISSUP, as in the paper's data."""
    return f"{IRRELEVANT}{NOT_SAID}{UTILITY[0]}{EOS}"


def supported(world: World, most: int) -> str:
    """A right answer from the gold passage."""
    case = new_case(world, most)
    head = prompt(disguise(world, case.question)) + evidence(case.gold.text)
    return head + finish(case.answer, FULLY_SUPPORTED, 5)


def unsupported(world: World, most: int) -> str:
    """A wrong answer and its critique."""
    case = new_case(world, most)
    head = prompt(disguise(world, case.question)) + evidence(case.gold.text)
    return head + finish(case.wrong_answer(), NO_SUPPORT, 2)


def partial(world: World, most: int) -> str:
    """A right answer with an addition that the passage does not support."""
    case = new_case(world, most)
    double = new_entity(world, case.entity.kind, case.entity.name)
    other = passage(world, double, without=case.relation, most=1).sentences[-1]
    head = prompt(case.question) + evidence(case.gold.text)
    return head + finish(f"{case.answer} {other}", PARTIALLY_SUPPORTED, 4)


def unhelpful(world: World, most: int) -> str:
    """A passage that does not answer the question."""
    case = new_case(world, most)
    return prompt(disguise(world, case.question)) + evidence(case.distractor().text) + irrelevant()


def unstated(world: World, most: int) -> str:
    """A passage about the right subject that does not say what is asked: the hardest to refuse."""
    case = new_case(world, most)
    return prompt(disguise(world, case.question)) + evidence(case.missing().text) + irrelevant()


ABOUT = (
    "Tell me about {}.",
    "Describe {}.",
    "What do you know about {}?",
    "Write about {}.",
    "Write a paragraph about {}.",
    "Give me some information on {}.",
)
LIFE = ("Write a biography of {}.", "Tell me a bio of {}.", "Tell me about the life of {}.")
BRIEF = ("Who is {}?", "Who was {}?")


def about(world: World, most: int) -> str:
    """Several segments about one subject, from one or two passages, or one for a brief question."""
    entity = new_entity(world)
    person = entity.kind.name == "person"
    brief = world.chance(0.25)
    wordings = (BRIEF if person else ("What is {}?",)) if brief else ABOUT + LIFE * person
    row = prompt(world.choice(wordings).format(entity.name))
    if world.chance(0.2):
        return row + evidence(passage(world, new_entity(world), most=most).text) + irrelevant()
    for turn in range(2):
        text = passage(world, entity, most=min(most, 5))
        row += evidence(text.text) + RELEVANT
        count = 1 if brief or turn else 3
        row += CONTINUE.join(f"{s}{FULLY_SUPPORTED}" for s in text.sentences[:count])
        if brief or turn or world.chance(0.6):
            break
    return row + UTILITY[4] + EOS


def two_part(world: World, most: int) -> str:
    """Two questions in one: a segment for each, in the order in which the passages come."""
    most = min(most, 3)
    cases = [new_case(world, most) for _ in range(2)]
    joined = " and ".join(
        (cases[0].question.rstrip("?."), cases[1].question[0].lower() + cases[1].question[1:])
    )
    first, second = cases if world.chance(0.6) else cases[::-1]
    row = prompt(joined) + evidence(first.gold.text)
    row += f"{RELEVANT}{first.answer}{FULLY_SUPPORTED}"
    if world.chance(0.3):
        useless = world.choice((first.gold, second.missing(), second.other()))
        return row + evidence(useless.text) + irrelevant()
    return row + evidence(second.gold.text) + finish(second.answer, FULLY_SUPPORTED, 5)


def claim(world: World, most: int) -> str:
    """A statement to be called true or false."""
    case = new_case(world, most)
    truth = world.chance(0.5)
    statement = case.answer if truth else case.wrong_answer()
    head = prompt(f"{TRUE_OR_FALSE}{world.choice(BREAKS)}## Input:\n\n{statement}")
    if world.chance(0.25):
        return head + evidence(case.distractor().text) + irrelevant()
    said = truth if world.chance(0.7) else not truth
    critique = (FULLY_SUPPORTED, 5) if said == truth else (NO_SUPPORT, 2)
    return head + evidence(case.gold.text) + finish(str(said).lower(), *critique)


def choice(world: World, most: int) -> str:
    """A question with four candidates; the answer is a letter."""
    case = new_case(world, most)
    right = world.random.randrange(4)
    candidates = [
        case.target
        if i == right
        else world.draw(case.relation.value)
        if case.relation.value != "same"
        else world.coin()
        for i in range(4)
    ]
    listed = "\n".join(f"{letter}: {text}" for letter, text in zip("ABCD", candidates, strict=True))
    task = f"{FOUR_CHOICES}{world.choice(BREAKS)}### Input:\n{case.question}\n{listed}"
    return prompt(task) + evidence(case.gold.text) + finish("ABCD"[right], FULLY_SUPPORTED, 5)


@cache
def tasks() -> Mapping[str, Any]:
    """The tasks that need no passage."""
    return tomllib.loads((TEMPLATES / "tasks.toml").read_text(encoding="utf-8"))


def task(world: World, held_out: bool = False) -> tuple[str, str]:
    """A task that needs no passage, and the reply to it."""
    rows = tasks()["task"]
    row = world.random.choices(rows, [r["weight"] for r in rows])[0]
    wording = row["asks"][-1] if held_out else world.choice(row["asks"][:-1])
    a, b = world.random.randint(0, 30), world.random.randint(0, 30)
    big, word = a + world.random.randint(1, 50), world.draw("word")
    pole, antipole = world.choice(tasks()["pairs"]["opposites"].split(",")).split()
    french = world.choice(tasks()["pairs"]["french"].split(",")).strip()
    english, french = (
        french.rsplit(" ", 2 if french.endswith(("revoir",)) else 1)[0],
        french.split(" ")[-1],
    )
    kind = ("word", "word", "person", "place", "title", "number", "date", "last", "occupation")
    text = " ".join(world.draw(world.choice(kind)) for _ in range(world.random.randint(1, 9)))
    values = {
        "text": capitalise(text),
        "a": a,
        "b": b,
        "big": big,
        "sum": a + b,
        "difference": big - a,
        "product": a * b,
        "word": word,
        "other": world.draw("word"),
        "upper": word.upper(),
        "spelled": "-".join(word),
        "pole": pole,
        "antipole": antipole,
        "english": english,
        "french": "au revoir" if french == "revoir" else french,
        "next1": a + 2,
        "next2": a + 4,
        "next3": a + 6,
    }
    return wording.format(**values), row["reply"].format(**values)


def no_retrieval(world: World, most: int) -> str:
    """A task that needs no passage."""
    instruction, reply = task(world)
    return f"{prompt(instruction)}{NO_RETRIEVAL}{reply}{UTILITY[4]}{EOS}"


@dataclass(frozen=True)
class Mixture:
    """Shares of the sorts of rows (any positive numbers) and the length of passages."""

    shares: Mapping[Callable[[World, int], str], float]
    most: int
    """About how many sentences a passage may have beside its lead."""


EARLY = Mixture(
    {
        supported: 34,
        unhelpful: 20,
        no_retrieval: 22,
        unsupported: 8,
        about: 10,
        claim: 3,
        two_part: 3,
    },
    most=2,
)
MAIN = Mixture(
    {
        supported: 27,
        unhelpful: 28,
        no_retrieval: 9,
        unsupported: 16,
        partial: 3,
        about: 6,
        claim: 5,
        two_part: 4,
        choice: 2,
    },
    most=8,
)
SHARP = Mixture(
    {
        supported: 30,
        unhelpful: 14,
        unstated: 16,
        no_retrieval: 7,
        unsupported: 17,
        partial: 3,
        about: 5,
        claim: 4,
        two_part: 3,
        choice: 1,
    },
    most=6,
)


def row(world: World, mixture: Mixture) -> str:
    """One training row."""
    sorts = list(mixture.shares)
    make = world.random.choices(sorts, list(mixture.shares.values()))[0]
    return make(world, mixture.most)
