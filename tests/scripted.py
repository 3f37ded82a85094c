"""A model whose every reflection is written down, for exact scoring cases."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langgraph.types import Overwrite
from pydantic import PrivateAttr

from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.prompts import Prompt
from selfcorrect_rag.reflection import GROUP_OF, TOKENS, Group, Reflection
from selfcorrect_rag.state import Piece, Segment

Probabilities = Mapping[str, float]
THREAD: Any = {"configurable": {"thread_id": "1"}}


def reflection(given: Probabilities, position: int = 0) -> Reflection:
    """A reflection with these *probabilities*; tokens that are not named get nearly none."""
    group = GROUP_OF[next(iter(given))]
    logprobs = {t: math.log(given.get(t, 0) or 1e-30) for t in TOKENS[group]}
    token = max(logprobs, key=lambda t: logprobs[t])
    return Reflection(group=group, position=position, token=token, logprobs=logprobs)


def segment(text: str, *judgements: Probabilities, next: Any = None, **fields: Any) -> Segment:
    """A segment with an ISREL first, its text, then its other judgements in order.

    ``next`` are probabilities of the retrieval token behind it. Each of its tokens has
    ``mean_logprob``, by default that of one half.
    """
    reflections = [reflection(given, position) for position, given in enumerate(judgements)]
    control = [Piece(kind="control", text=r["token"]) for r in reflections]
    opening = [p for p in control if GROUP_OF[p["text"]] == Group.ISREL]
    closing = [p for p in control if GROUP_OF[p["text"]] != Group.ISREL]
    following = None if next is None else reflection(next, len(reflections))
    pieces = [*opening, *([Piece(kind="text", text=text)] if text else []), *closing]
    mean, ended = fields.pop("mean_logprob", math.log(0.5)), "end" if next is None else "retrieval"
    given: Any = {"prompt_tokens": 7, "tokens": 10, "shortened": 0, "requests": 0, **fields}
    given = {"finish_reason": ended, "logprob": mean * given["tokens"], **given}
    return Segment(text=text, pieces=pieces, reflections=reflections, next=following, **given)


class ScriptedLLM(ReflectionLLM):
    """Answers each prompt by a function of its text, and remembers every call."""

    write: Callable[[str], Segment]
    retrieval: float = 0.9
    """P(Retrieval) of the first decision; the rest is P(No Retrieval)."""
    decision: dict[str, float] | None = None
    """The probabilities of the first decision, where more is to be said of them."""
    _calls: list[list[Prompt]] = PrivateAttr(default_factory=list)
    _options: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted-reflection"

    @property
    def calls(self) -> list[list[str]]:
        """The prompts of each model call, as text."""
        return [["".join(part.text for part in p.parts) for p in call] for call in self._calls]

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        self._calls.append(list(prompts))
        self._options.append(options)
        if options.get("choose"):
            pair = {"[Retrieval]": self.retrieval, "[No Retrieval]": 1 - self.retrieval}
            chosen = segment("", self.decision or pair, tokens=1, finish_reason="length")
            return [chosen for _ in prompts]
        return [self.write("".join(part.text for part in p.parts)) for p in prompts]

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        return self._segments(prompts, **options)


class ByRequest(ScriptedLLM):
    """Asks its provider for each prompt, and once more for the critique of it."""

    def most_calls(self, prompts: int, *, choose: bool = False) -> int:
        return prompts if choose else 2 * prompts

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        each = 1 if "choose" in options or not options.get("critique", True) else 2
        return [{**s, "requests": each} for s in super()._segments(prompts, **options)]


def document(title: str, text: str = "", **metadata: Any) -> Document:
    return Document(text or f"About {title}.", metadata={"title": title, **metadata}, id=title)


def echo() -> RunnableLambda[Any, Any]:
    """A model that answers with what it was given."""
    return RunnableLambda(lambda messages: messages[-1].content)


def timeless(result: Any) -> Any:
    """A result, or what a stream gave, without what is of one run: its time, its reply's id."""
    if isinstance(result, dict):
        own = ("seconds", "reply_id", "turn")
        return {k: 0 if k in own else timeless(v) for k, v in result.items()}
    if isinstance(result, Overwrite):
        return timeless(result.value)
    if isinstance(result, list | tuple):
        return [timeless(value) for value in result]
    return result


def nearly(one: Any, other: Any) -> bool:
    """Whether results are the same but for rounding: batches of other sizes round otherwise."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, abs_tol=1e-4)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(nearly(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(nearly, one, other))
    return bool(one == other)


def passage_of(prompt: str) -> str:
    """The title of the passage that a prompt ends with."""
    return prompt.rsplit("<paragraph>", 1)[-1].split("\n")[0]


FULL = {"[Fully supported]": 1.0}
NONE = {"[No support / Contradictory]": 1.0}
RELEVANT = {"[Relevant]": 0.9, "[Irrelevant]": 0.1}
IRRELEVANT = {"[Relevant]": 0.1, "[Irrelevant]": 0.9}
USEFUL = {"[Utility:5]": 1.0}
