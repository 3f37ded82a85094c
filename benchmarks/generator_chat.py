"""The nano generator behind the interface of a chat model, for comparing schemes offline.

Its abilities, the same for whoever asks: it finds the question, the documents and the answer of a
prompt by the fields of its last section, says what the generator's own reflection tokens say of
them (retrieve, ISREL, ISSUP, ISUSE without a document), and writes what the generator writes. Of
several documents it answers from the one that it finds most relevant, and an answer is grounded
in them where one of them supports it. It cannot rewrite: it gives the question's keywords. It
keeps to every format, and gives log-probabilities as OpenAI's API does.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr

from benchmarks import tutorial
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.nodes.rewrite_query import keywords
from selfcorrect_rag.prompts import Part, Prompt, decision_prompt, segment_prompt
from selfcorrect_rag.prompts.critic import ISREL, ISSUP, ISUSE, RETRIEVE
from selfcorrect_rag.reflection import (
    RELEVANT,
    Group,
    Reflection,
    critique_score,
    probabilities,
    retrieval_probability,
)

Token = tuple[str, Mapping[str, float]]
"""What is written, and the probabilities of what could stand in its place."""
Fields = Mapping[str, str]

_FIELD = re.compile(r"^([A-Z][a-z]+(?: [a-z\d]+)?): (.*(?:\n  .*)*)", re.MULTILINE)


class GeneratorChat(BaseChatModel):
    """Counts its calls and tokens, by the generator's own tokenizer."""

    llm: ReflectionLLM
    _spent: dict[str, int] = PrivateAttr(default_factory=dict)

    @property
    def _llm_type(self) -> str:
        return "generator-chat"

    def spent(self) -> dict[str, int]:
        """Calls and tokens since the last time that this was asked."""
        spent, self._spent = self._spent, {}
        return spent

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        asked = "\n".join(str(message.content) for message in messages)
        answer = self._answer(asked)
        text = "".join(token for token, _ in answer)
        read, wrote = (self.llm.get_num_tokens(t) for t in (asked, text))
        for what, number in (("calls", 1), ("tokens", read + wrote)):
            self._spent[what] = self._spent.get(what, 0) + number
        told: Any = {"input_tokens": read, "output_tokens": wrote, "total_tokens": read + wrote}
        metadata = {"logprobs": {"content": [_logprobs(*token) for token in answer]}}
        message = AIMessage(text, usage_metadata=told, response_metadata=metadata)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _answer(self, asked: str) -> list[Token]:
        """Tokens of the answer: of the tutorial's prompts by their first line, else by fields."""
        fields = {name.lower(): text for name, text in _FIELD.findall(asked.rsplit("\n##\n")[-1])}
        numbered = {name: text for name, text in fields.items() if name[-1].isdigit()}
        documents = [_document(text) for text in numbered.values()]
        question = fields.get("question") or fields.get("instruction") or ""
        match asked.split("\n", 1)[0]:
            case tutorial.GRADE:
                return _yes(self._isrel(question, _document(fields["document"])))
            case tutorial.WRITE:
                best = max(documents, key=lambda document: self._isrel(question, document))
                return self._write(question, best)
            case tutorial.GROUNDED:
                given = (
                    self._issup(question, document, fields["answer"]) for document in documents
                )
                return _yes(max(map(critique_score, given)))
            case tutorial.RESOLVES:
                return _yes((critique_score(self._isuse(question, fields["answer"])) + 1) / 2)
            case tutorial.REWRITE:
                return [(keywords(question), {})]
        if "question" in fields:
            return self._write(question, _document(fields.get("passage", "")))
        if asked.endswith(RETRIEVE.label_heading):
            return [_label(RETRIEVE.tokens_by_label, self._retrieval(question))]
        if numbered:
            judged = [self._judged_isrel(question, document) for document in documents]
            return [
                token
                for number, one in enumerate(judged, start=1)
                for token in ((f"{number}: ", {}), _label(ISREL.tokens_by_label, one), ("\n", {}))
            ]
        evidence = _document(fields.get("evidence", ""))
        if "output" not in fields:
            return [_label(ISREL.tokens_by_label, self._judged_isrel(question, evidence))]
        lines: list[Token] = []
        for aspect in (ISSUP, ISUSE) if "evidence" in fields else (ISUSE,):
            judged_one = (
                self._issup(question, evidence, fields["output"])
                if aspect is ISSUP
                else self._isuse(question, fields["output"])
            )
            heading = f"{aspect.label_heading.rstrip(':?')}: "
            lines += [(heading, {}), _label(aspect.tokens_by_label, judged_one), ("\n", {})]
        return lines[1:2] if len(lines) == 3 else lines

    def _retrieval(self, question: str) -> Reflection:
        (asked,) = self.llm.choose([decision_prompt(question)], Group.RETRIEVE)
        return asked["reflections"][0]

    def _judged_isrel(self, question: str, document: Document) -> Reflection:
        return self._judged(_prompt(question, document), Group.ISREL)

    def _isrel(self, question: str, document: Document) -> float:
        return critique_score(self._judged_isrel(question, document))

    def _issup(self, question: str, document: Document, answer: str) -> Reflection:
        prompt = _prompt(question, document)
        said = (Part(RELEVANT, "control"), Part(answer, "untrusted"))
        return self._judged(Prompt(parts=(*prompt.parts, *said)), Group.ISSUP)

    def _isuse(self, question: str, answer: str) -> Reflection:
        prompt = _prompt(question, None)
        return self._judged(Prompt(parts=(*prompt.parts, Part(answer, "untrusted"))), Group.ISUSE)

    def _judged(self, prompt: Prompt, group: Group) -> Reflection:
        (asked,) = self.llm.choose([prompt], group)
        return asked["reflections"][0]

    def _write(self, question: str, document: Document | None) -> list[Token]:
        has_text = document is not None and document.page_content
        (segment,) = self.llm.generate_segments(
            [_prompt(question, document if has_text else None)], max_tokens=50
        )
        assert segment["logprob"] is not None, "this model says none"
        mean = math.exp(segment["logprob"] / max(segment["tokens"], 1))
        return [(segment["text"], {segment["text"]: mean})]


def _prompt(question: str, document: Document | None) -> Prompt:
    if document is None:
        return segment_prompt(question, [], [], "none", None)
    return segment_prompt(question, [], [document], "retrieve", 0)


def _document(text: str) -> Document:
    """A field's text as a document; its first line is the title."""
    title, _, body = text.partition("\n")
    return Document(" ".join(body.split()), metadata={"title": title.strip()})


def _label(choices: Mapping[str, str], judged: Reflection) -> Token:
    """The likeliest label, among all of them with the probabilities of their tokens."""
    given = probabilities(judged["logprobs"])
    labels = {label: given[token] for label, token in choices.items()}
    if judged["group"] == Group.RETRIEVE:  # [Continue to Use Evidence] has no label at first
        wanted = retrieval_probability(judged)
        labels = dict(zip(choices, (wanted, 1 - wanted), strict=True))
    return max(labels, key=lambda label: labels[label]), labels


def _yes(probability: float) -> list[Token]:
    return [("yes" if probability > 0.5 else "no", {})]


def _logprobs(token: str, alternatives: Mapping[str, float]) -> dict[str, Any]:
    given = {text: math.log(max(p, 1e-30)) for text, p in alternatives.items()}
    return {
        "token": token,
        "logprob": given.get(token, 0.0),
        "top_logprobs": [{"token": text, "logprob": value} for text, value in given.items()],
    }
