"""Fresh words and names, from lists and from syllables.

Words come from `templates/names.toml` and `templates/words.txt` or are put together from syllables.
A name is *held out* when its CRC-32 is a multiple of ten; held-out names never appear as the
subject of a training row and are the only subjects in the evaluation.
"""

import random
import tomllib
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
TEMPLATES = Path(__file__).parent / "templates"

ONSETS = (
    "b c d f g h j k l m n p r s t v w z br ch cl cr dr fl gr kl kr ph pl pr qu sh sk sl st th tr"
)
SYLLABLES: tuple[tuple[str, str, str], ...] = (
    (ONSETS, "a e i o u ae ai ea ia io ou oa y au", "n r l s m t k nd rn th x sk rt sh ng ck v d"),
    ("b d g k l m n p r s t v z č š ž dr", "a e i o u a e i o", "ć č n k r š v j vić nić nov"),
    ("b d f g h j k l m n r s t v sk st", "a e i o u å ä ö ø æ y", "n r l s g rk nd lund sson sen"),
    ("b c ch d g l m n p qu r s t v ll rr", "a e i o u á é í ó ú", "n r s l z ñ z nte rra ndo"),
    ("b c d f g h k l m n p r s t y ş ç", "a e i ı o ö u ü", "n r l k m t ğ ş y z lı cı"),
    ("b ch d f g j l m n p r s t v", "a e é è i o u ou eau ai oi ê", "n r t s l x nt rd lle gne ç"),
    ("b d g h k l m n r s t y w j sh ch ts ky ry", "a i u e o a o ei ou ao ia", "n n ng h k"),
    ("b d k l m n ng p r s t w z mb nd dl gw x", "a e i o u a e i o u", "la ni ma ba tu m n wa"),
    ("b c d g j k l m n p r s t w z ł sz cz", "a e i o u ó ą ę y", "ń ś ź ć ski wicz cki n k r"),
)
"""Styles of syllable: onsets, vowels and endings, each separated by spaces."""

SCRIPTS = (
    (0x0430, 0x044F),
    (0x03B1, 0x03C9),
    (0x0627, 0x064A),
    (0x05D0, 0x05EA),
    (0x4E00, 0x4FFF),
    (0x30A2, 0x30F3),
    (0x0915, 0x0939),
    (0xAC00, 0xACFF),
)
"""Ranges of Unicode letters for names in other scripts."""


def is_held_out(name: str) -> bool:
    """Whether `name` is kept out of training (one name in ten)."""
    return zlib.crc32(name.lower().encode()) % 10 == 0


@cache
def lists() -> dict[str, tuple[str, ...]]:
    """Every word list by name."""
    text = (TEMPLATES / "names.toml").read_text(encoding="utf-8")
    table = {
        key: tuple(" ".join(item.split()) for item in value.split(","))
        for key, value in tomllib.loads(text).items()
    }
    return table | {"word": tuple((TEMPLATES / "words.txt").read_text(encoding="utf-8").split())}


def capitalise(text: str) -> str:
    """`text` with its first letter, and no other, in upper case."""
    return text[:1].upper() + text[1:]


class Names:
    """A random stream of words that look like names."""

    def __init__(self, seed: int | str, held_out: bool = False) -> None:
        """`seed` fixes the stream; `held_out` asks for held-out names instead of training names."""
        self.random = random.Random(seed)
        self.held_out = held_out

    def choice(self, items: Sequence[T]) -> T:
        """One of `items`."""
        return items[int(self.random.random() * len(items))]

    def chance(self, probability: float) -> bool:
        """True with `probability`."""
        return self.random.random() < probability

    def coin(self) -> str:
        """A new capitalised word in one of several spelling styles."""
        while True:
            roll = self.random.random()
            if roll < 0.12:
                words = [self.choice(lists()["word"]) for _ in range(2)]
                word = (
                    words[0][: self.random.randint(2, 5)] + words[1][-self.random.randint(1, 5) :]
                )
            elif roll < 0.2:
                letters = "abcdefghijklmnopqrstuvwxyz"
                word = "".join(self.choice(letters) for _ in range(self.random.randint(3, 8)))
            else:
                style = SYLLABLES[0] if roll < 0.55 else self.choice(SYLLABLES[1:])
                onset, vowel, coda = (part.split(" ") for part in style)
                word = "".join(
                    self.choice(onset) + self.choice(vowel)
                    for _ in range(self.random.randint(1, 3))
                ) + (self.choice(coda) if self.chance(0.7) else "")
            if 3 < len(word) < 14 and is_held_out(word) == self.held_out:
                return capitalise(word)

    def alike(self, name: str) -> str:
        """A name that is easily mistaken for `name`: one word of it, or its ending, differs."""
        words = name.split(" ")
        spots = [i for i, word in enumerate(words) if word[0].isupper() or word[0].isdigit()]
        spot = self.choice(spots or range(len(words)))
        word = words[spot]
        if word[0].isdigit():
            digits = [self.choice("0123456789") if c.isdigit() else c for c in word]
            words[spot] = "".join(digits)
        elif len(words) == 1 and len(word) > 5 and self.chance(0.4):
            words[spot] = word[: len(word) // 2] + self.coin().lower()[:4]
        elif word.lower() in lists()["word"]:
            words[spot] = capitalise(self.choice(lists()["word"]))
        elif spot == 0 and len(words) > 1:
            words[spot] = self.choice(lists()["first"]) if self.chance(0.6) else self.coin()
        else:
            words[spot] = self._surname()
        return " ".join(words)

    def _surname(self) -> str:
        return self.choice(lists()["last"]) if self.chance(0.3) else self.coin()
