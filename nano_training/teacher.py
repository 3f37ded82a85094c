"""The teacher of the nano critic, where the paper has GPT-4 (Self-RAG, section 3.2.1): a rule that
knows the made-up world labels questions, passages and answers, behind LangChain's chat-model
interface.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from nano_training.language import new_entity, passage
from nano_training.questions import WorldQuestion, new_question
from nano_training.rows import (
    EOS,
    NOT_SAID,
    PASSAGE_PATTERN,
    TrainingRow,
    disguise,
    instruction_of,
    task,
)
from nano_training.world import World
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
from selfcorrect_rag.prompts.critique import Instance
from selfcorrect_rag.reflection import FULLY_SUPPORTED, NO_SUPPORT, TOKENS, Group
from selfcorrect_rag.training.critic_data import CriticDataSettings, critic_labelling
from selfcorrect_rag.training.labelling import LabelRequest

WRITING = "writing"
"""In place of the name of a prompt: the instance is a question, and the label an answer to it."""

SEGMENT = re.compile(
    rf"(?P<isrel>{'|'.join(map(re.escape, TOKENS[Group.ISREL]))})(?P<text>[^\[<]*?)"
    rf"(?P<issup>{'|'.join(map(re.escape, TOKENS[Group.ISSUP]))})?"
    rf"\[Utility:(?P<utility>\d)\]{re.escape(EOS)}",
    re.DOTALL,
)
"""A branch of one segment on one passage."""


class Labelled(NamedTuple):
    """An instance, the critique that is asked for, and the teacher's label."""

    prompt: str
    """A key of :data:`~selfcorrect_rag.prompts.critic.CRITIQUE_PROMPTS`, or :data:`WRITING`."""
    instance: Instance
    label: str
    """As the prompt's table spells it."""
    answer: str | None = None
    """The words of the evidence that answer the question; empty where none do, None where that is
    not asked."""


def judgements(world: World, most: int, *, held_out: bool = False) -> Iterator[Labelled]:
    """Labelled instances of one made-up question, and of one task that wants no facts.

    ISREL and ISSUP, which are hard to learn, are asked for more often than the rest.
    """
    case = new_question(world, most, held_out)
    question = case.question if held_out else disguise(world, case.question)
    chore, reply = task(world, held_out)
    asked = Instance(question)
    yield from _relevance(world, case, asked)
    yield from _groundness(world, case, asked)
    if world.chance(0.5):
        yield Labelled("retrieval", asked, "[Yes]")
        yield Labelled("retrieval", Instance(chore), "[No]")
        yield from _utility(world, case, asked, Instance(chore, output=reply))
    else:
        yield from _more(world, case, asked, reply)
        yield from _writing(world, case, asked, chore, reply)


def judgements_of(made: TrainingRow) -> Iterator[Labelled]:
    """Labelled instances from a training row with one passage, by its reflection tokens."""
    instruction, rest = instruction_of(made.text)
    page = PASSAGE_PATTERN.search(rest)
    asked = Instance(instruction)
    segments = [found for branch in made.branches if (found := SEGMENT.fullmatch(branch))]
    if page and segments:
        given = asked._replace(evidence="\n".join(page.groups()))
        yield Labelled("retrieval", asked, "[Yes]")
        yield Labelled("relevance", given, segments[0]["isrel"], made.answer)
        for found in segments:
            text = found["text"]
            more = (
                "[Continue to Use Evidence]" if found["issup"] == FULLY_SUPPORTED else "[Retrieval]"
            )
            yield Labelled("multi_retrieval", given._replace(segment=text), more)
            if found["issup"] != NO_SUPPORT:  # whether it is true, an output alone does not tell
                yield Labelled("utility", asked._replace(output=text), found["utility"])
            if found["issup"]:
                judged = given._replace(segment=text)
                yield Labelled("groundness", judged, found["issup"], made.answer)


def _relevance(world: World, case: WorldQuestion, asked: Instance) -> Iterator[Labelled]:
    given = asked._replace(evidence=case.gold.text)
    yield Labelled("relevance", given, "[Relevant]", case.evidence)
    another = world.choice((case.other, case.similar))
    for unhelpful in (case.missing(), another()):
        yield Labelled("relevance", asked._replace(evidence=unhelpful.text), "[Irrelevant]", "")


def _groundness(world: World, case: WorldQuestion, asked: Instance) -> Iterator[Labelled]:
    given = asked._replace(evidence=case.gold.text)
    right = given._replace(segment=case.answer)
    yield Labelled("groundness", right, "[Fully supported]", case.evidence)
    none = "[No support / Contradictory]"
    for text in dict.fromkeys(case.wrong_answer() for _ in range(2)):
        yield Labelled("groundness", given._replace(segment=text), none, case.evidence)
    if world.chance(0.5):
        beside = right._replace(evidence=case.distractor().text)
        yield Labelled("groundness", beside, none, "")
    else:
        partly = given._replace(segment=f"{case.answer} {_beside(world, case)}")
        yield Labelled("groundness", partly, "[Partially supported]", case.evidence)


def _more(world: World, case: WorldQuestion, asked: Instance, reply: str) -> Iterator[Labelled]:
    given = asked._replace(evidence=case.gold.text)
    if world.chance(0.5):
        given = given._replace(preceding_sentences=world.choice(case.gold.sentences))
    enough = given._replace(segment=case.answer)
    yield Labelled("multi_retrieval", enough, "[Continue to Use Evidence]")
    lacking = given._replace(segment=_beside(world, case))
    yield Labelled("multi_retrieval", lacking, "[Retrieval]")
    yield Labelled("multi_retrieval", given._replace(segment=reply), "[No Retrieval]")


def _utility(
    world: World, case: WorldQuestion, asked: Instance, chore: Instance
) -> Iterator[Labelled]:
    yield Labelled("utility", asked._replace(output=case.answer), "5")
    yield Labelled("utility", chore, "5")
    other = new_question(world, case.most)
    yield Labelled("utility", asked._replace(output=other.answer), "2")
    yield Labelled("utility", asked._replace(output=NOT_SAID), "1")
    padded = asked._replace(output=f"{case.answer} {_beside(world, case)}")
    yield Labelled("utility", padded, "4")


def _writing(
    world: World, case: WorldQuestion, asked: Instance, chore: str, reply: str
) -> Iterator[Labelled]:
    given = asked._replace(evidence=case.gold.text)
    yield Labelled(WRITING, given, case.answer, case.evidence)
    if world.chance(0.5):
        yield Labelled(WRITING, asked._replace(evidence=case.missing().text), NOT_SAID, "")
        yield Labelled(WRITING, Instance(chore), reply)


def _beside(world: World, case: WorldQuestion) -> str:
    """A sentence on the same subject that the gold passage does not have."""
    double = new_entity(world, case.entity.kind, case.entity.name)
    return passage(world, double, without=case.relation, most=1).sentences[-1]


_SAYS, _SILENT = "The evidence answers: ", "The evidence does not answer."


class Teacher(BaseChatModel):
    """Looks up its answers, which have an explanation each."""

    answers: Mapping[str, str]
    """By prompt."""

    @property
    def _llm_type(self) -> str:
        return "nano-teacher"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        message = AIMessage(self.answers[messages[-1].text])
        return ChatResult(generations=[ChatGeneration(message=message)])


def labelled_by_teacher(
    made: Sequence[Labelled], folder: Path, on_done: Callable[[], object] = lambda: None
) -> list[Labelled]:
    """The instances with the teacher's labels, by the same calls as ``train critic-data``.

    The labels are in ``folder``, a file a prompt; those that are there are not asked for again.
    Answers to questions (:data:`WRITING`) are no labels, and stay as they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    said: dict[str, Mapping[str, Any]] = {}
    for prompt in CRITIQUE_PROMPTS:
        of_prompt = [one for one in made if one.prompt == prompt]
        if not of_prompt:
            continue
        answers = {CRITIQUE_PROMPTS[prompt].prompt(one.instance): _answer(one) for one in of_prompt}
        labelling = critic_labelling(
            [one.instance for one in of_prompt],
            folder / f"{prompt}.jsonl",
            CriticDataSettings("the rule of the made-up world"),
            prompts=[prompt],
        )
        if labelling.pending:
            labelling.run(Teacher(answers=answers), max_concurrency=1, on_done=on_done)
        said |= labelling.labels.rows
    return [one if one.prompt == WRITING else _read(one, said) for one in made]


def _answer(one: Labelled) -> str:
    words = {None: "", "": f"\nExplanation: {_SILENT}"}
    return one.label + words.get(one.answer, f"\nExplanation: {_SAYS}{one.answer}")


def _read(one: Labelled, said: Mapping[str, Mapping[str, Any]]) -> Labelled:
    prompt = CRITIQUE_PROMPTS[one.prompt]
    row = said[LabelRequest(prompt.prompt(one.instance), prompt.group).key]
    label = next(label for label, token in prompt.tokens_by_label.items() if token == row["token"])
    explanation: str = row["explanation"]
    answer = explanation.removeprefix(_SAYS) if explanation.startswith(_SAYS) else None
    return Labelled(one.prompt, one.instance, label, "" if explanation == _SILENT else answer)
