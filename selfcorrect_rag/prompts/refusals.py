"""The sentence that prompts ask for where documents do not hold the answer."""

import re

REFUSAL = "The documents do not say."
"""The refusal of this package's own models, prompts and graphs."""


def is_refusal(text: str) -> bool:
    """Return whether ``text`` is :data:`REFUSAL`, apart from case, punctuation and marks."""
    return _words(text[:200]) == _words(REFUSAL) and len(text) <= 200


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.casefold())
