"""The probability of each label, from the log-probabilities of an answer's tokens.

Labels may be split into any tokens, and share their first ones. So at each position of the answer
where labels differ, an alternative's probability goes to the labels that can still follow. With one
such label, it gets all; with several, their shares are known only along the answer itself. Other
alternatives are left out: the caller normalises the rest, as if their mass were divided
proportionally.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from selfcorrect_rag.prompts.labels import LabelMatch, normalized

TOP_LOGPROBS = 20
"""``top_logprobs`` of a request, the most that OpenAI and vLLM allow."""


class Token(NamedTuple):
    """A token of an answer, with its alternatives."""

    text: str
    logprob: float
    """Natural logarithm."""
    alternatives: Mapping[str, float]
    """The provider's top log-probabilities, by text."""


def tokens_of(message: Any) -> list[Token] | None:
    """The tokens of an answer with log-probabilities in OpenAI's format; None without any.

    They are in ``response_metadata["logprobs"]["content"]``.
    """
    logprobs = (getattr(message, "response_metadata", None) or {}).get("logprobs")
    if not isinstance(logprobs, Mapping) or not isinstance(logprobs.get("content"), list):
        return None
    return [
        Token(
            token["token"],
            token["logprob"],
            {given["token"]: given["logprob"] for given in token.get("top_logprobs") or ()},
        )
        for token in logprobs["content"]
    ]


def label_probabilities(
    labels: Sequence[str], tokens: Sequence[Token] | None, text: str, found: LabelMatch
) -> dict[str, float] | None:
    """The probability of each of ``labels`` at the place of ``found``, by label.

    Args:
        labels: the possible labels.
        tokens: the whole answer's; None without log-probabilities.
        text: the answer's text.
        found: the label that was read, with its position in ``text``.

    Returns:
        Values in [0, 1] whose sum is at most 1; 0 for a label that is in no alternatives. None
        without tokens, or if the label that was found has no probability.
    """
    # Tokens before or after the text are reasoning, or the end of a turn.
    before = "".join(token.text for token in tokens).find(text) if tokens else -1
    if not tokens or before < 0:
        return None
    start, end = found.start + before, found.end + before
    mass = dict.fromkeys(labels, 0.0)
    place, path, written = 0, 1.0, ""
    for token in tokens:
        begin, place = place, place + len(token.text)
        if place <= start:
            continue
        # Text before the label in its first token is the same for all labels.
        shared = token.text[: max(start - begin, 0)]
        for other, logprob in {**token.alternatives, token.text: token.logprob}.items():
            following = _following(labels, written + normalized(other[len(shared) :]))
            if other.startswith(shared) and len(following) == 1:
                mass[following[0]] += path * math.exp(min(logprob, 0.0))
        written += normalized(token.text[len(shared) :])
        if _following(labels, written) == [found.label]:
            break
        path *= math.exp(min(token.logprob, 0.0))
        if begin >= end:  # the label is a prefix of another, and has ended
            mass[found.label] += path
            break
    else:
        mass[found.label] += path
    total = math.fsum(mass.values())
    if not mass[found.label] > 0.0:
        return None
    return mass if total <= 1.0 else {label: p / total for label, p in mass.items()}


def _following(labels: Sequence[str], written: str) -> list[str]:
    """The labels that ``written`` is a prefix of, or completes."""
    return [label for label in labels if _leads(written, normalized(label))]


def _leads(written: str, label: str) -> bool:
    if label.startswith(written):
        return True
    # A token may go beyond the label, but not within a word: "Nobody" is not "No".
    return written.startswith(label) and not written[len(label)].isalnum()
