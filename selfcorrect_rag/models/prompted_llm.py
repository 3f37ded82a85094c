"""A ReflectionLLM over any chat model, which is prompted for the reflection tokens."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from langchain_core.runnables import Runnable
from pydantic import Field, PrivateAttr

from selfcorrect_rag.errors import RESUME_HINT, EngineFailed, describe_error
from selfcorrect_rag.models.chat_model import (
    LONGEST_ANSWER,
    CallResult,
    Calls,
    arun,
    is_refusal,
    model_name,
    run,
    usage_of,
    was_cut,
)
from selfcorrect_rag.models.classification import (
    ABSENT,
    ChatClassifier,
    Classification,
    LabelField,
    Prediction,
    tokens_of,
)
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.prompts.chat import (
    END,
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
    RETRIEVE_MORE,
    CritiquePrompt,
    Instance,
)
from selfcorrect_rag.prompts.parts import Prompt
from selfcorrect_rag.reflection import TOKENS, Group, Reflection, critique_score
from selfcorrect_rag.state import Piece, Segment

T = TypeVar("T")
PASSAGES_PER_CALL = 10
"""Maximum passages per call for ISREL."""


class PromptedReflectionLLM(ReflectionLLM):
    """Generates with any LangChain chat model, and prompts it for critiques as the paper does.

    Retrieve uses table 8, and after a sentence table 9; ISREL, ISSUP and ISUSE use tables 10 to 12.
    The labels' probabilities become those of the group's tokens; a provider that gives none gives
    hard labels (:class:`~selfcorrect_rag.models.classification.ChatClassifier`), and reflections
    are marked so. A label that stays malformed, or whose call fails, is absent. EngineFailed is
    raised if the model gives no answer to any prompt of a batch.

    A batch takes one call for the ISREL of its passages (up to 10 at a time), then for each of the
    ``candidates`` best relevant ones one call to write and one to criticise. Other passages are
    pruned. As if generated, ISREL precedes a segment's text, ISSUP and ISUSE follow it, and
    ``position`` counts the text's tokens and these. A segment's ``tokens`` are those of all its
    calls; ``logprob`` is the text's mean log-probability times ``tokens``.
    """

    model: Runnable[Any, Any]
    """A chat model or an LLM, perhaps bound to options or with retries."""
    critic: Runnable[Any, Any] | None = None
    """The model for critique prompts; ``model`` by default."""
    candidates: int = Field(default=2, ge=1)
    """Maximum passages that a question, or each of its beams, is answered from."""
    prune_below: float = Field(default=0.5, ge=0, le=1)
    """ISREL score below which a passage is pruned, unless a run sets its own; the best passage is
    never pruned."""
    joined: bool = True
    """Whether a call may ask for several critiques. Turn it off for a model trained on the paper's
    prompts, such as a critic."""
    sentences: bool = False
    """Whether a segment is one sentence, followed by a retrieval decision (table 9). By default,
    and always without evidence, the whole answer is one segment."""
    thinking_tokens: int = Field(default=0, ge=0)
    """Added to the token limit of a segment, for a reasoning model."""
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

    @property
    def counts(self) -> Counter[str]:
        """Counts of malformed and failed critiques; see :class:`ChatClassifier`."""
        return self._classifier.counts

    def most_calls(self, prompts: int, *, choose: bool = False, critique: bool = True) -> int:
        """Return an upper bound on a batch's calls for one question, with every critique retried,
        but without the calls that detect what a model can do, and retries at a rate limit."""
        if choose:
            return 2 * prompts
        written = prompts if self.sentences else min(prompts, self.candidates)
        if not critique:
            return prompts
        relevance_calls = -(-prompts // PASSAGES_PER_CALL) if self.joined else prompts
        return 2 * relevance_calls + written * (1 + 2 * (1 if self.joined else 2))

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
            yield from self._ask(
                [segment.question([prompt], segment.judged) for segment in pending]
            )
            return [segment.finished() for segment in pending]
        if critique:
            yield from self._judge_passages(pending)
            self._prune(pending, self.prune_below if prune_below is None else prune_below)
        going = [segment for segment in pending if not segment.is_pruned]
        for segment in going:
            by_sentence = self.sentences and critique and stop_at_retrieval
            segment.is_sentence = by_sentence and segment.has_evidence
        options = {**sampling, "max_tokens": max_tokens + self.thinking_tokens}
        yield from self._write(going, options, stop)
        if critique:
            questions = []
            for segment in (segment for segment in going if segment.text):
                support = [ISSUP] if segment.has_evidence else []
                every = [*support, RETRIEVE_MORE if segment.is_open else ISUSE]
                chunks = _chunks(every, len(every) if self.joined else 1)
                questions += [segment.question(chunk, segment.judged) for chunk in chunks]
            yield from self._ask(questions)
        return [segment.finished() for segment in pending]

    def _judge_passages(self, pending: "Sequence[_Pending]") -> Calls[None]:
        """Ask for the ISREL of each new passage, with one call per question."""
        size = PASSAGES_PER_CALL if self.joined else 1
        calls = [call for group in _by_question(pending) for call in _chunks(group, size)]
        yield from self._ask([_relevance_question(call) for call in calls])

    def _ask(self, questions: "Sequence[_Question]") -> Calls[None]:
        """Ask for critiques, and record them in their segments."""
        results = yield from self._classifier.calls([question.task for question in questions])
        for question, result in zip(questions, results, strict=True):
            question.fields[0][0].results += result.results
            for (segment, prompt), prediction in zip(
                question.fields, result.predictions, strict=True
            ):
                segment.take(prompt, prediction)

    def _prune(self, pending: "Sequence[_Pending]", below: float) -> None:
        """Keep the most relevant passages of each question; the best one of all is never pruned."""
        best = max((segment.isrel for segment in pending), default=0.0)
        kept_best = False
        for group in _by_question(pending):
            ranked = sorted(group, key=lambda segment: -segment.isrel)
            for rank, segment in enumerate(ranked):
                is_best = segment.isrel == best and not kept_best
                kept_best |= is_best
                too_low = bool(segment.reflections) and segment.isrel < below
                segment.is_pruned = not is_best and (too_low or rank >= self.candidates)

    def _write(
        self, pending: "Sequence[_Pending]", options: dict[str, Any], stop: Sequence[str]
    ) -> Calls[None]:
        """Ask for the texts, with fewer options if the provider refuses them."""
        prompts = [answer_prompt(s.request.instance, sentence=s.is_sentence) for s in pending]
        levels = [{**options, "logprobs": True}, options, {}]
        tried: list[list[CallResult]] = [[] for _ in prompts]
        for level in range(self._level, len(levels)):
            waiting = [
                i for i, results in enumerate(tried) if not results or is_refusal(results[-1].error)
            ]
            if not waiting:
                break
            bound = self.model.bind(**levels[level])
            results = yield [(bound, prompts[i]) for i in waiting]
            for i, result in zip(waiting, results, strict=True):
                tried[i].append(result)
            if len(waiting) == len(prompts) and any(r.error is None for r in results):
                self._level = max(self._level, level)  # below, all were refused
        errors = [results[-1].error for results in tried if results[-1].error is not None]
        if errors and len(errors) == len(tried):
            message = f"the model gave no answer ({describe_error(errors[0])})"
            raise EngineFailed(message, RESUME_HINT) from errors[0]
        for segment, results in zip(pending, tried, strict=True):
            segment.take_text(results, stop)


@dataclass
class _Pending:
    """A segment in progress."""

    request: SegmentRequest
    text: str = ""
    tokens: int = 0
    mean_logprob: float | None = None
    finish_reason: Literal["end", "length", "stop"] = "end"
    is_sentence: bool = False
    is_open: bool = False
    """Whether the answer continues after the text."""
    is_pruned: bool = False
    reflections: list[Reflection] = field(default_factory=list)
    next: Reflection | None = None
    results: list[CallResult] = field(default_factory=list)

    @property
    def has_evidence(self) -> bool:
        return bool(self.request.instance.evidence.strip())

    @property
    def isrel(self) -> float:
        """The ISREL score; an absent one ranks between relevant and irrelevant."""
        return critique_score(self.reflections[0]) if self.reflections else 0.5

    @property
    def judged(self) -> Instance:
        """The instance to criticise: the written text, or the one that the prompt ends with."""
        instance = self.request.instance
        whole = f"{instance.preceding_sentences} {self.text}".strip()
        segment = self.text or instance.segment or whole
        before = instance.preceding_sentences if self.text else whole.removesuffix(segment).strip()
        return instance._replace(preceding_sentences=before, segment=segment, output=whole)

    def question(self, prompts: Sequence[CritiquePrompt], asked: Instance) -> "_Question":
        """Return one question for all these critiques of an instance."""
        fields = [(self, prompt) for prompt in prompts]
        if len(prompts) == 1:
            label = LabelField(prompts[0].label_parser)
            return _Question(Classification(prompts[0].prompt(asked), (label,)), fields)
        labels = tuple(LabelField(prompt.label_parser, prompt.label_name) for prompt in prompts)
        return _Question(Classification(joint_critique_prompt(prompts, asked), labels), fields)

    def take(self, prompt: CritiquePrompt, prediction: Prediction | None) -> None:
        """Record a critique, which may be absent."""
        if prediction is None:
            return
        given = {prompt.tokens_by_label[name]: p for name, p in prediction.logprobs.items()}
        reflection = Reflection(
            group=prompt.group,
            position=len(self.reflections) + self.tokens,
            token=prompt.tokens_by_label[prediction.label],
            logprobs={token: given.get(token, ABSENT) for token in TOKENS[prompt.group]},
            prompted="hard" if prediction.is_hard else "soft",
        )
        if prompt is RETRIEVE_MORE:
            self.next = reflection
        else:
            self.reflections.append(reflection)

    def take_text(self, results: Sequence[CallResult], stop: Sequence[str]) -> None:
        """Record the text of the last of several calls."""
        result = results[-1]
        text = result.text
        if was_cut(result.message) or len(text) > LONGEST_ANSWER:
            text, self.finish_reason = text[:LONGEST_ANSWER], "length"
        if found := [text.find(each) for each in stop if each in text]:
            text, self.finish_reason = text[: min(found)], "stop"
        end = re.search(re.escape(END), text, re.IGNORECASE) if self.is_sentence else None
        self.text = text[: end.start() if end else None].strip()
        goes_on = self.is_sentence and not end and self.finish_reason == "end"
        self.is_open = goes_on and bool(self.text)
        logprobs = [token["logprob"] for token in tokens_of(result.message) or ()]
        self.mean_logprob = math.fsum(logprobs) / len(logprobs) if logprobs else None
        self.tokens = len(logprobs) or usage_of(results)[2]
        self.results += results

    def finished(self) -> Segment:
        """Return the segment, in the form of a model with reflection tokens."""
        control = [Piece(kind="control", text=r["token"]) for r in self.reflections]
        first = 1 if self.reflections and self.reflections[0]["group"] == Group.ISREL else 0
        text = [Piece(kind="text", text=self.text)] if self.text else []
        requests, read, written = usage_of(self.results)
        tokens, mean = max(written, self.tokens), self.mean_logprob
        reason = "pruned" if self.is_pruned else self.finish_reason
        return Segment(
            text=self.text,
            pieces=[*control[:first], *text, *control[first:]],
            reflections=self.reflections,
            next=self.next,
            finish_reason="retrieval" if self.next else reason,
            tokens=tokens,
            logprob=None if mean is None else mean * tokens,
            prompt_tokens=read,
            shortened=0,
            requests=requests,
        )


def _chunks(items: list[T], size: int) -> list[list[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


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
    fields: list[tuple[_Pending, CritiquePrompt]]
    """The segment and the prompt of each field of the task."""


def _relevance_question(segments: Sequence[_Pending]) -> _Question:
    """Return one question for the ISREL of several passages for one question."""
    if len(segments) == 1:
        return segments[0].question([ISREL], segments[0].request.instance)
    labels = (LabelField(ISREL.label_parser, str(n)) for n in range(1, len(segments) + 1))
    prompt = passages_critique_prompt(ISREL, [segment.request.instance for segment in segments])
    return _Question(Classification(prompt, tuple(labels)), [(each, ISREL) for each in segments])
