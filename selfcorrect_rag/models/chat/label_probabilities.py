"""How probable each of a few labels is, from the log-probabilities of the tokens of an answer.

A label may be cut into any tokens, and labels share their first ones. So each position of the
answer at which they part gives each alternative to the labels that can still follow: one label
takes its mass; several share it unseen, and only along the answer itself is it known how. An
alternative that leads to no label, or to several at a place that the answer does not pass, is left
out: what remains is for the caller to normalise, as if such mass were shared alike.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from selfcorrect_rag.prompts.labels import Found, plain


class Token(NamedTuple):
    """A piece of an answer, and what could have stood in its place."""

    text: str
    logprob: float
    """Natural logarithm."""
    alternatives: Mapping[str, float]
    """Log-probabilities by text, as many as the provider gives."""


def tokens_of(message: Any) -> list[Token] | None:
    """The tokens of an answer in the form of OpenAI's chat API; None where it has none.

    They stand in ``response_metadata["logprobs"]["content"]``.
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
    labels: Sequence[str], tokens: Sequence[Token], found: Found
) -> dict[str, float] | None:
    """The probability of each of ``labels`` to stand where ``found`` does, by label.

    Args:
        labels: what may stand there.
        tokens: of the whole answer.
        found: a label, and where it stands in the joined text of ``tokens``.

    Returns:
        Values in [0, 1] whose sum is at most 1; 0 for a label that is among no alternatives. None
        where the label that was found has no probability, which no honest provider gives.
    """
    mass = dict.fromkeys(labels, 0.0)
    place, path, written = 0, 1.0, ""
    for token in tokens:
        begin, place = place, place + len(token.text)
        if place <= found.start:
            continue
        # Text before the label that its first token brings along is the same for all of them.
        shared = token.text[: max(found.start - begin, 0)]
        for text, logprob in {**token.alternatives, token.text: token.logprob}.items():
            following = _following(labels, written + plain(text[len(shared) :]))
            if text.startswith(shared) and len(following) == 1:
                mass[following[0]] += path * math.exp(min(logprob, 0.0))
        written += plain(token.text[len(shared) :])
        if _following(labels, written) == [found.label]:
            break
        path *= math.exp(min(token.logprob, 0.0))
        if begin >= found.end:  # the label is one with which another begins, and has ended
            mass[found.label] += path
            break
    else:
        mass[found.label] += path
    total = math.fsum(mass.values())
    if not mass[found.label] > 0.0:
        return None
    return mass if total <= 1.0 else {label: p / total for label, p in mass.items()}


def _following(labels: Sequence[str], written: str) -> list[str]:
    """The labels that ``written`` begins or completes."""
    return [label for label in labels if _leads(written, plain(label))]


def _leads(written: str, label: str) -> bool:
    if label.startswith(written):
        return True
    # A piece may go beyond the label, but not within a word: "Nobody" is no "No".
    return written.startswith(label) and not written[len(label)].isalnum()
