"""The costs of a node's run, and how a run ends early: limits on costs, and late faults.

The limits are ``max_model_calls`` and ``max_tokens``. A step begins only if its model calls fit,
with one reserved for the answer, and if its maximum output fits into the tokens left. Prompt tokens
are known only afterwards, so the step that passes ``max_tokens`` is finished; tokens that a model
does not report are not counted. The answer itself is always written.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import LLMResult

from selfcorrect_rag.errors import Fault
from selfcorrect_rag.models.classification import tokens_of
from selfcorrect_rag.reflection import sequence_probability
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state import FREE, Beam, Limit, Segment, Step, Stop, Usage, known_tokens

if TYPE_CHECKING:
    from selfcorrect_rag.nodes.node import Run, Update

FOR_THE_ANSWER = 1
"""Model calls reserved for the answer."""
STEPS: Collection[Step] = ("retrieve", "continue", "none")


class CallCounter(BaseCallbackHandler):
    """Counts model calls and the tokens that they report; a model inside a model counts once."""

    run_inline = True
    ignore_retriever = True

    def __init__(self) -> None:
        self.usage: Usage = {**FREE}
        self.probability: float | None = None
        """Geometric mean of the probabilities of the last text's tokens; None if not reported."""
        self._parents: dict[UUID, UUID | None] = {}
        self._counted: set[UUID] = set()

    def on_chain_start(
        self, *args: Any, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        self._parents[run_id] = parent_run_id

    def on_chat_model_start(
        self, *args: Any, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        while parent_run_id is not None:  # what it is inside of is not counted
            self._counted.add(parent_run_id)
            parent_run_id = self._parents.get(parent_run_id)

    on_llm_start = on_chat_model_start

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        generation, totals = response.generations[0][0], response.llm_output or {}
        info = generation.generation_info or {}
        usage = getattr(getattr(generation, "message", None), "usage_metadata", None) or {}
        told = totals.get("token_usage") or {}
        read = info.get("prompt_tokens", told.get("prompt_tokens"))
        written = info.get("tokens", told.get("completion_tokens"))
        self._count(
            run_id,
            model_calls=info.get("requests") or 1,
            prompt_tokens=usage.get("input_tokens", read),
            generated_tokens=usage.get("output_tokens", written),
        )
        logprob, tokens = info.get("logprob"), info.get("tokens", 0)
        if listed := tokens_of(getattr(generation, "message", None)):
            logprob, tokens = math.fsum(token["logprob"] for token in listed), len(listed)
        self.probability = sequence_probability(logprob, tokens)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._count(run_id, model_calls=1)

    def _count(self, run_id: UUID, **costs: Any) -> None:
        if run_id not in self._counted:
            self._counted.add(run_id)  # a bound model may hold this handler twice
            add_costs(self.usage, **costs)


def add_costs(costs: Usage, **more: Any) -> None:
    """Add ``more`` to costs; None, a number that a model did not report, makes a sum None."""
    sums: dict[str, Any] = cast(dict[str, Any], costs)
    for key, count in more.items():
        sums[key] = None if count is None or sums[key] is None else sums[key] + count


def batch_usage(segments: Sequence[Segment]) -> dict[str, Any]:
    """Return the costs of the batch that wrote ``segments``: one model call, unless the provider
    takes one request per prompt."""
    requests = sum(segment["requests"] for segment in segments)
    read: int | None = sum(segment["prompt_tokens"] for segment in segments)
    written: int | None = sum(segment["tokens"] for segment in segments)
    if not read and requests:  # a provider that reports no tokens; a local model may read none
        read = written = None
    return {
        "model_calls": max(1, requests),
        "prompts": len(segments),
        "prompt_tokens": read,
        "generated_tokens": written,
        "pruned": sum(segment["finish_reason"] == "pruned" for segment in segments),
    }


def limit_met(
    state: Mapping[str, Any], settings: Settings, model_calls: int, tokens: int = 1
) -> Limit | None:
    """Return the limit that forbids a step of at most so many calls, with those that must be left
    after it, and generated tokens; None if it may run."""
    most, route = settings.max_model_calls, state["route"]
    if most is not None and sum([r["model_calls"] for r in route]) + model_calls > most:
        return "max_model_calls"
    if settings.max_tokens is not None and known_tokens(route) + tokens > settings.max_tokens:
        return "max_tokens"
    return None


def stopped(run: "Run[Any]", by: Stop, what: str) -> "Update":
    """Return the update that records that a limit was met or a part failed, and what was done."""
    bound = getattr(run.settings, by, None)
    note = what if bound is None else f"{by} is {bound}: {what}"
    run.emit("stopped", by=by, note=note)
    return {"stopped": by, "notes": [note]}


def best_so_far(
    state: Mapping[str, Any], run: "Run[Any]", fault: Fault, ends: Collection[Step] = STEPS
) -> "Update":
    """End the beams whose next step is one of ``ends``, so that the best text becomes the answer;
    raise ``fault`` if nothing is written yet."""
    beams = state["beams"]
    written = max((len(beam["segments"]) for beam in beams), default=0)
    if not written:
        raise fault
    if is_ended(state):  # by another branch
        return {}
    ended = [{**beam, "next": None} if beam["next"] in ends else beam for beam in beams]
    note = f"{fault.reason}: the answer ends after segment {written}"
    return {"beams": ended, **stopped(run, cast(Stop, fault.part), note)}


def is_ended(state: Mapping[str, Any]) -> bool:
    """Return whether an answer was begun and every beam has ended."""
    beams = state.get("beams") or []
    return bool(beams) and not any(beam["next"] for beam in beams)


def first_beams(state: Mapping[str, Any], retrieved: Sequence[int] = ()) -> list[Beam]:
    """Return the state's beams, or an initial one, which wants evidence, if it has none."""
    if state["beams"]:
        return cast(list[Beam], state["beams"])
    return [Beam(segments=[], score=0.0, next="retrieve", cut=None, retrieved=list(retrieved))]
