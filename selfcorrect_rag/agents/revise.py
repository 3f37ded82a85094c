"""Unsupported spans of an answer, and a bounded revision from what is retrieved for them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from langchain_core.documents import Document
from langchain_core.runnables import Runnable
from langchain_core.runnables.config import run_in_executor

from selfcorrect_rag.agents.support import (
    ENOUGH,
    Sentence,
    Support,
    SupportJudge,
    claims_in,
    read_support,
    remove_marks,
    support_prompts,
)
from selfcorrect_rag.errors import BadArgument, Fault, ModelFailed, wrap_errors
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes.limits import limit_met, stopped
from selfcorrect_rag.nodes.node import Node, Run, Update, ask
from selfcorrect_rag.nodes.retrieve import finder, merge
from selfcorrect_rag.nodes.rewrite_query import call_function
from selfcorrect_rag.prompts.chat import revision_prompt
from selfcorrect_rag.prompts.reading import REFUSAL, is_refusal
from selfcorrect_rag.reflection import Group
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.settings import SelfRAGSettings

SpanDetector = Callable[[str, Sequence[Document], str], Sequence[Mapping[str, Any]]]
"""A function from answer, passages and question (perhaps empty) to the spans of the answer that no
passage supports: mappings with ``start`` and ``end``, as LettuceDetect gives them."""
Judge = SupportJudge | Model | SpanDetector
"""A support judge, the model or its name to make one of, or a span detector."""
SentenceRewriter = Model | Callable[[str, Sequence[Document], str], Any]
"""A model or its name, or a function, sync or async, from a sentence, passages and the question to
a sentence that the passages support; empty if they say nothing about it."""


class UnsupportedSpan(TypedDict):
    """``answer[start:end]``, which no passage supports."""

    start: int
    end: int
    text: str


def find_unsupported_spans(
    answer: str,
    passages: Sequence[Document],
    judge: Judge,
    question: str = "",
    support: Support = "partly",
) -> list[UnsupportedSpan]:
    """Return the spans of ``answer`` that no passage supports, in order.

    A support judge marks sentences whose ISSUP is below ``support`` or missing, a detector any
    spans. ModelFailed if the judge fails, or gives spans outside of the answer.
    """
    known, given = as_judge(judge), (answer, passages, question)
    with wrap_errors(ModelFailed, "the judge"):
        found = known.judge(*given) if isinstance(known, SupportJudge) else known(*given)
        return _spans(answer, found, support)


async def afind_unsupported_spans(
    answer: str,
    passages: Sequence[Document],
    judge: Judge,
    question: str = "",
    support: Support = "partly",
) -> list[UnsupportedSpan]:
    """The async twin of :func:`find_unsupported_spans`; a detector runs in a thread."""
    known = as_judge(judge)
    if isinstance(known, SupportJudge):
        return _spans(answer, await known.ajudge(answer, passages, question), support)
    given = (answer, passages, known, question, support)
    return await run_in_executor(None, find_unsupported_spans, *given)


def as_judge(judge: Judge) -> SupportJudge | SpanDetector:
    """Return a support judge or a span detector as it is, a model as a support judge."""
    if isinstance(judge, str | Runnable):
        return SupportJudge(judge)
    if isinstance(judge, SupportJudge) or callable(judge):
        return judge
    raise BadArgument(
        "judge must be a SupportJudge, a model, or a function from answer, passages and question "
        f"to spans, got {type(judge).__name__}"
    )


def _spans(answer: str, found: Sequence[Any], support: Support) -> list[UnsupportedSpan]:
    spans = []
    for each in found:
        start, end = each["start"], each["end"]
        if not 0 <= start < end <= len(answer):
            raise ModelFailed(
                f"the judge gave the span {start} to {end} of {len(answer)} characters",
                "count start and end in characters of the answer",
            )
        if each.get("issup") not in ENOUGH[support]:
            spans.append(UnsupportedSpan(start=start, end=end, text=answer[start:end]))
    return sorted(spans, key=lambda span: span["start"])


class _Version(NamedTuple):
    answer: str
    spans: list[UnsupportedSpan]
    supported: int
    """Its sentences that claim something and have no unsupported span."""
    unsupported: list[Sentence]

    @property
    def share(self) -> float:
        return self.supported / ((self.supported + len(self.unsupported)) or 1)

    @property
    def rank(self) -> tuple[float, int, int]:
        return self.share, self.supported, -len(self.unsupported)


def revise_answer(
    judge: Judge,
    retriever: Retriever | None = None,
    rewriter: SentenceRewriter | None = None,
    *,
    support: Support = "partly",
    rounds: int = 2,
    settings: SelfRAGSettings | Mapping[str, Any] | None = None,
) -> Node[SelfRAGSettings]:
    """Revise the sentences of an answer that no passage supports, in at most ``rounds`` rounds.

    A round retrieves with each of them as the query and judges again. Sentences that are still
    unsupported are rewritten from their passages; they are dropped in the last round, without a
    rewriter, and if it returns nothing or a refusal. An answer that loses all sentences becomes a
    refusal. The version with the largest share of supported sentences is kept, of equal ones that
    with the most, then the earliest: by the judge it is never worse than the first. A refusal is
    only better than an answer without any support.

    The node reads ``question``, ``answer`` and ``passages``; it writes ``answer``, ``passages``
    (new ones last), ``unsupported_spans``, ``supported_share`` (0 without a claim) and ``notes``. A
    fault after the first judgement, or a limit of ``settings``, ends the loop with a note.
    """
    known, find = as_judge(judge), finder(retriever, None)
    is_model = isinstance(rewriter, str | Runnable)
    llm = as_language_model(rewriter, "rewriter") if is_model else None
    function: Any = rewriter
    if rounds < 1:
        raise BadArgument(f"rounds must be at least 1, got {rounds}")

    async def judged(state: Mapping[str, Any], run: Run[Any], answer: str) -> _Version:
        passages, asked = state["passages"], state["question"]
        if type(known) is SupportJudge:
            claims, prompts = support_prompts(answer, passages, asked)
            choice = (known.llm.choose, known.llm.achoose, prompts, Group.ISSUP)
            segments = await run.segments(*choice) if prompts else []
            spans = _spans(answer, read_support(claims, segments), support)
        else:
            claims, given = claims_in(answer), (answer, passages, known, asked, support)
            spans = await run.call(find_unsupported_spans, afind_unsupported_spans, *given)
        marked = [
            c for c in claims if any(s["start"] < c.end and c.start < s["end"] for s in spans)
        ]
        return _Version(answer, spans, len(claims) - len(marked), marked)

    async def rewritten(run: Run[Any], claim: Sentence, read: list[Document], asked: str) -> str:
        if llm is None:
            given = (claim.text, read, asked)
            text = str(await call_function(run, function, ModelFailed, "the rewriter", *given))
        else:
            text = await ask(run, llm, revision_prompt(claim.text, claim.before, read, asked))
        return "" if is_refusal(text) else remove_marks(text)

    async def improve(
        state: Mapping[str, Any], run: Run[Any], version: _Version, is_last: bool
    ) -> tuple[list[_Version], list[str]]:
        """Return one or two versions that a round makes of ``version``, and notes."""
        given, passages = list(state["passages"]), state["passages"]
        queries = list(dict.fromkeys(claim.text for claim in version.unsupported))
        found, notes = await find({**state, "fixed": retriever is None}, run, queries)
        sources = {query: merge(found[query], passages) for query in queries}
        made = []
        if len(passages) > len(given):
            made = [version := await judged(state, run, version.answer)]
        answer = version.answer
        for claim in reversed(version.unsupported):
            read = [passages[i] for i in sources.get(claim.text, ())]
            read += [each for each in given if each not in read]
            is_dropped = is_last or rewriter is None
            text = "" if is_dropped else await rewritten(run, claim, read, state["question"])
            before = answer[: claim.start] if text else answer[: claim.start].rstrip(" ")
            answer = before + text + answer[claim.end :]
        if (answer := answer.strip()) != version.answer.strip():
            made.append(await judged(state, run, answer or REFUSAL))
        return made, notes

    async def step(state: Mapping[str, Any], run: Run[SelfRAGSettings]) -> Update:
        state = {**state, "passages": list(state["passages"])}
        versions, update = [await judged(state, run, state["answer"])], Update(notes=[])
        try:
            for left in reversed(range(rounds)):
                version = versions[-1]
                spent = {"route": [*state["route"], run.costs]}
                doubted, calls = len(version.unsupported), 1
                if isinstance(known, SupportJudge):
                    calls = known.llm.most_calls(version.supported + doubted, choose=True)
                calls *= 1 if retriever is None else 2  # once more with what is found
                calls += 0 if rewriter is None or not left else doubted
                limit = limit_met(spent, run.settings, calls)
                if version.unsupported and limit:
                    update = stopped(run, limit, "the answer is not revised any further")
                if limit or not version.unsupported:
                    break
                made, notes = await improve(state, run, version, is_last=not left)
                versions += made
                update["notes"] += notes
        except Fault as fault:
            update["notes"].append(f"{fault.reason}: the answer is not revised any further")
        best = max(versions, key=lambda version: version.rank)
        return {
            **update,
            "answer": best.answer,
            "passages": state["passages"],
            "unsupported_spans": best.spans,
            "supported_share": best.share,
        }

    return Node("revise_answer", step, SelfRAGSettings.of(settings))
