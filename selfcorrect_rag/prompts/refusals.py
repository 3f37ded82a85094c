"""The fixed sentences that decline to answer."""

import re

REFUSAL = "The documents do not say."
"""The refusal of this package's own models, prompts and graphs."""
NOT_ENGLISH = "I cannot answer: I read questions in English only."
NO_DOCUMENTS = "I cannot answer this: I answer from documents alone."
"""Refusals of the embedded reader."""


def is_refusal(text: str) -> bool:
    """Return whether ``text`` is a fixed refusal, apart from case, punctuation and marks."""
    refusals = map(_words, (REFUSAL, NOT_ENGLISH, NO_DOCUMENTS))
    return len(text) <= 200 and _words(text) in refusals


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.casefold())
