"""An aspect of an output: how a language model is asked to judge it, and how its answer is read.

Pure Python. What is judged is untrusted: each text stands in a field of its own, and no text can
open another.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from selfcorrect_rag.prompts.labels import Labels
from selfcorrect_rag.prompts.quoting import quoted


class Instance(NamedTuple):
    """What is judged: x, y, y_t and d of Table 1. An empty field is absent."""

    instruction: str
    input: str = ""
    """What the instruction is about, where the task keeps it apart."""
    output: str = ""
    """The whole output, y."""
    preceding_sentences: str = ""
    """What of the output stands before the segment."""
    segment: str = ""
    """The sentence of the output that is judged, y_t; all of it where there is but one."""
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
"""What each field of an instance is called in a prompt."""

OPTIONAL = frozenset({"input", "preceding_sentences"})
"""Fields that a prompt leaves out where an instance lacks them; without others it is not made."""


SEPARATOR = "\n\n##\n"
"""What stands between the parts of a prompt."""


class Demonstration(NamedTuple):
    """An instance with its judgement."""

    instance: Instance
    label: str
    explanation: str


class Judgement(NamedTuple):
    """What an answer says."""

    label: str
    """As the aspect's table spells it."""
    token: str
    """The reflection token that the label stands for."""
    explanation: str
    """Empty where the model gave none."""


@dataclass(frozen=True, eq=False)
class Aspect:
    """One of the paper's tables: what is asked about an instance, and what may be answered."""

    group: str
    """Name of the reflection group."""
    instructions: str
    fields: tuple[str, ...]
    """Of an :class:`Instance`, in the order of the demonstrations."""
    verdict: str
    """What the label stands after."""
    choices: Mapping[str, str]
    """Reflection tokens by label."""
    demonstrations: tuple[Demonstration, ...]

    def lacks(self, instance: Instance) -> list[str]:
        """The fields without which nothing can be asked about ``instance``."""
        needed = [field for field in self.fields if field not in OPTIONAL]
        return [field for field in needed if not getattr(instance, field).strip()]

    def prompt(self, instance: Instance) -> str:
        """Instructions, demonstrations, and ``instance`` up to where the label belongs.

        Raises:
            ValueError: the instance lacks a field that cannot be left out.
        """
        if lacking := self.lacks(instance):
            raise ValueError(f"{self.group} is judged by {', '.join(lacking)}, which is absent")
        return f"{self.opening}{SEPARATOR}{self._asked(instance)}"

    @cached_property
    def opening(self) -> str:
        """Instructions and demonstrations: what all prompts begin with."""
        shown = [
            f"{self._asked(demo.instance)} {demo.label}\nExplanation: {demo.explanation}"
            for demo in self.demonstrations
        ]
        return SEPARATOR.join([self.instructions, *shown])

    def read(self, answer: str) -> Judgement | None:
        """The judgement that ``answer`` opens with; None where it keeps to no form of the tables.

        Upper and lower case, brackets, emphasis, the heading before the label and the explanation
        after it may vary. Any other label, or two of them, is none.
        """
        found = self.labels.find(answer)
        if not found:
            return None
        explanation = _EXPLANATION.sub("", answer[found.end :], count=1).split("\n##")[0]
        return Judgement(found.label, self.choices[found.label], explanation.strip())

    @cached_property
    def labels(self) -> Labels:
        """The labels of :attr:`choices`, as an answer gives them."""
        return Labels(tuple(self.choices), (*_VERDICTS, self.verdict.rstrip(":?").lower()))

    def _asked(self, instance: Instance) -> str:
        return f"{fields_text(instance, self.fields)}\n{self.verdict}"


def fields_text(instance: Instance, fields: Sequence[str], **headings: str) -> str:
    """One field of ``instance`` a paragraph, each after its heading; absent ones are left out.

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


_VERDICTS = ("need retrieval", "rating", "score", "perceived utility")
_EXPLANATION = re.compile(r"\A[\s*`.:]*(?:explanation\b[\s*`:]*)?", re.IGNORECASE)
