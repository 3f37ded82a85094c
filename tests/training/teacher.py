"""A chat model that labels by rule, and writes down what it is asked."""

import asyncio
import os
import time
import zlib
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

LABELS = {
    "Need retrieval?": ("[Yes]", "[No]"),
    "Rating:": ("[Relevant]", "[Irrelevant]"),
    "Score:": ("[Fully supported]", "[Partially supported]", "[No support / Contradictory]"),
    "Perceived utility:": ("5", "4", "3", "2", "1"),
}


def asked_about(prompt: str) -> str:
    return prompt.rsplit("\n\n##\n", 1)[1]


def label(prompt: str, *, essays: bool = True) -> str:
    """A label of the aspect, by the text alone; about one text in nine an essay instead."""
    number = zlib.crc32(asked_about(prompt).encode())
    if essays and number % 9 == 0:
        return "It depends on what one means."
    verdict = prompt.splitlines()[-1]
    labels = LABELS[verdict]
    if "[Retrieval]" in prompt and verdict == "Rating:":
        labels = ("[Retrieval]", "[No Retrieval]", "[Continue to Use Evidence]")
    return f"{labels[number % len(labels)]}\nExplanation: It is number {number}."


class Teacher(BaseChatModel):
    """Asynchronous where it is asked so; ``TEACHER_LOG`` names the file of what it was asked."""

    seconds: float = 0.0
    essays: bool = True

    @property
    def _llm_type(self) -> str:
        return "teacher"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        time.sleep(self.seconds)
        return self._result(messages)

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        await asyncio.sleep(self.seconds)
        return self._result(messages)

    def _result(self, messages: list[BaseMessage]) -> ChatResult:
        prompt = str(messages[0].content)
        if log := os.environ.get("TEACHER_LOG"):
            with open(log, "a") as file:
                file.write(f"{asked_about(prompt)!r}\n")
        usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
        message = AIMessage(label(prompt, essays=self.essays), usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


quick = Teacher()


def slow() -> Teacher:
    return Teacher(seconds=0.05)


steady = Teacher(essays=False)


def slow_and_steady() -> Teacher:
    return Teacher(seconds=0.02, essays=False)
