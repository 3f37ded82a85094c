"""How the papers' scripts prepare texts, and what an outcome states."""

import re
import string
from collections.abc import Iterable, Mapping
from typing import Any

from selfcorrect_rag.evaluation.rows import Outcome

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_MARK = re.compile(r" ?\[\d+")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """SQuAD's normalisation: lower case, no ASCII punctuation, no articles, single spaces.

    Self-RAG, ALCE and InstructRAG compare so too. Trap: an answer of articles or punctuation alone
    becomes empty, the label "A" of a closed set among them.
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def any_within(answers: Iterable[str], text: str) -> bool:
    """Whether any normalised answer is a substring of the normalised text (ALCE, InstructRAG).

    Trap: without borders of words, "US" is in "because"; an empty answer is in every text.
    """
    whole = normalised(text)
    return any(normalised(answer) in whole for answer in answers)


def first_line(text: str) -> str:
    """What ALCE's script reads of an output. Trap: all other lines are lost."""
    return text.strip().split("\n")[0].replace("<|im_end|>", "")


def without_marks(text: str) -> str:
    """ALCE's removal of citations such as ``[1]``. Trap: every ``]`` and `` |`` goes too."""
    return _MARK.sub("", text).replace(" |", "").replace("]", "")


def output(outcome: Outcome) -> str:
    """The answer as a script reads it, with its citations."""
    return outcome.cited_answer or outcome.answer


def stated(outcome: Outcome) -> str:
    """The answer without citations; empty where the run failed or refused, which states nothing."""
    return "" if outcome.error or outcome.refused else outcome.answer


def text_of(document: Mapping[str, Any]) -> str:
    """A cited text as ALCE gives it to the entailment model: title and text on two lines."""
    return f"Title: {document.get('title') or ''}\n{document.get('text') or ''}"
