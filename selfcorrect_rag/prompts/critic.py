"""The prompts for reflection tokens (Self-RAG, appendix D, tables 8 to 12), word for word.

They label the critic's training data, and ask a model that has no reflection tokens. The judged
texts are untrusted: each stands in a separate field, and no text can open another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from selfcorrect_rag.prompts.parts import TABLES, quoted
from selfcorrect_rag.prompts.reading import LabelParser
from selfcorrect_rag.reflection import (
    CONTINUE,
    IRRELEVANT,
    NO_RETRIEVAL,
    RELEVANT,
    RETRIEVAL,
    TOKENS,
    UTILITY,
    Group,
)

SEPARATOR = "\n\n##\n"
"""The separator of a prompt's parts."""


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


@dataclass(frozen=True, eq=False)
class CritiquePrompt:
    """A prompt for the tokens of one reflection group."""

    group: str
    prefix: str
    """Instructions and demonstrations, which all its prompts begin with."""
    fields: tuple[str, ...]
    """Fields of an :class:`Instance`, in the order of the demonstrations."""
    label_heading: str
    """The heading of the label, such as ``Rating:``."""
    tokens_by_label: Mapping[str, str]

    @property
    def instructions(self) -> str:
        """The instructions without the demonstrations."""
        return self.prefix.split(SEPARATOR)[0]

    @property
    def label_name(self) -> str:
        """:attr:`label_heading` without punctuation: how a line with the label begins."""
        return self.label_heading.rstrip(":?")

    def label_parser(self, name: str = "") -> LabelParser:
        """Return the parser of a label, on the line of ``name``, or behind any table's heading."""
        headings = ("need retrieval", "rating", "score", "perceived utility")
        return LabelParser(tuple(self.tokens_by_label), headings, name)

    def lacks(self, instance: Instance) -> list[str]:
        """Return the required fields that ``instance`` lacks."""
        needed = (field for field in self.fields if field not in ("input", "preceding_sentences"))
        return [field for field in needed if not getattr(instance, field).strip()]

    def prompt(self, instance: Instance) -> str:
        """Return instructions, demonstrations, and ``instance`` up to its label; ValueError if it
        lacks a required field."""
        if lacking := self.lacks(instance):
            raise ValueError(f"{self.group} needs the fields {', '.join(lacking)}")
        case = fields_text(instance, self.fields)
        return f"{self.prefix}{SEPARATOR}{case}\n{self.label_heading}"

    def read(self, answer: str) -> str | None:
        """Return the token of the label that ``answer`` begins with; None without one."""
        found = self.label_parser().find(answer)
        return self.tokens_by_label[found.label] if found else None


def fields_text(instance: Instance, fields: Sequence[str], **headings: str) -> str:
    """Return a paragraph with a heading for each field of ``instance`` that is not empty.

    Lines after a field's first are indented, so that no text can open another field, and all
    is quoted. ``headings`` replace those of the paper, which are the fields' names.
    """
    names = {field: field.replace("_", " ").capitalize() for field in fields}
    names |= {"segment": "Output", **headings}
    texts = {field: getattr(instance, field).strip().splitlines() for field in fields}
    return "\n".join(
        f"{names[field]}: " + quoted("\n  ".join(lines)) for field, lines in texts.items() if lines
    )


RETRIEVE = CritiquePrompt(
    Group.RETRIEVE,
    TABLES["self_rag_8_retrieve"],
    ("instruction", "input"),
    "Need retrieval?",
    {"[Yes]": RETRIEVAL, "[No]": NO_RETRIEVAL},
)
"""Table 8: whether evidence helps, from the instruction alone."""
RETRIEVE_MORE = CritiquePrompt(
    Group.RETRIEVE,
    TABLES["self_rag_9_retrieve_more"],
    ("instruction", "input", "preceding_sentences", "evidence", "segment"),
    "Rating:",
    {token: token for token in (CONTINUE, NO_RETRIEVAL, RETRIEVAL)},
)
"""Table 9: whether a sentence needs other evidence, this evidence, or none."""
ISREL = CritiquePrompt(
    Group.ISREL,
    TABLES["self_rag_10_isrel"],
    ("instruction", "input", "preceding_sentences", "evidence"),
    "Rating:",
    {token: token for token in (RELEVANT, IRRELEVANT)},
)
"""Table 10: whether evidence is useful for the instruction."""
ISSUP = CritiquePrompt(
    Group.ISSUP,
    TABLES["self_rag_11_issup"],
    ("instruction", "input", "preceding_sentences", "segment", "evidence"),
    "Score:",
    {token: token for token in TOKENS[Group.ISSUP]},
)
"""Table 11: how much of a sentence its evidence supports."""
ISUSE = CritiquePrompt(
    Group.ISUSE,
    TABLES["self_rag_12_isuse"],
    ("instruction", "input", "output"),
    "Perceived utility:",
    {str(grade): token for grade, token in enumerate(UTILITY, start=1)},
)
"""Table 12: how useful the whole output looks, from 1 to 5, whether true or not."""

CRITIQUE_PROMPTS: Mapping[str, CritiquePrompt] = {
    "retrieval": RETRIEVE,
    "multi_retrieval": RETRIEVE_MORE,
    "relevance": ISREL,
    "groundness": ISSUP,
    "utility": ISUSE,
}
"""The prompts by their names in the official data."""

GROUP_PROMPTS = {prompt.group: prompt for prompt in (RETRIEVE, ISREL, ISSUP, ISUSE)}
"""The prompt for each group's token; Retrieve's is table 8, for the first segment."""
