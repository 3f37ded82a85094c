"""write_rationale: one model call, with as many of the documents as fit its context."""

from bisect import bisect_left
from typing import Any, Literal

from langchain_core.messages import HumanMessage
from langchain_core.runnables import Runnable

from selfcorrect_rag.events import Dropped, RationaleWritten
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.chat_model import LLMChat, exceeds, is_llm, model_behind, prompt_limit
from selfcorrect_rag.models.engines.engine import split_context
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes.base.asking import ask
from selfcorrect_rag.nodes.base.node import Node, Update, Work, current, emit
from selfcorrect_rag.nodes.base.reply import NO_ANSWER, SILENT, reply
from selfcorrect_rag.nodes.base.usage import counted_config
from selfcorrect_rag.prompts.instruct_rag import inference_prompt
from selfcorrect_rag.prompts.parts import Part, Prompt
from selfcorrect_rag.settings import InstructRAGSettings
from selfcorrect_rag.settings.instruct_rag import Mode
from selfcorrect_rag.state.costs import known_tokens
from selfcorrect_rag.state.instruct_rag import InstructRAGState

READABLE, LEFT = "that the model can read", "that max_tokens leaves"
"""Names, for a note, of the limit that a prompt exceeds."""

Kind = Literal["documents", "demonstrations"]


def write_rationale(llm: Model, settings: InstructRAGSettings | None = None) -> Node:
    """Generate the rationale (Algorithm 1, lines 7 and 10), or a baseline's answer.

    A chat model gets one message, an LLM plain text to continue. Documents are numbered as they
    are shown. A prompt too long for the model's context, or for what is left of ``max_tokens``,
    loses its lowest-ranked documents first, then its first demonstrations; the best document stays.
    """
    settings = InstructRAGSettings.of_step(settings)
    model = as_language_model(llm, "llm")

    def run(state: InstructRAGState) -> Work:
        request = _Request(model, state, current(settings))
        speaker, prompt = request.call()
        text = yield from ask(speaker, prompt, counted_config(), **request.options)
        return request.update(text)

    return Node("write_rationale", run, settings)


class _Request:
    """The prompt of one run, and notes about it."""

    def __init__(
        self, llm: Runnable[Any, Any], state: InstructRAGState, settings: InstructRAGSettings
    ) -> None:
        self._llm, self._state, self._settings = llm, state, settings
        self._notes: list[str] = []
        self._marks: Update = {}
        self.mode: Mode = state.get("mode") or settings.mode or "instruct"
        if not state["passages"] and self.mode != "no_retrieval":
            self._notes.append("no document was found: answered from the model's own knowledge")
            # A fine-tuned model gets the prompt that it was trained on.
            self.mode = "ft" if self.mode == "ft" else "no_retrieval"
        self.options: dict[str, Any] = {}
        if isinstance(model_behind(llm), ReflectionLLM):
            self.options["max_tokens"] = settings.rationale_tokens
        self._shown = list(range(len(state["passages"]))) if self.mode != "no_retrieval" else []
        self._demonstrations = list(state["demonstrations"])
        self._prompt = self._built()
        self._fit()

    def call(self) -> tuple[Runnable[Any, Any], Any]:
        """The model, and its input."""
        if is_llm(self._llm):
            return LLMChat(llm=self._llm, prompt=self._prompt), self._prompt
        return self._llm, [HumanMessage(_text(self._prompt))]

    def update(self, written: str) -> Update:
        """The update of the state with the text that the model wrote."""
        text = written.strip()
        if not text:
            self._notes.append(SILENT)
        emit(
            RationaleWritten(
                event="rationale_written", text=text, mode=self.mode, documents=len(self._shown)
            )
        )
        return {
            "written": text,
            "mode": self.mode,
            "numbering": self._numbering(),
            "demonstrations": self._demonstrations,
            "notes": [*self._state["notes"], *self._notes],
            **self._marks,
            **reply(self._state, text or NO_ANSWER, llm=self._llm),
        }

    def _numbering(self) -> list[int]:
        return self._shown[::-1] if self._settings.order == "best_last" else list(self._shown)

    def _built(self) -> Prompt:
        prompt = inference_prompt(
            self.mode,
            self._state["question"],
            [self._state["passages"][i] for i in self._numbering()],
            self._demonstrations,
            self._settings.instruction,
        )
        if is_llm(self._llm):  # nothing else marks the end of the question
            return Prompt(parts=(*prompt.parts, Part("\n", "trusted")))
        return prompt

    def _limit(self) -> tuple[int | None, str]:
        """The token limit of the prompt, and the name of the limit."""
        settings = self._settings
        own = prompt_limit(self._llm, settings.rationale_tokens, settings.context_tokens)
        if settings.max_tokens is None:
            return own, READABLE
        spent = known_tokens(self._state["costs"])
        left = split_context(max(settings.max_tokens - spent, 1), settings.rationale_tokens)[1]
        if own is not None and left is not None and own <= left:
            return own, READABLE
        return left, LEFT

    def _fit(self) -> None:
        dropped = [len(self._shown), len(self._demonstrations)]
        limit, whose = self._limit()
        if limit is None or not exceeds(self._llm, self._prompt.to_string(), limit):
            return
        if whose == LEFT:
            self._marks["stopped"] = "max_tokens"
        ranked, examples = self._shown, self._demonstrations

        def is_too_long(documents: int, demonstrations: int) -> bool:
            self._shown = ranked[:documents]
            self._demonstrations = examples[len(examples) - demonstrations :]
            self._prompt = self._built()
            return exceeds(self._llm, self._prompt.to_string(), limit)

        # Binary search, since each check builds and tokenizes the whole prompt.
        every = len(examples)
        documents = bisect_left(range(1, len(ranked)), True, key=lambda n: is_too_long(n, every))
        if not documents:
            documents = min(len(ranked), 1)
            fitting = bisect_left(range(every), True, key=lambda n: is_too_long(documents, n))
            every = max(fitting - 1, 0)
        if is_too_long(documents, every):
            self._notes.append(f"the prompt is longer than the {limit} tokens {whose}")
        left = [len(self._shown), len(self._demonstrations)]
        kinds: tuple[Kind, Kind] = ("documents", "demonstrations")
        for what, before, now in zip(kinds, dropped, left, strict=True):
            if now < before:
                self._notes.append(
                    f"{before - now} of {before} {what} dropped, the weakest first: the prompt "
                    f"would be longer than the {limit} tokens {whose}"
                )
                emit(Dropped(event="dropped", what=what, number=before - now, limit=limit))


def _text(prompt: Prompt) -> str:
    return "".join(part.text for part in prompt.parts)
