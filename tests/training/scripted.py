"""A model by rule for what labels, and what a file of rows holds."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.runnables import Runnable, RunnableLambda

from tests.training.teacher import label


class Model:
    """Answers by a function of the prompt, remembers what it was asked, and can be interrupted."""

    def __init__(
        self, answer: Callable[[str], Any] = lambda prompt: label(prompt, essays=False)
    ) -> None:
        self.asked: list[str] = []
        self.limit = sys.maxsize
        """Answers before the interruption."""
        self.runnable: Runnable[Any, Any] = RunnableLambda(self.now, self.later)
        self._answer = answer

    def now(self, prompt: str) -> Any:
        if len(self.asked) >= self.limit:
            raise KeyboardInterrupt
        self.asked.append(prompt)
        return self._answer(prompt)

    async def later(self, prompt: str) -> Any:
        await asyncio.sleep(0)
        return self.now(prompt)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
