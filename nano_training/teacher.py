"""The teacher of the nano critic, where the paper has GPT-4 (section 3.2.1).

A rule that knows the made-up world, behind LangChain's chat-model interface.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from nano_training.judgements import WRITING, Labelled
from selfcorrect_rag.prompts.critic import ASPECTS
from selfcorrect_rag.training.critic_data import CriticDataSettings, critic_labelling
from selfcorrect_rag.training.labelling import Request

_SAYS, _SILENT = "The evidence answers: ", "The evidence does not answer."


class Teacher(BaseChatModel):
    """Answers what it has been told to, with an explanation, and nothing else."""

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
    """What the teacher says of each, asked as ``train critic-data`` asks any chat model.

    The labels are in ``folder``, a file an aspect; those that are there are not asked for again.
    Answers to questions (:data:`~.judgements.WRITING`) are no labels, and stay as they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    said: dict[str, Mapping[str, Any]] = {}
    for aspect in ASPECTS:
        of_aspect = [one for one in made if one.aspect == aspect]
        if not of_aspect:
            continue
        answers = {ASPECTS[aspect].prompt(one.instance): _answer(one) for one in of_aspect}
        labelling = critic_labelling(
            [one.instance for one in of_aspect],
            folder / f"{aspect}.jsonl",
            CriticDataSettings("the rule of the made-up world"),
            aspects=[aspect],
        )
        if labelling.pending:
            labelling.run(Teacher(answers=answers), max_concurrency=1, on_done=on_done)
        said |= labelling.labels.rows
    return [one if one.aspect == WRITING else _read(one, said) for one in made]


def _answer(one: Labelled) -> str:
    words = {None: "", "": f"\nExplanation: {_SILENT}"}
    return one.label + words.get(one.answer, f"\nExplanation: {_SAYS}{one.answer}")


def _read(one: Labelled, said: Mapping[str, Mapping[str, Any]]) -> Labelled:
    aspect = ASPECTS[one.aspect]
    row = said[Request(aspect.prompt(one.instance), aspect.group.value).key]
    label = next(label for label, token in aspect.choices.items() if token == row["token"])
    explanation: str = row["explanation"]
    answer = explanation.removeprefix(_SAYS) if explanation.startswith(_SAYS) else None
    return Labelled(one.aspect, one.instance, label, "" if explanation == _SILENT else answer)
