"""The limits on what a question costs, ``max_model_calls`` and ``max_tokens``: the one rule.

A step begins only where its model calls fit, with one kept for the answer, and where what it may
write fits into the tokens. What prompts take is known only once they are read, so that the step
that passes ``max_tokens`` is finished; tokens of which a model does not tell are not counted. The
answer itself is always written.
"""

from collections.abc import Mapping
from typing import Any

from selfcorrect_rag.events import Stopped
from selfcorrect_rag.nodes.base.node import Update, emit
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state.costs import Limit, Stop, known_tokens, total

FOR_THE_ANSWER = 1
"""Model calls that no other step may take."""


def limit_met(
    state: Mapping[str, Any], settings: Settings, model_calls: int, tokens: int = 1
) -> Limit | None:
    """The limit that forbids a step, None where there is none.

    Args:
        state: of any graph.
        settings: of the run.
        model_calls: most that the step takes, with those that must be left after it.
        tokens: most that it writes.
    """
    costs = state["costs"]
    most = settings.max_model_calls
    if most is not None and total(costs)["model_calls"] + model_calls > most:
        return "max_model_calls"
    if settings.max_tokens is not None and known_tokens(costs) + tokens > settings.max_tokens:
        return "max_tokens"
    return None


def stopped(state: Mapping[str, Any], settings: Settings, limit: Limit, what: str) -> Update:
    """The marks of a run that a limit kept from something: ``what`` was done instead."""
    return marked(state, limit, f"{limit} is {getattr(settings, limit)}: {what}")


def marked(state: Mapping[str, Any], by: Stop, note: str) -> Update:
    """The marks of a run that something kept from a step, or from a part of one."""
    emit(Stopped(event="stopped", by=by, note=note))
    return {"stopped": by, "notes": [*state["notes"], note]}
