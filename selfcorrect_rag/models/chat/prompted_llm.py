"""ReflectionLLM over any chat model: prompts ask for what reflection tokens say."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables import Runnable
from pydantic import Field, PrivateAttr

from selfcorrect_rag.models.chat.choices import ChoiceCounts, Chooser
from selfcorrect_rag.models.chat.drafts import Draft, form, relevance
from selfcorrect_rag.models.chat.llm_chat import model_behind
from selfcorrect_rag.models.chat.rounds import Rounds, arun, run
from selfcorrect_rag.models.chat.writing import Writer
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.prompts.aspect import Aspect
from selfcorrect_rag.prompts.chat import asked
from selfcorrect_rag.prompts.critic import ISREL, group_prompt, registered_prompts
from selfcorrect_rag.prompts.parts import Prompt
from selfcorrect_rag.reflection import GROUPS, PAPER_GROUPS
from selfcorrect_rag.state.self_rag import Segment

TOGETHER = 10
"""Most passages whose ISREL is asked for in one call."""


class PromptedReflectionLLM(ReflectionLLM):
    """Writes with any LangChain chat model, and asks it for each critique by the paper's prompts.

    Retrieve is asked for by table 8, and after a sentence by table 9; ISREL, ISSUP and ISUSE by
    tables 10 to 12. The log-probabilities of the labels are those of the group's tokens; a
    provider that gives none leaves hard labels
    (:class:`~selfcorrect_rag.models.chat.choices.Chooser`), which reflections say. A label that
    stays malformed, or whose call fails, is absent.

    A batch takes one call for the ISREL of all its passages (up to 10 at a time), then for each
    of the ``candidates`` best that are relevant one call to write and one to criticise it. Other
    passages are pruned. As if they had been generated, ISREL stands before the text of a segment,
    ISSUP and ISUSE after it, and ``position`` counts the text's tokens and these. A segment's
    ``tokens`` are those of all its calls, and ``logprob`` is the mean of the text's times that.

    Raises, when it writes:
        EngineFailed: the model gave no answer to any prompt of a batch.
    """

    model: Runnable[Any, Any]
    """A chat model or an LLM, perhaps bound to options or with retries."""
    critic: Runnable[Any, Any] | None = None
    """What answers the critique prompts; the model itself by default."""
    candidates: int = Field(default=2, ge=1)
    """Most passages that one question, or one beam of it, is answered from."""
    prune_below: float = Field(default=0.5, ge=0, le=1)
    """ISREL score below which a passage is not answered from, where a run sets none; the best
    passage always is."""
    joined: bool = True
    """Whether a call may ask for several critiques. A model that was trained on the paper's
    prompts, such as a critic, keeps to one at a time."""
    sentences: bool = False
    """Whether a segment is a sentence, after which the model says how to go on (table 9). The
    whole answer is one segment by default, and so it is where there is no evidence."""
    thinking_tokens: int = Field(default=0, ge=0)
    """Put on top of the most tokens of a segment, for a model that thinks before it writes."""
    max_concurrency: int = Field(default=8, ge=1)
    """Most calls at a time for one batch."""
    tokenizer: Any = None
    """Of the critic, where a vLLM server serves it: see ``Chooser``."""

    _chooser: Chooser = PrivateAttr()
    _writer: Writer = PrivateAttr()

    def __init__(self, model: Runnable[Any, Any], **fields: Any) -> None:
        """Wrap ``model``; see the fields for what else can be said."""
        super().__init__(model=model, **fields)  # type: ignore[call-arg]

    def model_post_init(self, context: Any, /) -> None:
        """Nothing is asked yet: what the model can do shows at the first call."""
        self._chooser = Chooser(self.critic or self.model, tokenizer=self.tokenizer)
        self._writer = Writer(self.model, tokenizer=self.tokenizer)

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
    def counts(self) -> ChoiceCounts:
        """What of its critiques was malformed or failed, of all runs together."""
        return self._chooser.counts

    def most_calls(self, prompts: int, *, choose: bool = False, critique: bool = True) -> int:
        """Most calls that a batch for one question takes, where each critique is asked for twice.

        What the first call of all finds out about the model, and a rate limit, come on top. See
        :class:`ReflectionLLM`.
        """
        if choose:
            return 2 * prompts
        written = prompts if self.sentences else min(prompts, self.candidates)
        if not critique:
            return prompts
        critiques = 2 + len(registered_prompts())
        relevance_calls = -(-prompts // TOGETHER) if self.joined else prompts
        return 2 * relevance_calls + written * (1 + 2 * (1 if self.joined else critiques))

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        return run(self._rounds(prompts, **options), self.max_concurrency)

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        return await arun(self._rounds(prompts, **options), self.max_concurrency)

    def _rounds(
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
    ) -> Rounds[list[Segment]]:
        drafts = [Draft(asked(prompt)) for prompt in prompts]
        if choose is not None:
            prompt = group_prompt(GROUPS[choose])
            assert prompt is not None, "it is one of the groups"
            yield from self._choose(drafts, prompt)
            return [draft.segment() for draft in drafts]
        if critique:
            yield from self._judge_passages(drafts)
            self._prune(drafts, self.prune_below if prune_below is None else prune_below)
        going = [draft for draft in drafts if not draft.is_pruned]
        by_sentence = self.sentences and critique and stop_at_retrieval
        written = yield from self._writer.rounds(
            [(draft.asked.instance, by_sentence and draft.has_evidence) for draft in going],
            max_tokens=max_tokens + self.thinking_tokens,
            stop=stop,
            **sampling,
        )
        for draft, text in zip(going, written, strict=True):
            draft.take_text(text)
        if critique:
            yield from self._criticise([draft for draft in going if draft.text])
        return [draft.segment() for draft in drafts]

    def _choose(self, drafts: Sequence[Draft], aspect: Aspect) -> Rounds[None]:
        forms = [form([aspect], draft.all_of_it) for draft in drafts]
        answers = yield from self._chooser.rounds(forms)
        for draft, answer in zip(drafts, answers, strict=True):
            draft.take(aspect, answer.choices[0])
            draft.spend(answer.cost)

    def _judge_passages(self, drafts: Sequence[Draft]) -> Rounds[None]:
        """Ask for the ISREL of each new passage; those of one question in one call."""
        size = TOGETHER if self.joined else 1
        calls = [
            group[start : start + size]
            for group in _by_question(drafts)
            for start in range(0, len(group), size)
        ]
        forms = [relevance([draft.asked.instance for draft in call]) for call in calls]
        answers = yield from self._chooser.rounds(forms)
        for call, answer in zip(calls, answers, strict=True):
            call[0].spend(answer.cost)
            for draft, choice in zip(call, answer.choices, strict=True):
                draft.take(ISREL, choice)

    def _prune(self, drafts: Sequence[Draft], below: float) -> None:
        """Keep the most relevant passages of each question; the best one of all always stays."""
        best = max((draft.isrel for draft in drafts), default=0.0)
        kept_best = False
        for group in _by_question(drafts):
            ranked = sorted(group, key=lambda draft: -draft.isrel)
            for rank, draft in enumerate(ranked):
                is_best = draft.isrel == best and not kept_best
                kept_best |= is_best
                is_judged = draft.reflections != []
                too_low = is_judged and draft.isrel < below
                draft.is_pruned = not is_best and (too_low or rank >= self.candidates)

    def _criticise(self, drafts: Sequence[Draft]) -> Rounds[None]:
        """Ask for the ISSUP, ISUSE and, where it goes on, Retrieve of what was written."""
        asking = [
            (draft, aspects)
            for draft in drafts
            for aspects in ([draft.aspects] if self.joined else [[a] for a in draft.aspects])
        ]
        forms = [form(aspects, draft.all_of_it) for draft, aspects in asking]
        answers = yield from self._chooser.rounds(forms)
        for (draft, aspects), answer in zip(asking, answers, strict=True):
            draft.spend(answer.cost)
            for aspect, choice in zip(aspects, answer.choices, strict=True):
                draft.take(aspect, choice)


def _by_question(drafts: Sequence[Draft]) -> list[list[Draft]]:
    """Those that read a new passage, by what it is to be relevant for."""
    groups: dict[tuple[str, str], list[Draft]] = defaultdict(list)
    for draft in drafts:
        if draft.asked.step == "retrieve" and draft.has_evidence:
            groups[draft.question].append(draft)
    return list(groups.values())


def reflecting(llm: object) -> ReflectionLLM:
    """``llm`` itself where it reflects; another LangChain model wrapped, to be asked by prompts.

    Raises:
        TypeError: it is no LangChain model.
    """
    if isinstance(llm, ReflectionLLM):
        return llm
    if isinstance(llm, Runnable) and isinstance(model_behind(llm), BaseLanguageModel):
        return PromptedReflectionLLM(llm)
    raise TypeError(
        f"{type(llm).__name__} is neither a ReflectionLLM, such as "
        "TransformersReflectionLLM.from_pretrained(...), nor a LangChain chat model or LLM"
    )
