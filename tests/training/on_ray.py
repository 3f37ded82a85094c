"""Models for actors of Ray, which write down in the current folder what they are asked, and die."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from langchain_core.runnables import Runnable, RunnableLambda

from tests.training.teacher import label

ASKED = Path("asked")
"""A line for each call: the actor's process, and the prompt."""
DEADLY = Path("deadly")
"""Whoever is asked about its text takes it away, and is killed in the middle."""
BURIED = Path("buried")
"""What DEADLY is from then on."""
FATAL = Path("fatal")
"""Whoever is asked about its text is killed, each time."""
FAULTY = Path("faulty")
"""What is asked about its text raises."""
SECONDS = Path("seconds")
"""How long each call takes; 0 without it."""


def _answer(prompt: str) -> str:
    with ASKED.open("a") as file:
        file.write(f"{os.getpid()} {prompt!r}\n")
    with suppress(FileNotFoundError):
        if DEADLY.read_text() in prompt:
            DEADLY.rename(BURIED)
            os.kill(os.getpid(), signal.SIGKILL)
    if FATAL.exists() and FATAL.read_text() in prompt:
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULTY.exists() and FAULTY.read_text() in prompt:
        raise ConnectionError("no route")
    if SECONDS.exists():
        time.sleep(float(SECONDS.read_text()))
    if "Document [1]" in prompt:
        return "Document [1] says " + prompt.split("Document [1]")[1].split("\n")[0]
    return label(prompt, essays=False)


def model() -> Runnable[Any, Any]:
    return RunnableLambda(_answer)


def broken() -> Runnable[Any, Any]:
    raise ConnectionError("the model's server has gone")


def asked() -> list[str]:
    """The prompts so far."""
    return [line.split(" ", 1)[1] for line in ASKED.read_text().splitlines()]


def asked_of_the_killed() -> list[str]:
    """Prompts of the process that died of DEADLY's text."""
    lines = [line.split(" ", 1) for line in ASKED.read_text().splitlines()]
    killed = next(process for process, prompt in lines if BURIED.read_text() in prompt)
    return [prompt for process, prompt in lines if process == killed]


def processes() -> set[int]:
    return {int(line.split(" ", 1)[0]) for line in ASKED.read_text().splitlines()}
