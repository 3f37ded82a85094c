"""write_rationale: one model call, with as many of the documents as fit its context."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from langchain_core.messages import HumanMessage
from langchain_core.runnables import Runnable

from selfcorrect_rag.events import Answered, Dropped, RationaleWritten
from selfcorrect_rag.models.chat_model import (
    LLMChat,
    exceeds,
    is_llm,
    model_behind,
    prompt_limit,
)
from selfcorrect_rag.models.engines.engine import split_context
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.nodes.citations import citation
from selfcorrect_rag.nodes.node import Node, Run, Update, ask
from selfcorrect_rag.nodes.reply import NO_ANSWER, SILENT, continue_message, reply, written
from selfcorrect_rag.prompts.instruct_rag import inference_prompt, read_answer, read_numbers
from selfcorrect_rag.prompts.marks import is_refusal
from selfcorrect_rag.prompts.parts import Part, Prompt
from selfcorrect_rag.settings import InstructRAGSettings, Mode
from selfcorrect_rag.state import Demonstration, known_tokens

READABLE, LEFT = "that the model can read", "that max_tokens leaves"
"""Names, for a note, of the limit that a prompt exceeds."""
Kind = Literal["documents", "demonstrations"]


def write_rationale(llm: Model, settings: InstructRAGSettings | None = None) -> Node[Any]:
    """Generate the rationale (Algorithm 1, lines 7 and 10), or a baseline's answer.

    A chat model gets one message, an LLM plain text to continue. Documents are numbered as they
    are shown. A prompt too long for the model's context, or for what is left of ``max_tokens``,
    loses its lowest-ranked documents first, then its first demonstrations; the best document stays.
    """
    model = as_language_model(llm, "llm")

    async def step(state: Mapping[str, Any], run: Run[InstructRAGSettings]) -> Update:
        size = sum(len(passage.page_content) for passage in state["passages"])
        fitted = await run.compute(_fit, model, state, run.settings, characters=size)
        for what, number in fitted.dropped:
            limit = fitted.limit or 0
            run.emit(Dropped(event="dropped", what=what, number=number, limit=limit))
        speaker: Any = model
        given: Any = [HumanMessage("".join(part.text for part in fitted.prompt.parts))]
        if is_llm(model):
            speaker, given = LLMChat(llm=model, prompt=fitted.prompt), fitted.prompt
        options: dict[str, Any] = {}
        if isinstance(model_behind(model), ReflectionLLM):
            options["max_tokens"] = run.settings.rationale_tokens
        text = (await ask(run, speaker, given, stream=True, **options)).strip()
        run.emit(
            RationaleWritten(
                event="rationale_written",
                text=text,
                mode=fitted.mode,
                documents=len(fitted.numbering),
            )
        )
        return {
            **written(state, run, text),
            "mode": fitted.mode,
            "numbering": fitted.numbering,
            "demonstrations": fitted.demonstrations,
            "notes": [*fitted.notes, *([] if text else [SILENT])],
            **({"stopped": "max_tokens"} if fitted.stopped else {}),
        }

    return Node("write_rationale", step, InstructRAGSettings.of(settings))


class _Fitted(NamedTuple):
    """The prompt that fits, and what was dropped for it."""

    prompt: Prompt
    mode: Mode
    numbering: list[int]
    demonstrations: list[Demonstration]
    dropped: list[tuple[Kind, int]]
    limit: int | None
    stopped: bool
    notes: list[str]


def _fit(
    llm: Runnable[Any, Any], state: Mapping[str, Any], settings: InstructRAGSettings
) -> _Fitted:
    """Return the prompt with as many of the documents and demonstrations as fit."""
    mode, notes = state["mode"], []
    if not state["passages"] and mode != "no_retrieval":
        notes.append("no document was found: the model was asked without documents")
        mode = "ft" if mode == "ft" else "no_retrieval"  # ft gets the prompt of its training
    every = 0 if mode == "no_retrieval" else len(state["passages"])
    examples: list[Demonstration] = list(state["demonstrations"])
    limit, whose = _limit(llm, state, settings)

    def order(documents: int) -> list[int]:
        shown = list(range(documents))
        return shown[::-1] if settings.order == "best_last" else shown

    def prompt(documents: int, demonstrations: int) -> Prompt:
        found = [state["passages"][i] for i in order(documents)]
        shown = examples[len(examples) - demonstrations :]
        made = inference_prompt(mode, state["question"], found, shown, settings.instruction)
        if is_llm(llm):  # nothing else marks the end of the question
            return Prompt(parts=(*made.parts, Part("\n", "trusted")))
        return made

    def is_too_long(documents: int, demonstrations: int) -> bool:
        return limit is not None and exceeds(
            llm, prompt(documents, demonstrations).to_string(), limit
        )

    documents, demonstrations = every, len(examples)
    dropped: list[tuple[Kind, int]] = []
    stopped = is_too_long(documents, demonstrations)
    if stopped:
        # Binary search, since each check builds and tokenizes the whole prompt.
        documents = bisect_left(range(1, every), True, key=lambda n: is_too_long(n, len(examples)))
        if not documents:
            documents = min(every, 1)
            fitting = bisect_left(
                range(demonstrations), True, key=lambda n: is_too_long(documents, n)
            )
            demonstrations = max(fitting - 1, 0)
        if is_too_long(documents, demonstrations):
            notes.append(f"the prompt is longer than the {limit} tokens {whose}")
        counts: list[tuple[Kind, int, int]] = [
            ("documents", every, documents),
            ("demonstrations", len(examples), demonstrations),
        ]
        for what, before, now in counts:
            if now < before:
                dropped.append((what, before - now))
                notes.append(
                    f"{before - now} of {before} {what} dropped, the weakest first: the prompt "
                    f"would be longer than the {limit} tokens {whose}"
                )
    shown = examples[len(examples) - demonstrations :]
    made, numbering = prompt(documents, demonstrations), order(documents)
    return _Fitted(made, mode, numbering, shown, dropped, limit, stopped and whose == LEFT, notes)


def _limit(
    llm: Runnable[Any, Any], state: Mapping[str, Any], settings: InstructRAGSettings
) -> tuple[int | None, str]:
    """Return the token limit of the prompt, and its name."""
    own = prompt_limit(llm, settings.rationale_tokens, settings.context_tokens)
    if settings.max_tokens is None:
        return own, READABLE
    spent = known_tokens(state["route"])
    left = split_context(max(settings.max_tokens - spent, 1), settings.rationale_tokens)[1]
    if own is not None and left is not None and own <= left:
        return own, READABLE
    return left, LEFT


BASELINES = ("no_retrieval", "ralm", "few_shot")
"""Modes whose prompt asks for an answer without a rationale."""


def read_rationale(llm: object = None) -> Node[Any]:
    """Read the answer and the documents that the rationale's last paragraph names by number.

    A baseline's whole output is the answer. Numbers of documents that were not shown are left out,
    and a note says so. The useful documents are cited, unless the answer is a refusal.

    Args:
        llm: the model that wrote the rationale, named in the reply's metadata.
    """

    def step(state: Mapping[str, Any], run: Run[InstructRAGSettings]) -> Update:
        written, numbering = state["written"], state["numbering"]
        is_baseline = state["mode"] in BASELINES
        answer = (written if is_baseline else read_answer(written)) or NO_ANSWER
        named = read_numbers(written)
        useful = [n for n in named if 0 < n <= len(numbering)]
        citations = [
            citation(
                n, numbering[n - 1], state["passages"][numbering[n - 1]], [0], [answer],
                state["question"],
            )
            for n in ([] if is_refusal(answer) else useful)
        ]  # fmt: skip
        continue_message(state, run)
        numbers = [f"[{cited['number']}]" for cited in citations]
        marks = "".join(f" {mark}" for mark in numbers if mark not in answer)
        run.emit(Answered(event="answered", answer=answer, citations=len(citations)))
        return {
            "question": state["question"],
            "answer": answer,
            "cited_answer": f"{answer}{marks}",
            "rationale": "" if is_baseline else written,
            "useful_documents": [numbering[n - 1] for n in useful],
            "citations": citations,
            "notes": [
                f"Document [{n}] is named but was not shown" for n in named if n not in useful
            ],
            **reply(state, run, written or answer, citations, llm),
        }

    return Node("read_rationale", step, InstructRAGSettings())
