"""The prompts for reflection tokens (Self-RAG, appendix D, tables 8 to 12), word for word.

They label the critic's training data, and ask a model that has no reflection tokens.
"""

from collections.abc import Mapping
from functools import cache

from selfcorrect_rag.prompts.critique import CritiquePrompt
from selfcorrect_rag.prompts.tables import table
from selfcorrect_rag.reflection import (
    CONTINUE,
    FULLY_SUPPORTED,
    IRRELEVANT,
    NO_RETRIEVAL,
    NO_SUPPORT,
    PAPER_GROUPS,
    PARTIALLY_SUPPORTED,
    RELEVANT,
    RETRIEVAL,
    UTILITY,
    Group,
    ReflectionGroup,
    registered_groups,
)

RETRIEVE = CritiquePrompt(
    group=Group.RETRIEVE,
    prefix=table("self_rag_8_retrieve"),
    fields=("instruction", "input"),
    label_heading="Need retrieval?",
    tokens_by_label={"[Yes]": RETRIEVAL, "[No]": NO_RETRIEVAL},
)
"""Table 8: whether evidence helps, from the instruction alone."""

RETRIEVE_MORE = CritiquePrompt(
    group=Group.RETRIEVE,
    prefix=table("self_rag_9_retrieve_more"),
    fields=("instruction", "input", "preceding_sentences", "evidence", "segment"),
    label_heading="Rating:",
    tokens_by_label={token: token for token in (CONTINUE, NO_RETRIEVAL, RETRIEVAL)},
)
"""Table 9: whether a sentence needs other evidence, this evidence, or none."""

ISREL = CritiquePrompt(
    group=Group.ISREL,
    prefix=table("self_rag_10_isrel"),
    fields=("instruction", "input", "preceding_sentences", "evidence"),
    label_heading="Rating:",
    tokens_by_label={token: token for token in (RELEVANT, IRRELEVANT)},
)
"""Table 10: whether evidence is useful for the instruction."""

ISSUP = CritiquePrompt(
    group=Group.ISSUP,
    prefix=table("self_rag_11_issup"),
    fields=("instruction", "input", "preceding_sentences", "segment", "evidence"),
    label_heading="Score:",
    tokens_by_label={token: token for token in (FULLY_SUPPORTED, PARTIALLY_SUPPORTED, NO_SUPPORT)},
)
"""Table 11: how much of a sentence its evidence supports."""

ISUSE = CritiquePrompt(
    group=Group.ISUSE,
    prefix=table("self_rag_12_isuse"),
    fields=("instruction", "input", "output"),
    label_heading="Perceived utility:",
    tokens_by_label={str(grade): token for grade, token in enumerate(UTILITY, start=1)},
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

_OF_GROUP = {Group.RETRIEVE: RETRIEVE, Group.ISREL: ISREL, Group.ISSUP: ISSUP, Group.ISUSE: ISUSE}
_FIELDS = {
    "passage": ("instruction", "preceding_sentences", "evidence", "segment"),
    "segment": ("instruction", "preceding_sentences", "segment"),
    "answer": ("instruction", "output"),
}


def group_prompt(group: ReflectionGroup) -> CritiquePrompt | None:
    """Return the prompt for a group's token; None for a registered group without an instruction.

    For Retrieve it is table 8, the decision before the first segment.
    """
    if group.name in PAPER_GROUPS:
        return _OF_GROUP[Group(group.name)]
    return _registered(group) if group.instruction else None


@cache
def _registered(group: ReflectionGroup) -> CritiquePrompt:
    labels = {token: token for token in group.tokens}
    fields = _FIELDS[group.judges]
    return CritiquePrompt(group.name, group.instruction, fields, f"{group.name}:", labels)


def registered_prompts() -> list[tuple[ReflectionGroup, CritiquePrompt]]:
    """Return the registered groups that a chat model can be asked for, with their prompts."""
    prompts = ((group, group_prompt(group)) for group in registered_groups())
    return [(group, prompt) for group, prompt in prompts if prompt]


def critique_prompts() -> dict[str, CritiquePrompt]:
    """Return the paper's prompts by name, and those of registered groups by group."""
    return {**CRITIQUE_PROMPTS, **{group.name: prompt for group, prompt in registered_prompts()}}
