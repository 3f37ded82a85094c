"""What is asked of a chat model in one call: labels to choose, and how its answer is read."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from selfcorrect_rag.models.chat.label_probabilities import Token, label_probabilities, tokens_of
from selfcorrect_rag.models.chat.rounds import Outcome
from selfcorrect_rag.prompts.labels import Found, Labels

ABSENT = -100.0
"""Log-probability of a label that the model gave none for: finite, as JSON is, and as good as 0."""


class Slot(NamedTuple):
    """One label that an answer holds."""

    labels: Labels
    name: str = ""
    """What its line begins with, where an answer holds several labels."""


class Form(NamedTuple):
    """What is asked in one call: a prompt, and the labels that its answer holds.

    An answer with one slot is a label, one with several has a line ``name: label`` for each.
    """

    prompt: str
    slots: tuple[Slot, ...]


class Choice(NamedTuple):
    """The label that a model chose."""

    label: str
    logprobs: dict[str, float]
    """Natural log-probability of each label, not normalised over them, at least :data:`ABSENT`."""
    is_hard: bool
    """Whether the model only named the label: it then has 0, and the others :data:`ABSENT`."""


class Tokenizer(Protocol):
    """Of transformers, or alike."""

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...


def read_structured(form: Form, parsed: Any) -> list[Choice | None]:
    """The choices of a structured output, by slot."""
    given = parsed if isinstance(parsed, Mapping) else {}
    return [
        _hard(slot.labels, slot.labels.find(str(given.get(field, ""))))
        for field, slot in _fields(form).items()
    ]


def read_text(form: Form, outcome: Outcome) -> list[Choice | None]:
    """The choices of an answer in text, with their probabilities where it has any, by slot."""
    tokens, text = tokens_of(outcome.answer), outcome.text
    choices: list[Choice | None] = []
    for slot in form.slots:
        found = _find(slot, text)
        there = shifted(found, text, tokens) if found and tokens else None
        mass = label_probabilities(slot.labels.each, tokens, there) if there and tokens else None
        choices.append(_soft(found, mass) if found and mass else _hard(slot.labels, found))
    return choices


def shifted(found: Found, text: str, tokens: Sequence[Token]) -> Found | None:
    """Where what was found in ``text`` stands in all ``tokens``; None where they hold no such text.

    What comes before or after the text is thought, or the end of a turn.
    """
    before = "".join(token.text for token in tokens).find(text)
    return Found(found.label, found.start + before, found.end + before) if before >= 0 else None


def _find(slot: Slot, text: str) -> Found | None:
    if not slot.name:
        return slot.labels.find(text)
    name = r"\s+".join(map(re.escape, slot.name.split()))
    lines = list(
        re.finditer(
            rf"^(?:[*`#-]|[^\S\n])*{name}[*`]*\s*:[*`]*", text, re.IGNORECASE | re.MULTILINE
        )
    )
    if len(lines) != 1:
        return None
    begin = lines[0].end()
    found = slot.labels.find(text[begin:].split("\n", 1)[0])
    return found and Found(found.label, found.start + begin, found.end + begin)


def _soft(found: Found, mass: Mapping[str, float]) -> Choice:
    logprobs = {k: max(math.log(p), ABSENT) if p > 0.0 else ABSENT for k, p in mass.items()}
    return Choice(found.label, logprobs, is_hard=False)


def _hard(labels: Labels, found: Found | None) -> Choice | None:
    if found is None:
        return None
    logprobs = {label: 0.0 if label == found.label else ABSENT for label in labels.each}
    return Choice(found.label, logprobs, is_hard=True)


def options(form: Form) -> dict[str, Any]:
    """What a model is bound to where it gives log-probabilities."""
    # No token is shorter than a character, so that no label is cut, however it is split.
    longest = sum(len(slot.name) + 3 + max(map(len, slot.labels.each)) for slot in form.slots)
    return {"temperature": 0, "max_tokens": longest, "logprobs": True, "top_logprobs": 20}


def constraint(form: Form) -> dict[str, Any]:
    """The form as vLLM's ``structured_outputs``: all that may be written."""
    if len(form.slots) == 1:
        return {"choice": list(form.slots[0].labels.each)}
    lines = (
        f"{re.escape(slot.name)}: ({'|'.join(map(re.escape, slot.labels.each))})"
        for slot in form.slots
    )
    return {"regex": "\n".join(lines)}


def label_ids(tokenizer: Tokenizer, form: Form) -> list[int]:
    """The ids that labels may be written with, at most 128, which is all that vLLM gives."""
    texts = [
        text
        for slot in form.slots
        for label in slot.labels.each
        for text in (label, f" {label}", label.strip("[]"))
    ]
    ids = (i for text in texts for i in tokenizer.encode(text, add_special_tokens=False))
    return list(dict.fromkeys(ids))[:128]


def _fields(form: Form) -> dict[str, Slot]:
    return {f"label_{number}": slot for number, slot in enumerate(form.slots, start=1)}


def schema(form: Form) -> dict[str, Any]:
    """The form as a JSON schema, with a field for each slot."""
    properties = {
        field: {
            "type": "string",
            "enum": list(slot.labels.each),
            "description": slot.name or "The label that the answer begins with.",
        }
        for field, slot in _fields(form).items()
    }
    return {
        "title": "judgement",
        "description": "What is answered.",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def reminder(form: Form) -> str:
    """What is said where an answer was malformed."""
    if len(form.slots) == 1:
        return f"Answer with nothing but one of these: {_listed(form.slots[0])}"
    lines = "\n".join(f"{slot.name}: {_listed(slot)}" for slot in form.slots)
    return f"Answer with these lines and nothing else, each with one of its labels:\n{lines}"


def _listed(slot: Slot) -> str:
    return " or ".join(slot.labels.each)
