"""A ReflectionLLM over any chat model, which is prompted for the reflection tokens."""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from langchain_core.runnables import Runnable
from pydantic import Field, PrivateAttr

from selfcorrect_rag.errors import EngineFailed, describe_error, hint
from selfcorrect_rag.models.chat_model import (
    ABSENT,
    CallResult,
    Calls,
    CallUsage,
    ChatClassifier,
    Classification,
    ClassificationCounts,
    LabelField,
    ModelCall,
    Prediction,
    Tokenizer,
    arun,
    is_refusal,
    model_behind,
    own_extra_body,
    run,
    tokens_of,
    was_cut,
)
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.prompts.chat import (
    END,
    SegmentRequest,
    answer_prompt,
    critique_state,
    joint_critique_prompt,
    numbered_instructions,
    passages_critique_prompt,
    segment_request,
)
from selfcorrect_rag.prompts.critic import (
    ISREL,
    ISSUP,
    ISUSE,
    RETRIEVE_MORE,
    group_prompt,
    registered_prompts,
)
from selfcorrect_rag.prompts.critique import CritiquePrompt, Instance
from selfcorrect_rag.prompts.parts import Prompt
from selfcorrect_rag.reflection import (
    GROUPS,
    PAPER_GROUPS,
    TOKENS,
    Group,
    Reflection,
    critique_score,
)
from selfcorrect_rag.state import Piece, Segment

_END = re.compile(re.escape(END), re.IGNORECASE)


class ChatCompletion(NamedTuple):
    """A text that a model wrote."""

    text: str
    is_open: bool
    """Whether the answer continues after it."""
    finish_reason: Literal["end", "length", "stop"]
    mean_logprob: float | None
    """Mean of its tokens' log-probabilities; None where the provider gives none."""
    tokens: int
    usage: CallUsage


class ChatCompleter:
    """Asks a chat model for answers; detects supported options by refusals."""

    def __init__(self, model: Runnable[Any, Any], *, tokenizer: Tokenizer | None = None) -> None:
        """Use ``model``, a chat model or an LLM; ``tokenizer`` as for a ChatClassifier."""
        self.model, self._tokenizer, self._level = model, tokenizer, 0

    def calls(
        self,
        wanted: Sequence[tuple[Instance, bool]],
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        **sampling: Any,
    ) -> Calls[list[ChatCompletion]]:
        """An answer to each instance, or only its next sentence where its flag is set.

        Raises:
            EngineFailed: the model gave none of them.
        """
        prompts = [answer_prompt(instance, sentence=sentence) for instance, sentence in wanted]
        levels = self._option_levels(max_tokens, sampling)
        tried: list[list[CallResult]] = [[] for _ in prompts]
        for level in range(self._level, len(levels)):
            waiting = [i for i, results in enumerate(tried) if not results or _refused(results)]
            if not waiting:
                break
            bound = self.model.bind(**levels[level])
            results = yield [ModelCall(bound, prompts[i]) for i in waiting]
            for i, result in zip(waiting, results, strict=True):
                tried[i].append(result)
            if len(waiting) == len(prompts) and any(r.error is None for r in results):
                self._level = max(self._level, level)  # below, all were refused
        errors = [error for results in tried if (error := results[-1].error) is not None]
        if errors and len(errors) == len(tried):
            message = f"the model gave no answer ({describe_error(errors[0])})"
            raise EngineFailed(message, hint(errors[0])) from errors[0]
        return [
            _completion(results, sentence, stop)
            for results, (_, sentence) in zip(tried, wanted, strict=True)
        ]

    def _option_levels(self, max_tokens: int, sampling: dict[str, Any]) -> list[dict[str, Any]]:
        """Options to bind, from all to none."""
        limited = {**sampling, "max_tokens": max_tokens}
        full = {**limited, "logprobs": True}
        if self._tokenizer is not None:
            # On vLLM, requests for chosen ids disturb top-k log-probabilities of concurrent ones.
            full["extra_body"] = {**own_extra_body(self.model), "logprob_token_ids": [0]}
        return [full, limited, {}]


def _refused(results: Sequence[CallResult]) -> bool:
    error = results[-1].error
    return error is not None and is_refusal(error)


def _completion(
    results: Sequence[CallResult], sentence: bool, stop: Sequence[str]
) -> ChatCompletion:
    result, usage = results[-1], CallUsage.of(results)
    text = result.text
    finish_reason: Literal["end", "length", "stop"] = "end"
    if was_cut(result.message):
        finish_reason = "length"
    if any(s in text for s in stop):
        text = text[: min(text.find(s) for s in stop if s in text)]
        finish_reason = "stop"
    end = _END.search(text) if sentence else None
    text = text[: end.start()] if end else text
    is_open = sentence and not end and bool(text.strip()) and finish_reason == "end"
    logprobs = [token.logprob for token in tokens_of(result.message) or ()]
    return ChatCompletion(
        text=text.strip(),
        is_open=is_open,
        finish_reason=finish_reason,
        mean_logprob=math.fsum(logprobs) / len(logprobs) if logprobs else None,
        tokens=len(logprobs) or usage.tokens,
        usage=usage,
    )


PASSAGES_PER_CALL = 10
"""Maximum passages per call for ISREL."""


class PromptedReflectionLLM(ReflectionLLM):
    """Generates with any LangChain chat model, and prompts it for critiques with the paper's
    prompts.

    Retrieve uses table 8, and after a sentence table 9; ISREL, ISSUP and ISUSE use tables 10 to 12.
    The labels' probabilities become those of the group's tokens; a provider that gives none gives
    hard labels (:class:`~selfcorrect_rag.models.chat_model.ChatClassifier`), and
    reflections are marked so. A label that stays malformed, or whose call fails, is absent.

    A batch takes one call for the ISREL of its passages (up to 10 at a time), then for each of the
    ``candidates`` best relevant ones one call to write and one to criticise. Other passages are
    pruned. As if generated, ISREL precedes a segment's text, ISSUP and ISUSE follow it, and
    ``position`` counts the text's tokens and these. A segment's ``tokens`` are those of all its
    calls; ``logprob`` is the text's mean log-probability times ``tokens``.

    Raises, when it writes:
        EngineFailed: the model gave no answer to any prompt of a batch.
    """

    model: Runnable[Any, Any]
    """A chat model or an LLM, perhaps bound to options or with retries."""
    critic: Runnable[Any, Any] | None = None
    """The model for critique prompts, or a decision model; ``model`` by default."""
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
    tokenizer: Any = None
    """The critic's tokenizer, if a vLLM server serves it: see ``ChatClassifier``."""

    _classifier: ChatClassifier = PrivateAttr()
    _completer: ChatCompleter = PrivateAttr()

    def __init__(self, model: Runnable[Any, Any], **fields: Any) -> None:
        """Wrap ``model``; ``fields`` are the fields of this class."""
        super().__init__(model=model, **fields)  # type: ignore[call-arg]

    def model_post_init(self, context: Any, /) -> None:
        """Make the parts; the model's capabilities are detected at the first call."""
        self._classifier = ChatClassifier(self.critic or self.model, tokenizer=self.tokenizer)
        self._completer = ChatCompleter(self.model, tokenizer=self.tokenizer)

    @property
    def _llm_type(self) -> str:
        return "prompted-reflection"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        def name(model: Any) -> str:
            behind = model_behind(model)
            named = getattr(behind, "model_name", None) or getattr(behind, "model", None)
            return str(named or type(behind).__name__)

        return {"model": name(self.model), "critic": name(self.critic or self.model)}

    @property
    def groups(self) -> tuple[str, ...]:
        """The paper's reflection groups, and registered ones that have an instruction."""
        return (*PAPER_GROUPS, *(group.name for group, _ in registered_prompts()))

    @property
    def counts(self) -> ClassificationCounts:
        """Counts of malformed and failed critiques, over all runs."""
        return self._classifier.counts

    def most_calls(self, prompts: int, *, choose: bool = False, critique: bool = True) -> int:
        """Upper bound on a batch's calls for one question, with every critique retried.

        Without the calls that detect capabilities, and retries at a rate limit.
        """
        if choose:
            return 2 * prompts
        written = prompts if self.sentences else min(prompts, self.candidates)
        if not critique:
            return prompts
        critiques = 2 + len(registered_prompts())
        relevance_calls = -(-prompts // PASSAGES_PER_CALL) if self.joined else prompts
        return 2 * relevance_calls + written * (1 + 2 * (1 if self.joined else critiques))

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
        pending = [_PendingSegment(segment_request(prompt)) for prompt in prompts]
        if choose is not None:
            prompt = group_prompt(GROUPS[choose])
            assert prompt is not None, "it is one of the groups"
            yield from self._choose(pending, prompt)
            return [segment.finished() for segment in pending]
        if critique:
            yield from self._judge_passages(pending)
            self._prune(pending, self.prune_below if prune_below is None else prune_below)
        going = [segment for segment in pending if not segment.is_pruned]
        by_sentence = self.sentences and critique and stop_at_retrieval
        written = yield from self._completer.calls(
            [(segment.request.instance, by_sentence and segment.has_evidence) for segment in going],
            max_tokens=max_tokens + self.thinking_tokens,
            stop=stop,
            **sampling,
        )
        for segment, text in zip(going, written, strict=True):
            segment.take_text(text)
        if critique:
            yield from self._criticise([segment for segment in going if segment.text])
        return [segment.finished() for segment in pending]

    def _choose(self, pending: "Sequence[_PendingSegment]", prompt: CritiquePrompt) -> Calls[None]:
        classifications = [critique_classification([prompt], segment.judged) for segment in pending]
        results = yield from self._classifier.calls(classifications)
        for segment, result in zip(pending, results, strict=True):
            segment.take(prompt, result.predictions[0])
            segment.add_usage(result.usage)

    def _judge_passages(self, pending: "Sequence[_PendingSegment]") -> Calls[None]:
        """Ask for the ISREL of each new passage, with one call per question."""
        size = PASSAGES_PER_CALL if self.joined else 1
        calls = [
            group[start : start + size]
            for group in _by_question(pending)
            for start in range(0, len(group), size)
        ]
        classifications = [
            relevance_classification([segment.request.instance for segment in call])
            for call in calls
        ]
        results = yield from self._classifier.calls(classifications)
        for call, result in zip(calls, results, strict=True):
            call[0].add_usage(result.usage)
            for segment, prediction in zip(call, result.predictions, strict=True):
                segment.take(ISREL, prediction)

    def _prune(self, pending: "Sequence[_PendingSegment]", below: float) -> None:
        """Keep the most relevant passages of each question; the best one of all is never pruned."""
        best = max((segment.isrel for segment in pending), default=0.0)
        kept_best = False
        for group in _by_question(pending):
            ranked = sorted(group, key=lambda segment: -segment.isrel)
            for rank, segment in enumerate(ranked):
                is_best = segment.isrel == best and not kept_best
                kept_best |= is_best
                is_judged = segment.reflections != []
                too_low = is_judged and segment.isrel < below
                segment.is_pruned = not is_best and (too_low or rank >= self.candidates)

    def _criticise(self, pending: "Sequence[_PendingSegment]") -> Calls[None]:
        """Ask for the ISSUP, ISUSE and, if it continues, Retrieve of each text."""
        wanted = [
            (segment, prompts)
            for segment in pending
            for prompts in (
                [segment.critique_prompts]
                if self.joined
                else [[prompt] for prompt in segment.critique_prompts]
            )
        ]
        classifications = [
            critique_classification(prompts, segment.judged) for segment, prompts in wanted
        ]
        results = yield from self._classifier.calls(classifications)
        for (segment, prompts), result in zip(wanted, results, strict=True):
            segment.add_usage(result.usage)
            for prompt, prediction in zip(prompts, result.predictions, strict=True):
                segment.take(prompt, prediction)


class _PendingSegment:
    """A segment in progress."""

    def __init__(self, request: SegmentRequest) -> None:
        self.request = request
        self.text, self.is_pruned = "", False
        self.reflections: list[Reflection] = []
        self.next: Reflection | None = None
        self._written: ChatCompletion | None = None
        self._usage = CallUsage()

    @property
    def question(self) -> tuple[str, str]:
        """The question, and the answer before the segment: passages are judged for both."""
        return self.request.instance.instruction, self.request.instance.preceding_sentences

    @property
    def has_evidence(self) -> bool:
        """Whether it has a passage."""
        return bool(self.request.instance.evidence.strip())

    @property
    def isrel(self) -> float:
        """The ISREL score; an absent one ranks between relevant and irrelevant."""
        return critique_score(self.reflections[0]) if self.reflections else 0.5

    @property
    def critique_prompts(self) -> list[CritiquePrompt]:
        """The critique prompts for the written segment."""
        support = [ISSUP] if self.has_evidence else []
        is_open = self._written is not None and self._written.is_open
        asks = {"passage": self.has_evidence, "segment": True, "answer": not is_open}
        own = [prompt for group, prompt in registered_prompts() if asks[group.judges]]
        return [*support, RETRIEVE_MORE if is_open else ISUSE, *own]

    @property
    def judged(self) -> Instance:
        """The instance to criticise: the written text, or the one that the prompt ends with."""
        instance = self.request.instance
        whole = f"{instance.preceding_sentences} {self.text}".strip()
        segment = self.text or instance.segment or whole
        before = instance.preceding_sentences if self.text else whole.removesuffix(segment).strip()
        return instance._replace(preceding_sentences=before, segment=segment, output=whole)

    def add_usage(self, usage: CallUsage) -> None:
        """Add the usage of its calls."""
        self._usage = self._usage.plus(usage)

    def take(self, prompt: CritiquePrompt, prediction: Prediction | None) -> None:
        """Record a critique, which may be absent."""
        if prediction is None:
            return
        before = len(self.reflections) + (self._written.tokens if self._written else 0)
        reflection = _reflection(prompt, prediction, before)
        if prompt is RETRIEVE_MORE:
            self.next = reflection
        else:
            self.reflections.append(reflection)

    def take_text(self, written: ChatCompletion) -> None:
        """Record the model's text."""
        self._written, self.text = written, written.text
        self.add_usage(written.usage)

    def finished(self) -> Segment:
        """The segment, in the form of a model with reflection tokens."""
        written = self._written
        control = [Piece(kind="control", text=r["token"]) for r in self.reflections]
        first = 1 if self.reflections and self.reflections[0]["group"] == Group.ISREL else 0
        text = [Piece(kind="text", text=self.text)] if self.text else []
        mean = None if written is None else written.mean_logprob
        reason = "pruned" if self.is_pruned else written.finish_reason if written else "end"
        tokens = max(self._usage.tokens, written.tokens if written else 0)
        return Segment(
            text=self.text,
            pieces=[*control[:first], *text, *control[first:]],
            reflections=self.reflections,
            next=self.next,
            finish_reason="retrieval" if self.next else reason,
            tokens=tokens,
            logprob=None if mean is None else mean * tokens,
            prompt_tokens=self._usage.prompt_tokens,
            shortened=0,
            requests=self._usage.requests,
        )


def _by_question(pending: Sequence[_PendingSegment]) -> list[list[_PendingSegment]]:
    """Segments that read a new passage, grouped by question."""
    groups: dict[tuple[str, str], list[_PendingSegment]] = defaultdict(list)
    for segment in pending:
        if segment.request.step == "retrieve" and segment.has_evidence:
            groups[segment.question].append(segment)
    return list(groups.values())


def critique_classification(
    prompts: Sequence[CritiquePrompt], instance: Instance
) -> Classification:
    """A classification for all these critiques of an instance."""
    is_one = len(prompts) == 1
    fields = tuple(
        LabelField(prompt.label_parser, "" if is_one else prompt.label_name, prompt.instructions)
        for prompt in prompts
    )
    text = prompts[0].prompt(instance) if is_one else joint_critique_prompt(prompts, instance)
    return Classification(text, fields, critique_state([instance]))


def relevance_classification(instances: Sequence[Instance]) -> Classification:
    """A classification for the ISREL of several passages for one question."""
    if len(instances) == 1:
        return critique_classification([ISREL], instances[0])
    fields = tuple(
        LabelField(ISREL.label_parser, number, numbered_instructions(ISREL, number))
        for number in map(str, range(1, len(instances) + 1))
    )
    text = passages_critique_prompt(ISREL, instances)
    return Classification(text, fields, critique_state(instances))


def _reflection(prompt: CritiquePrompt, prediction: Prediction, position: int) -> Reflection:
    given = {prompt.tokens_by_label[label]: value for label, value in prediction.logprobs.items()}
    return Reflection(
        group=prompt.group,
        position=position,
        token=prompt.tokens_by_label[prediction.label],
        logprobs={token: given.get(token, ABSENT) for token in TOKENS[prompt.group]},
        prompted="hard" if prediction.is_hard else "soft",
    )
