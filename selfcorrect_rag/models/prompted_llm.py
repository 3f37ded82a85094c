"""A ReflectionLLM over any chat model, which is prompted for the reflection tokens."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from langchain_core.runnables import Runnable
from pydantic import Field, PrivateAttr

from selfcorrect_rag.errors import RESUME_HINT, EngineFailed, describe_error
from selfcorrect_rag.models.chat_model import (
    LONGEST_ANSWER,
    CallResult,
    Calls,
    arun,
    is_bad_request,
    model_name,
    run,
    usage_of,
    was_cut,
)
from selfcorrect_rag.models.classification import (
    ABSENT,
    ChatClassifier,
    Classification,
    Prediction,
    tokens_of,
)
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.prompts.chat import (
    SegmentRequest,
    answer_prompt,
    joint_critique_prompt,
    passages_critique_prompt,
    segment_request,
)
from selfcorrect_rag.prompts.critic import (
    GROUP_PROMPTS,
    ISREL,
    ISSUP,
    ISUSE,
    CritiquePrompt,
    Instance,
)
from selfcorrect_rag.prompts.parts import Prompt
from selfcorrect_rag.reflection import TOKENS, Group, Reflection, critique
from selfcorrect_rag.state import Piece, Segment

PASSAGES_PER_CALL = 10
"""Maximum passages per call for ISREL."""
PRUNE_BELOW = 0.5
"""ISREL score below which a passage is pruned, unless a run sets its own."""


class PromptedReflectionLLM(ReflectionLLM):
    """Generates with any LangChain chat model, and prompts it for critiques as the paper does.

    Retrieve uses table 8, ISREL, ISSUP and ISUSE tables 10 to 12; a segment is a whole answer.
    The labels' probabilities become those of the group's tokens; a provider that gives none gives
    hard labels (:class:`~selfcorrect_rag.models.classification.ChatClassifier`), and reflections
    are marked so. A label that stays malformed, or whose call fails, is absent. EngineFailed is
    raised if the model gives no answer to any prompt of a batch.

    A batch takes one call for the ISREL of its passages (up to 10 at a time), then for each of the
    ``candidates`` best relevant ones one call to write and one to criticise. Other passages are
    pruned, never the best one. As if generated, ISREL precedes a segment's text, ISSUP and ISUSE
    follow it, and ``position`` counts the text's tokens and these. A segment's ``tokens`` are those
    of all its calls; ``logprob`` is the text's mean log-probability times ``tokens``.
    """

    model: Runnable[Any, Any]
    """A chat model or an LLM, perhaps bound to options or with retries."""
    critic: Runnable[Any, Any] | None = None
    """The model for critique prompts; ``model`` by default."""
    candidates: int = Field(default=2, ge=1)
    """Maximum passages that a question, or each of its beams, is answered from."""
    max_concurrency: int = Field(default=8, ge=1)
    """Maximum number of concurrent calls for one batch."""

    _classifier: ChatClassifier = PrivateAttr()
    _level: int = PrivateAttr(default=0)
    """Index of the first options in :meth:`_write` that the model does not refuse."""

    def __init__(self, model: Runnable[Any, Any], **fields: Any) -> None:
        """Wrap ``model``; ``fields`` are the fields of this class."""
        super().__init__(model=model, **fields)  # type: ignore[call-arg]

    def model_post_init(self, context: Any, /) -> None:
        """Make the classifier, which detects at the first call what the model can do."""
        self._classifier = ChatClassifier(self.critic or self.model)

    @property
    def _llm_type(self) -> str:
        return "prompted-reflection"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": model_name(self.model), "critic": model_name(self.critic or self.model)}

    def most_calls(self, prompts: int, *, choose: bool = False) -> int:
        """Return an upper bound on a batch's calls for one question, with every critique retried,
        but without the calls that detect what a model can do."""
        if choose:
            return 2 * prompts
        return 2 * -(-prompts // PASSAGES_PER_CALL) + 3 * min(prompts, self.candidates)

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        return run(self._calls(prompts, **options), self.max_concurrency)

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        return await arun(self._calls(prompts, **options), self.max_concurrency)

    def _calls(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        choose: str | None = None,
        stop_at_retrieval: bool = False,
        prune_below: float | None = None,
        critique: bool = False,
        **sampling: Any,
    ) -> Calls[list[Segment]]:
        pending = [_Pending(segment_request(prompt)) for prompt in prompts]
        if choose is not None:
            prompt = GROUP_PROMPTS[Group(choose)]
            asked = [_question(each.judged, (each, prompt)) for each in pending]
            _refuse_errors((yield from self._ask(asked)))
            return [segment.finished() for segment in pending]
        if critique:
            groups, size = _by_question(pending), PASSAGES_PER_CALL
            calls = [group[i : i + size] for group in groups for i in range(0, len(group), size)]
            yield from self._ask([_relevance_question(call) for call in calls])
            best = max(pending, key=lambda segment: segment.isrel, default=None)
            below = PRUNE_BELOW if prune_below is None else prune_below
            for group in groups:
                ranked = sorted(group, key=lambda segment: -segment.isrel)
                for rank, segment in enumerate(ranked):
                    too_low = bool(segment.reflections) and segment.isrel < below
                    is_left = too_low or rank >= self.candidates
                    segment.is_pruned = segment is not best and is_left
        going = [segment for segment in pending if not segment.is_pruned]
        yield from self._write(going, {**sampling, "max_tokens": max_tokens}, stop)
        if critique:
            yield from self._ask([_critique_question(each) for each in going if each.text])
        return [segment.finished() for segment in pending]

    def _ask(self, questions: "Sequence[_Question]") -> Calls[list[Exception | None]]:
        """Ask for critiques, record them in their segments, and return errors."""
        results = yield from self._classifier.calls([question.task for question in questions])
        for question, result in zip(questions, results, strict=True):
            question.fields[0][0].results += result.results
            pairs = zip(question.fields, result.predictions, strict=True)
            for (segment, prompt), prediction in pairs:
                segment.take(prompt, prediction)
        return [result.error for result in results]

    def _write(
        self, pending: "Sequence[_Pending]", options: dict[str, Any], stop: Sequence[str]
    ) -> Calls[None]:
        """Ask for the texts, with fewer options if the provider refuses them."""
        prompts = [answer_prompt(segment.request.instance) for segment in pending]
        levels = [{**options, "logprobs": True}, options, {}]
        errors: list[Exception | None] = []
        for level in range(self._level, len(levels)):
            model = self.model.bind(**levels[level])
            results = yield [(model, prompt) for prompt in prompts]
            for segment, result in zip(pending, results, strict=True):
                segment.results.append(result)
            errors = [result.error for result in results]
            if not all(map(is_bad_request, errors)):
                self._level = level
                break
        _refuse_errors(errors)
        for segment in pending:
            segment.take_text(segment.results[-1], stop)


def _refuse_errors(errors: Sequence[Exception | None]) -> None:
    if errors and errors[0] and None not in errors:
        message = f"the model gave no answer ({describe_error(errors[0])})"
        raise EngineFailed(message, RESUME_HINT) from errors[0]


@dataclass
class _Pending:
    """A segment in progress."""

    request: SegmentRequest
    text: str = ""
    tokens: int = 0
    mean_logprob: float | None = None
    finish_reason: Literal["end", "length", "stop"] = "end"
    is_pruned: bool = False
    reflections: list[Reflection] = field(default_factory=list)
    results: list[CallResult] = field(default_factory=list)

    @property
    def has_evidence(self) -> bool:
        return bool(self.request.instance.evidence.strip())

    @property
    def isrel(self) -> float:
        """The ISREL score; an absent one ranks between relevant and irrelevant."""
        score = critique(self.reflections)["ISREL"]
        return 0.5 if score is None else score

    @property
    def judged(self) -> Instance:
        """The instance to criticise: the written text, or the one that the prompt ends with."""
        instance = self.request.instance
        whole = f"{instance.preceding_sentences} {self.text}".strip()
        segment = self.text or instance.segment or whole
        before = instance.preceding_sentences if self.text else whole.removesuffix(segment).strip()
        return instance._replace(preceding_sentences=before, segment=segment, output=whole)

    def take(self, prompt: CritiquePrompt, prediction: Prediction | None) -> None:
        """Record a critique, which may be absent."""
        if prediction is None:
            return
        given = {prompt.tokens_by_label[name]: p for name, p in prediction.logprobs.items()}
        self.reflections.append(
            Reflection(
                group=prompt.group,
                position=len(self.reflections) + self.tokens,
                token=prompt.tokens_by_label[prediction.label],
                logprobs={token: given.get(token, ABSENT) for token in TOKENS[prompt.group]},
                prompted="hard" if prediction.is_hard else "soft",
            )
        )

    def take_text(self, result: CallResult, stop: Sequence[str]) -> None:
        text = result.text
        if was_cut(result.message) or len(text) > LONGEST_ANSWER:
            text, self.finish_reason = text[:LONGEST_ANSWER], "length"
        if found := [text.find(each) for each in stop if each in text]:
            text, self.finish_reason = text[: min(found)], "stop"
        self.text = text.strip()
        logprobs = [token["logprob"] for token in tokens_of(result.message) or ()]
        self.mean_logprob = math.fsum(logprobs) / len(logprobs) if logprobs else None
        self.tokens = len(logprobs) or usage_of([result])[2]

    def finished(self) -> Segment:
        """Return the segment, in the form of a model with reflection tokens."""
        control = [Piece(kind="control", text=r["token"]) for r in self.reflections]
        first = 1 if self.reflections and self.reflections[0]["group"] == Group.ISREL else 0
        text = [Piece(kind="text", text=self.text)] if self.text else []
        requests, read, written = usage_of(self.results)
        tokens, mean = max(written, self.tokens), self.mean_logprob
        return Segment(
            text=self.text,
            pieces=[*control[:first], *text, *control[first:]],
            reflections=self.reflections,
            next=None,
            finish_reason="pruned" if self.is_pruned else self.finish_reason,
            tokens=tokens,
            logprob=None if mean is None else mean * tokens,
            prompt_tokens=read,
            shortened=0,
            requests=requests,
        )


def _by_question(pending: Sequence[_Pending]) -> list[list[_Pending]]:
    """Group segments that read a new passage by question and preceding text."""
    groups: dict[tuple[str, str], list[_Pending]] = defaultdict(list)
    for segment in pending:
        if segment.request.step == "retrieve" and segment.has_evidence:
            instance = segment.request.instance
            groups[instance.instruction, instance.preceding_sentences].append(segment)
    return list(groups.values())


class _Question(NamedTuple):
    task: Classification
    fields: tuple[tuple[_Pending, CritiquePrompt], ...]
    """The segment and the prompt of each field of the task."""


def _question(instance: Instance, *fields: tuple[_Pending, CritiquePrompt]) -> _Question:
    prompts = [prompt for _, prompt in fields]
    if len(prompts) == 1:
        task = Classification(prompts[0].prompt(instance), (prompts[0].label_parser(),))
        return _Question(task, fields)
    labels = tuple(prompt.label_parser(prompt.label_name) for prompt in prompts)
    return _Question(Classification(joint_critique_prompt(prompts, instance), labels), fields)


def _critique_question(segment: _Pending) -> _Question:
    """Return the question for ISSUP, if there is evidence, and ISUSE."""
    prompts = [ISSUP, ISUSE] if segment.has_evidence else [ISUSE]
    return _question(segment.judged, *((segment, prompt) for prompt in prompts))


def _relevance_question(segments: Sequence[_Pending]) -> _Question:
    """Return one question for the ISREL of several passages for one question."""
    fields = tuple((segment, ISREL) for segment in segments)
    instances = [segment.request.instance for segment in segments]
    if len(segments) == 1:
        return _question(instances[0], *fields)
    labels = tuple(ISREL.label_parser(str(n)) for n in range(1, len(segments) + 1))
    return _Question(Classification(passages_critique_prompt(ISREL, instances), labels), fields)
