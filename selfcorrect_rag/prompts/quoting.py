"""Quotes untrusted text in prompts, so that none of it becomes a control token or a tag.

Servers and tokenizers turn marks such as ``<|im_end|>`` or ``[INST]`` into control tokens anywhere
in a text, and a ``</document>`` in a passage seems to end it. :func:`quoted` replaces a mark's
first character by a look-alike; every prompt applies it once to untrusted text, as the last step.
Pure Python, in time linear in the text.
"""

import re
import unicodedata
from collections.abc import Mapping

from selfcorrect_rag.prompts.tables import entries
from selfcorrect_rag.reflection import CONTROL_TOKENS

FAMILIES: Mapping[str, tuple[str, ...]] = {
    family: tuple(tokens.split()) for family, tokens in entries("special_tokens").items()
}
"""Special tokens of the common chat templates, by model family. A number in a token stands for any
number. ``<|name|>`` is a mark whatever its name."""

LOOK_ALIKES: Mapping[str, str] = {"<": "\u2039", ">": "\u203a", "[": "\u2045"}
"""Replacements of a mark's first character, which no Unicode normalisation undoes."""

OPENINGS = "<\uff1c\ufe64\u226e>\uff1e\ufe65\u226f[\uff3b\ufe47"
"""Every character that a tokenizer may normalise to the first one of a mark."""


def quoted(text: str) -> str:
    """Return ``text`` with a look-alike in place of the first character of every mark.

    Marks are those of :data:`FAMILIES`, reflection tokens, and ``<document`` and ``<paragraph>``,
    which prompts use themselves; also in another case, in other forms of their letters, and with
    invisible characters inside, since tokenizers may normalise. Length and all other characters are
    unchanged. Idempotent.
    """
    if not _OPENING.search(text):
        return text
    opened = [found.start() for found in _POSSIBLE.finditer(_folded(text)) if _is_mark(found)]
    if not opened:
        return text
    characters = list(text)
    places = [place for place, character in enumerate(text) for _ in _fold(character)]
    for place in map(places.__getitem__, opened):
        characters[place] = LOOK_ALIKES[_fold(characters[place])]
    return "".join(characters)


_OPENING = re.compile(f"[{re.escape(OPENINGS)}]")
# Possible marks in folded text. Each alternative ends where the next one may begin, so that each
# character is scanned only a few times.
_POSSIBLE = re.compile(
    r"<(?=\s*+/?\s*+document\b)|<(?=(?P<angle>[^<>]{1,64}>))|<(?=(?P<double><[^<>]{1,16}>>))"
    r"|\[(?=(?P<square>[^\[\]]{1,64}\]))|>(?=(?P<reversed>>[^<>]{1,32}<<))"
)
_BARS = re.compile(r"<\|[^\s<>]+\|>")
_NUMBER = re.compile(r"\d+")
_SPACE = re.compile(r"\s+")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f]")
_INVISIBLE = "\ufffd\u115f\u1160\u3164\uffa0\u2800"


def _is_mark(found: re.Match[str]) -> bool:
    if found.lastgroup is None:  # <document
        return True
    name = _SPACE.sub(" ", _NUMBER.sub("0", found[0] + found[found.lastgroup]))
    is_own = name.replace(" ", "") in _OWN
    return is_own or name in _TEMPLATES or bool(_BARS.fullmatch(name))


def _folded(text: str) -> str:
    """Return the text under the strongest normalisation of any tokenizer."""
    if text.isascii() and not _CONTROLS.search(text):
        return text.lower()
    return "".join(map(_fold, text))


class _Folds(dict[str, str]):
    """Characters without invisible ones, case and accents, and in one form."""

    def __missing__(self, character: str) -> str:
        self[character] = folded = "".join(
            " " if part == "\u2581" else part
            for part in unicodedata.normalize("NFKD", character).casefold()
            if part in "\t\n\r" or not (unicodedata.category(part)[0] in "CM" or part in _INVISIBLE)
        )
        return folded


_fold = _Folds().__getitem__
_TEMPLATES = frozenset(
    _NUMBER.sub("0", _folded(token)) for tokens in FAMILIES.values() for token in tokens
)


_OWN = frozenset(_SPACE.sub("", _NUMBER.sub("0", _folded(token))) for token in CONTROL_TOKENS)
