"""A run as a page, and the local page: ask, watch, approve searches, see why, weigh differently."""

import unicodedata

MAX_CHARACTERS = 20_000
"""Maximum characters of a text on a page; the rest is cut, and the page says so."""
_KEPT = "\n\r\t\u200c\u200d"
"""Line breaks, and the joiners that some scripts need between letters."""


def visible(text: str, most: int = MAX_CHARACTERS) -> str:
    """Return a text bounded, with characters that reorder, hide or control shown by their code."""
    shown = "".join(
        letter
        if letter.isprintable() or letter in _KEPT or unicodedata.category(letter) == "Zs"
        else f"⟨U+{ord(letter):04X}⟩"
        for letter in text[:most]
    )
    cut = len(text) - most
    return f"{shown}… ({cut:,} characters more)" if cut > 0 else shown
