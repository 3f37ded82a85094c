"""A critique: a prompt for a reflection token, and the parsing of its answer.

What is judged is untrusted: each text stands in a field of its own, and no text can open another.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from selfcorrect_rag.prompts.labels import LabelParser
from selfcorrect_rag.prompts.quoting import quoted


class Instance(NamedTuple):
    """The texts that are judged: x, y, y_t and d of Table 1. An empty field is absent."""

    instruction: str
    input: str = ""
    """The text that the instruction is about, where the task keeps it apart."""
    output: str = ""
    """The whole output, y."""
    preceding_sentences: str = ""
    """The output that precedes the segment."""
    segment: str = ""
    """The judged sentence of the output, y_t; the whole output if it has only one."""
    evidence: str = ""
    """A passage, d."""


HEADINGS: Mapping[str, str] = {
    "instruction": "Instruction",
    "input": "Input",
    "output": "Output",
    "preceding_sentences": "Preceding sentences",
    "segment": "Output",
    "evidence": "Evidence",
}
"""Headings of an instance's fields in a prompt."""

OPTIONAL = frozenset({"input", "preceding_sentences"})
"""Fields that a prompt may lack; all others are required."""


SEPARATOR = "\n\n##\n"
"""The separator of a prompt's parts."""


class CritiqueExample(NamedTuple):
    """A few-shot example of a critique."""

    instance: Instance
    label: str
    explanation: str


class CritiqueAnswer(NamedTuple):
    """The label and explanation of an answer."""

    label: str
    """The label in the table's spelling."""
    token: str
    """The reflection token that the label stands for."""
    explanation: str
    """The explanation; empty where the model gave none."""


@dataclass(frozen=True, eq=False)
class CritiquePrompt:
    """A prompt for the tokens of one group, as the paper's tables have it, and its answers."""

    group: str
    """Name of the reflection group."""
    instructions: str
    fields: tuple[str, ...]
    """Fields of an :class:`Instance`, in the order of the demonstrations."""
    label_heading: str
    """The heading of the label, such as ``Rating:``."""
    tokens_by_label: Mapping[str, str]
    demonstrations: tuple[CritiqueExample, ...]

    def lacks(self, instance: Instance) -> list[str]:
        """The required fields that ``instance`` lacks."""
        needed = [field for field in self.fields if field not in OPTIONAL]
        return [field for field in needed if not getattr(instance, field).strip()]

    def prompt(self, instance: Instance) -> str:
        """Instructions, demonstrations, and ``instance`` up to its label.

        Raises:
            ValueError: the instance lacks a required field.
        """
        if lacking := self.lacks(instance):
            raise ValueError(f"{self.group} is judged by {', '.join(lacking)}, which is absent")
        return f"{self.prefix}{SEPARATOR}{self._case(instance)}"

    @cached_property
    def prefix(self) -> str:
        """Instructions and demonstrations, the common prefix of all its prompts."""
        shown = [
            f"{self._case(demo.instance)} {demo.label}\nExplanation: {demo.explanation}"
            for demo in self.demonstrations
        ]
        return SEPARATOR.join([self.instructions, *shown])

    def read(self, answer: str) -> CritiqueAnswer | None:
        """The judgement that ``answer`` begins with; None if it is malformed.

        Upper and lower case, brackets, emphasis, the heading before the label and the explanation
        after it may vary. Any other label, or two labels, give None.
        """
        found = self.label_parser.find(answer)
        if not found:
            return None
        explanation = _EXPLANATION.sub("", answer[found.end :], count=1).split("\n##")[0]
        return CritiqueAnswer(found.label, self.tokens_by_label[found.label], explanation.strip())

    @property
    def label_name(self) -> str:
        """:attr:`label_heading` without punctuation: what a line with the label begins with."""
        return self.label_heading.rstrip(":?")

    @cached_property
    def label_parser(self) -> LabelParser:
        """The parser of an answer's label."""
        headings = (*_HEADINGS_OF_LABELS, self.label_name.lower())
        return LabelParser(tuple(self.tokens_by_label), headings)

    def _case(self, instance: Instance) -> str:
        return f"{fields_text(instance, self.fields)}\n{self.label_heading}"


def fields_text(instance: Instance, fields: Sequence[str], **headings: str) -> str:
    """A paragraph with a heading for each field of ``instance``; absent ones are left out.

    Lines after a field's first are indented, so that no text can open a field of its own, and all
    is quoted.

    Args:
        headings: other headings than those of :data:`HEADINGS`, by field.
    """
    given = [(field, getattr(instance, field).strip()) for field in fields]
    named = {**HEADINGS, **headings}
    return "\n".join(
        f"{named[field]}: " + quoted("\n  ".join(text.splitlines()))
        for field, text in given
        if text
    )


_HEADINGS_OF_LABELS = ("need retrieval", "rating", "score", "perceived utility")
_EXPLANATION = re.compile(r"\A[\s*`.:]*(?:explanation\b[\s*`:]*)?", re.IGNORECASE)
