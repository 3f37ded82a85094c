"""Parses the label that a model's answer begins with."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class LabelMatch(NamedTuple):
    """A label found at the beginning of a text."""

    label: str
    """The label in the parser's spelling."""
    start: int
    """Start in the text: after a heading, before spaces and brackets."""
    end: int
    """End in the text, after the label."""


@dataclass(frozen=True)
class LabelParser:
    """Finds one of a few labels, with or without brackets, such as ``[Relevant]`` or ``yes``."""

    labels: tuple[str, ...]
    headings: tuple[str, ...] = ()
    """Words that may precede a label."""

    def find(self, text: str) -> LabelMatch | None:
        """Return the label that ``text`` begins with; None without one.

        Upper and lower case, brackets, emphasis, a heading before the label and an explanation
        after it may vary. Any other label, or two labels, give None.
        """
        found = self._pattern.match(text)
        if not found:
            return None
        label = self._spelling[normalized(found["bracketed"] or found["bare"])]
        return LabelMatch(label, max(found.end("heading"), 0), found.end())

    @cached_property
    def _spelling(self) -> dict[str, str]:
        return {normalized(label): label for label in self.labels}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        labels = "|".join(
            r"\s*".join(map(re.escape, label.strip("[]").split())) for label in self.labels
        )
        headings = "|".join(r"\s+".join(map(re.escape, h.split())) for h in self.headings)
        return re.compile(
            (rf"(?P<heading>[\s*`]*(?:{headings})[*`:?]*)?" if headings else "(?P<heading>)")
            + rf"[\s*`:?]*(?:\[\s*(?P<bracketed>{labels})\s*\]"
            r"(?=[\s*`.:]*explanation\b|[^\[\n]*(?:\n|\Z))|"
            rf"(?P<bare>{labels})(?=[*`.]*\s*(?:\n|\Z|[*`]*explanation\b)))",
            re.IGNORECASE,
        )


_DECORATION = re.compile(r"[\s\[\]*`]+")


def normalized(text: str) -> str:
    """Return a label, or its beginning, without case, spaces and brackets, for comparison."""
    return _DECORATION.sub("", text).lower()
