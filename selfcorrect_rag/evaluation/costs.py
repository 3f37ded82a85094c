"""What a run will cost, estimated before it begins, and the bound that ends it."""

import asyncio
import json
from collections.abc import Iterable
from typing import NamedTuple

from selfcorrect_rag.evaluation.methods import Spec
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.settings import CRAGSettings, SelfRAGSettings

CHARACTERS = 4
"""Of English text for each token, about."""
PASSAGE_TOKENS, ANSWER_TOKENS = 150, 50
"""Of a retrieved passage and of a text that a model writes, about."""


class Spent(NamedTuple):
    """Model calls, and tokens read and written, as far as models report them."""

    calls: float = 0
    tokens: float = 0

    def plus(self, other: "Spent", times: float = 1) -> "Spent":
        """The sum, with ``times`` the other."""
        return Spent(self.calls + times * other.calls, self.tokens + times * other.tokens)


def spent_on(outcome: Outcome) -> Spent:
    """What one question cost its variant by itself."""
    tokens = (outcome.prompt_tokens or 0) + (outcome.generated_tokens or 0)
    return Spent(outcome.model_calls, tokens)


def asked_for(outcome: Outcome) -> Spent:
    """The part of it that was not remembered, but asked."""
    whole = spent_on(outcome)
    calls, tokens = outcome.remembered_calls, outcome.remembered_tokens
    return Spent(max(0, whole.calls - calls), max(0, whole.tokens - tokens))


def expected(spec: Spec, question: Question, *, batches: bool) -> Spent:
    """What a question may cost a method, before any is known; right within a few times.

    Args:
        spec: the method.
        question: the question, whose fixed passages have their own length.
        batches: whether the model reads all passages in one call, and needs no call more to
            reflect; a chat model is asked for each.
    """
    settings, fixed = spec.settings, question.passages
    read = 0 if spec.kind == "no_retrieval" else spec.passages or len(fixed or ())
    if fixed is not None:
        read = min(read, len(fixed))
        texts = sum(len(p.page_content) for p in fixed[:read]) / CHARACTERS
    else:
        texts = read * PASSAGE_TOKENS
    once = Spent(1, texts + len(question.question) / CHARACTERS + ANSWER_TOKENS)
    cost = once
    if isinstance(settings, SelfRAGSettings):
        # The decision, and a prompt a passage: of a chat model an answer and three judgements.
        calls = 2 if batches else 1 + 4 * max(read, 1)
        cost = Spent(calls, once.tokens * (1 if batches else 4) + read * ANSWER_TOKENS)
    if isinstance(settings, CRAGSettings) and spec.kind in ("crag", "self_crag"):
        cost = cost.plus(Spent(2, 2 * texts))  # documents and strips are graded
    return cost


_SAME_CALLS = frozenset(
    (
        *("weight_isrel", "weight_issup", "weight_isuse", "weight_sequence", "group_weights"),
        *("path_rule", "hard_constraints", "threshold", "mode", "beam_width", "passages"),
        *("upper", "lower", "without_action", "strips", "strip_threshold", "web_results"),
        *("refine", "rewrite", "select"),
    )
)
"""Knobs by which variants of Self-RAG and CRAG differ, and ask nearly the same."""


class Known:
    """What questions cost each method so far."""

    def __init__(
        self, outcomes: Iterable[Outcome] = (), *, batches: bool = True, shared: bool = False
    ) -> None:
        """Begin with what is known.

        Args:
            outcomes: of earlier runs.
            batches: see :func:`expected`.
            shared: whether methods share a :class:`~selfcorrect_rag.evaluation.remembered.Memory`,
                so that of variants which ask nearly the same only the largest counts.
        """
        self._batches, self._shared = batches, shared
        self._begun: dict[tuple[str, str], Spent] = {}
        self._spent: dict[str, tuple[Spent, int]] = {}
        for outcome in outcomes:
            self.add(outcome)

    def add(self, outcome: Outcome) -> None:
        """Learn from an outcome; failed ones, which may cost less, teach nothing."""
        if not outcome.error:
            spent, rows = self._spent.get(outcome.method, (Spent(), 0))
            self._spent[outcome.method] = spent.plus(spent_on(outcome)), rows + 1

    def begin(self, spec: Spec, question: Question) -> Spent:
        """What a question will add, after those that began before: the mean of the method's rows,
        or :func:`expected`."""
        whole = expected(spec, question, batches=self._batches)
        if spec.name in self._spent:
            spent, rows = self._spent[spec.name]
            whole = Spent(spent.calls / rows, spent.tokens / rows)
        if not self._shared or spec.kind not in ("self_rag", "crag", "self_crag"):
            return whole
        knobs = {k: v for k, v in spec.as_json()["settings"].items() if k not in _SAME_CALLS}
        place = json.dumps([spec.kind, knobs], sort_keys=True), question.id
        before = self._begun.get(place, Spent())
        self._begun[place] = Spent(*map(max, before, whole))
        return self._begun[place].plus(before, -1)


class Bound:
    """Lets questions begin while calls and tokens last, those of questions in flight included."""

    def __init__(self, calls: int | None, tokens: int | None) -> None:
        """None is no bound."""
        self._most = {"max_calls": calls, "max_tokens": tokens}
        self._spent, self._reserved = Spent(), Spent()
        self._in_flight = 0
        self._changed = asyncio.Condition()
        self.reached = ""
        """The bound that kept a question from beginning: ``max_calls`` or ``max_tokens``."""

    async def begin(self, cost: Spent) -> bool:
        """Whether a question of about this cost may begin; waits while those in flight may yet
        leave it room."""
        async with self._changed:
            await self._changed.wait_for(lambda: not (self._in_flight and self._exceeded(cost)))
            # An estimate alone ends no run: something is asked as long as anything is left.
            if self._exceeded(cost) and self._spent != Spent():
                self.reached = self.reached or self._exceeded(cost)
            if not self.reached:
                self._in_flight += 1
                self._reserved = self._reserved.plus(cost)
            return not self.reached

    async def end(self, reserved: Spent, spent: Spent) -> None:
        """Count what a question did cost in place of what was reserved for it."""
        async with self._changed:
            self._in_flight -= 1
            self._reserved = self._reserved.plus(reserved, -1)
            self._spent = self._spent.plus(spent)
            self._changed.notify_all()

    def _exceeded(self, cost: Spent) -> str:
        """The bound that a question more would exceed; empty where none."""
        whole = self._spent.plus(self._reserved).plus(cost)
        for (name, most), amount in zip(self._most.items(), whole, strict=True):
            if most is not None and amount > most + 1e-6:  # sums of means are rounded
                return name
        return ""
