"""The steps of a run and their costs: steps in order, model calls, tokens, seconds."""

from collections.abc import Mapping
from typing import Literal

from typing_extensions import TypedDict

Limit = Literal["max_model_calls", "max_tokens"]
"""The settings that bound what a question costs."""

Stop = Literal[
    "max_model_calls", "max_tokens", "retriever", "evaluator", "model", "node", "timeout"
]
"""Why an answer can be cut short: a limit, a failed part, or a timeout."""


class Usage(TypedDict):
    """Costs of Self-RAG's generator so far."""

    model_calls: int
    """Batches sent to the model, or requests, where a provider takes one for each prompt."""
    prompts: int
    prompt_tokens: int
    generated_tokens: int
    retrievals: int
    pruned: int
    """Passages dropped by their ISREL before their segment was decoded."""
    tokens_saved: int
    """Estimate of tokens saved by pruning: the mean length of a candidate for each pruned
    passage."""


class Cost(TypedDict):
    """The cost of a step, summed over all its runs."""

    model_calls: int
    """Batches sent to a local model, and requests to a provider; failed ones count."""
    prompt_tokens: int | None
    """None where a model did not say."""
    generated_tokens: int | None
    """None where a model did not say."""
    seconds: float


FREE = Cost(model_calls=0, prompt_tokens=0, generated_tokens=0, seconds=0.0)


def costs_together(costs: dict[str, Cost], more: dict[str, Cost]) -> dict[str, Cost]:
    """Reducer: add costs by step, from parallel branches or a loop.

    An empty ``more`` resets them, as a turn of a thread does at its start.
    """
    if not more:
        return {}
    added = {step: _sum(costs.get(step, FREE), cost) for step, cost in more.items()}
    return {**costs, **added}


def total(costs: Mapping[str, Cost]) -> Cost:
    """The cost of all steps; tokens are None where any of them is."""
    whole = FREE
    for cost in costs.values():
        whole = _sum(whole, cost)
    return whole


def known_tokens(costs: Mapping[str, Cost]) -> int:
    """Prompt and generated tokens, without those of models that did not report them."""
    return sum(
        (cost["prompt_tokens"] or 0) + (cost["generated_tokens"] or 0) for cost in costs.values()
    )


def _sum(one: Cost, other: Cost) -> Cost:
    return Cost(
        model_calls=one["model_calls"] + other["model_calls"],
        prompt_tokens=plus(one["prompt_tokens"], other["prompt_tokens"]),
        generated_tokens=plus(one["generated_tokens"], other["generated_tokens"]),
        seconds=one["seconds"] + other["seconds"],
    )


def plus(one: int | None, other: int | None) -> int | None:
    """The sum; None where either is None."""
    return None if one is None or other is None else one + other


class StepRun(TypedDict):
    """One run of a step."""

    step: str
    """The node's name."""
    failed: str | None
    """The part whose fault it recovered from: ``retriever``, ``evaluator``, ``model``, ``node`` or
    ``timeout``; None where nothing failed."""


def route_together(route: list[StepRun], more: list[StepRun]) -> list[StepRun]:
    """Reducer: append ``more`` to the route; an empty list resets it, as a turn does."""
    return [*route, *more] if more else []
