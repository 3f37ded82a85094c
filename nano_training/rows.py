"""Training rows in Self-RAG's format, drawn without end from the made-up world.

A row is a text (prompt, control tokens, passages) and the branches that may follow it (segments up
to `</s>`). Branches do not see each other, so that one reading of a passage teaches the critique of
right and wrong answers alike. What is trained in a row follows from its token ids alone (see
`batches.py`): text of a segment that is not judged fully supported is read, not learned.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from langchain_core.documents import Document

from nano_training.language import new_entity, passage, split
from nano_training.questions import new_question
from nano_training.world import TEMPLATES, World, capitalise
from selfcorrect_rag.reflection import (
    CONTINUE,
    END_PARAGRAPH,
    FULLY_SUPPORTED,
    GROUP_OF,
    IRRELEVANT,
    NO_RETRIEVAL,
    NO_SUPPORT,
    PARAGRAPH,
    PARTIALLY_SUPPORTED,
    RELEVANT,
    RETRIEVAL,
    UTILITY,
)
from selfcorrect_rag.training.generator_rows import GeneratorRow


class TrainingRow(NamedTuple):
    """A training row."""

    text: str
    branches: tuple[str, ...]
    """Continuations of the text; none sees another."""
    answer: str | None = None
    """The words of the last passage that answer the question; empty where none do, None where that
    is not to be learned."""


EOS = "</s>"
NOT_SAID = "The passage does not say."
TRUE_OR_FALSE = (
    "Is the following statement correct or not? Say true if it's correct; otherwise say false."
)
FOUR_CHOICES = "Given four answer candidates, A, B, C and D, choose the best answer choice."
BREAKS = ("", "\n\n", " ")
"""Separators between a task's instruction and its input in the papers' data sets."""


def prompt(instruction: str) -> str:
    """The generator's prompt (Self-RAG, official code)."""
    return f"### Instruction:\n{instruction}\n\n### Response:\n"


def evidence(text: str) -> str:
    """A passage as it stands in a row."""
    return f"{RETRIEVAL}{PARAGRAPH}{text}{END_PARAGRAPH}"


def disguise(world: World, question: str) -> str:
    """The question as people also type it."""
    if world.chance(0.7):
        return question
    bare = question.rstrip("?.")
    return world.choice(
        (
            bare,
            bare[0].lower() + bare[1:],
            bare.lower(),
            question.lower(),
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
    """The branch after a passage that does not help: no ISSUP, as in the paper's data."""
    return f"{IRRELEVANT}{NOT_SAID}{UTILITY[0]}{EOS}"


def answered(world: World, most: int) -> TrainingRow:
    """A question with its gold passage, and several answers to it: the right one, wrong ones, and
    the right one with an addition that the passage does not support."""
    case = new_question(world, most)
    branches = [finish(case.answer, FULLY_SUPPORTED, 5)]
    wrong = dict.fromkeys(case.wrong_answer() for _ in range(world.choice((1, 2, 3, 3))))
    branches += [finish(text, NO_SUPPORT, 2) for text in wrong]
    if world.chance(0.15):
        double = new_entity(world, case.entity.kind, case.entity.name)
        other = passage(world, double, without=case.relation, most=1).sentences[-1]
        branches.append(finish(f"{case.answer} {other}", PARTIALLY_SUPPORTED, 4))
    head = prompt(disguise(world, case.question)) + evidence(case.gold.text)
    return TrainingRow(head, tuple(branches), case.evidence)


def unhelpful(world: World, most: int) -> TrainingRow:
    """A passage that does not answer the question."""
    case = new_question(world, most)
    head = prompt(disguise(world, case.question)) + evidence(case.distractor().text)
    return TrainingRow(head, (irrelevant(),), "")


def mistaken(world: World, most: int) -> TrainingRow:
    """A passage that answers the question about somebody with a similar name."""
    case = new_question(world, most)
    head = prompt(disguise(world, case.question)) + evidence(case.similar().text)
    return TrainingRow(head, (irrelevant(),), "")


def unstated(world: World, most: int) -> TrainingRow:
    """A passage about the right subject that does not say what is asked: the hardest to refuse."""
    case = new_question(world, most)
    head = prompt(disguise(world, case.question)) + evidence(case.missing().text)
    return TrainingRow(head, (irrelevant(),), "")


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


def about(world: World, most: int) -> TrainingRow:
    """Several segments about one subject, from one or two passages, or one for a brief question."""
    entity = new_entity(world)
    person = entity.kind.name == "person"
    brief = world.chance(0.25)
    wordings = (BRIEF if person else ("What is {}?",)) if brief else ABOUT + LIFE * person
    head = prompt(world.choice(wordings).format(entity.name))
    if world.chance(0.2):
        stranger = passage(world, new_entity(world), most=most)
        return TrainingRow(head + evidence(stranger.text), (irrelevant(),))
    segments = ""
    for turn in range(2):
        text = passage(world, entity, most=min(most, 5))
        segments += evidence(text.text) + RELEVANT
        count = 1 if brief or turn else 3
        segments += CONTINUE.join(f"{s}{FULLY_SUPPORTED}" for s in text.sentences[:count])
        if brief or turn or world.chance(0.6):
            break
    return TrainingRow(head, (segments + UTILITY[4] + EOS,))


def two_part(world: World, most: int) -> TrainingRow:
    """Two questions in one: a segment for each, in the order in which the passages come."""
    most = min(most, 3)
    cases = [new_question(world, most) for _ in range(2)]
    joined = " and ".join(
        (cases[0].question.rstrip("?."), cases[1].question[0].lower() + cases[1].question[1:])
    )
    first, second = cases if world.chance(0.6) else cases[::-1]
    head = prompt(joined) + evidence(first.gold.text)
    segment = f"{RELEVANT}{first.answer}{FULLY_SUPPORTED}"
    if world.chance(0.3):
        useless = world.choice((first.gold, second.missing(), second.other()))
        return TrainingRow(head, (segment + evidence(useless.text) + irrelevant(),))
    last = finish(second.answer, FULLY_SUPPORTED, 5)
    return TrainingRow(head, (segment + evidence(second.gold.text) + last,))


def claim(world: World, most: int) -> TrainingRow:
    """A statement to be called true or false; the other word is a wrong answer."""
    case = new_question(world, most)
    truth = world.chance(0.5)
    statement = case.answer if truth else case.wrong_answer()
    head = prompt(f"{TRUE_OR_FALSE}{world.choice(BREAKS)}## Input:\n\n{statement}")
    if world.chance(0.25):
        return TrainingRow(head + evidence(case.distractor().text), (irrelevant(),), "")
    right = finish(str(truth).lower(), FULLY_SUPPORTED, 5)
    wrong = finish(str(not truth).lower(), NO_SUPPORT, 2)
    return TrainingRow(head + evidence(case.gold.text), (right, wrong), case.evidence)


def choice(world: World, most: int) -> TrainingRow:
    """A question with four candidates; the answer is a letter, another letter a wrong answer."""
    case = new_question(world, most)
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
    letters = "ABCD"[right], "ABCD"[(right + world.choice((1, 2, 3))) % 4]
    branches = finish(letters[0], FULLY_SUPPORTED, 5), finish(letters[1], NO_SUPPORT, 2)
    return TrainingRow(prompt(task) + evidence(case.gold.text), branches, case.evidence)


@cache
def tasks() -> Mapping[str, Any]:
    """The tasks that need no passage, with their wordings split as those of questions are."""
    table = tomllib.loads((TEMPLATES / "tasks.toml").read_text(encoding="utf-8"))
    for row in table["task"]:
        row["asks"], row["held_out"] = split(row["asks"])
    return table


def task(world: World, held_out: bool = False) -> tuple[str, str]:
    """A task that needs no passage, and the reply to it."""
    rows = tasks()["task"]
    row = world.random.choices(rows, [r["weight"] for r in rows])[0]
    wording = world.choice(row["held_out" if held_out else "asks"])
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


def no_retrieval(world: World, most: int) -> TrainingRow:
    """A task that needs no passage."""
    instruction, reply = task(world)
    return TrainingRow(prompt(instruction), (f"{NO_RETRIEVAL}{reply}{UTILITY[4]}{EOS}",))


@dataclass(frozen=True)
class Mixture:
    """Shares of the sorts of rows (any positive numbers) and the length of passages."""

    shares: Mapping[Callable[[World, int], TrainingRow], float]
    most: int
    """About how many sentences a passage may have beside its lead."""


EARLY = Mixture(
    {answered: 42, unhelpful: 18, unstated: 2, no_retrieval: 22, about: 10, claim: 3, two_part: 3},
    most=2,
)
MAIN = Mixture(
    {
        answered: 44,
        unhelpful: 16,
        unstated: 17,
        mistaken: 5,
        no_retrieval: 9,
        about: 3,
        claim: 3,
        two_part: 2,
        choice: 1,
    },
    most=6,
)


def new_row(world: World, mixture: Mixture) -> TrainingRow:
    """One training row."""
    sorts = list(mixture.shares)
    make = world.random.choices(sorts, list(mixture.shares.values()))[0]
    return make(world, mixture.most)


MIXTURE = Mixture(
    {
        answered: 56,
        unhelpful: 8,
        unstated: 8,
        mistaken: 4,
        no_retrieval: 12,
        about: 4,
        claim: 4,
        two_part: 2,
        choice: 2,
    },
    most=6,
)
"""More answers than the rule teaches from: here a passage has one, and there several."""
WRONG = 0.25
"""Share of outputs that are wrong, where a wrong one is at hand."""
DATASET = "made_up"
PASSAGE_PATTERN = re.compile(
    f"{re.escape(PARAGRAPH)}(.*?)\n(.*?){re.escape(END_PARAGRAPH)}", re.DOTALL
)
_BEFORE, _AFTER = prompt("\0").split("\0")


class UnlabelledRow(NamedTuple):
    """An instruction with its output, and pages for the index."""

    row: GeneratorRow
    pages: list[Document]


def unlabelled_rows(count: int, seed: int, mixture: Mixture = MIXTURE) -> Iterator[UnlabelledRow]:
    """``count`` of them, always the same."""
    world = World(f"outputs/{seed}")
    for number in range(count):
        yield _unlabelled(world, new_row(world, mixture), number)


def _unlabelled(world: World, made: TrainingRow, number: int) -> UnlabelledRow:
    right, *wrong = made.branches
    whole = made.text + (world.choice(wrong) if wrong and world.chance(WRONG) else right)
    instruction, rest = instruction_of(whole)
    pages = [
        Document(text, metadata={"title": title}) for title, text in PASSAGE_PATTERN.findall(rest)
    ]
    text = " ".join(_without_tokens(PASSAGE_PATTERN.sub(" ", rest)).removesuffix(EOS).split())
    return UnlabelledRow(GeneratorRow(instruction, text, "", f"{DATASET}_{number}", DATASET), pages)


def instruction_of(text: str) -> tuple[str, str]:
    """The instruction in a row's text, and the rest."""
    instruction, rest = text.removeprefix(_BEFORE).split(_AFTER, 1)
    return instruction, rest


def _without_tokens(text: str) -> str:
    """A row's text without reflection tokens."""
    for token in GROUP_OF:
        text = text.replace(token, " " if token == CONTINUE else "")
    return text
