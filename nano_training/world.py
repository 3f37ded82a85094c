"""A made-up world: fresh names and values for every example, so that nothing can be memorised.

Names are word lists, invented words and their held-out half; quantities are written as in
encyclopedias.
"""

import random
import tomllib
import zlib
from collections.abc import Callable, Sequence
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


class Quantities(Names):
    """Adds to names what is counted; years lie around that of the subject at hand."""

    def __init__(self, seed: int | str, held_out: bool = False) -> None:
        """`seed` fixes the stream; `held_out` asks for held-out names instead of training names."""
        super().__init__(seed, held_out)
        self.year_of_reference = 1900

    def number(self, most: int, least: int = 1) -> str:
        """A whole number as digits."""
        return str(self.random.randint(least, most))

    def _number(self) -> str:
        return self.choice(lists()["number_word"]) if self.chance(0.3) else self.number(120)

    def _amount(self) -> str:
        return self.choice((f"{self.random.randint(1000, 999999):,}", self.number(999)))

    def _year(self) -> str:
        return str(self.year_of_reference + self.random.randint(-15, 15))

    def _later_year(self) -> str:
        return str(self.year_of_reference + self.random.randint(20, 80))

    def _day(self, year: str) -> str:
        day, month = self.random.randint(1, 28), self.choice(lists()["month"])
        return f"{day} {month} {year}" if self.chance(0.6) else f"{month} {day}, {year}"

    def _date(self) -> str:
        return self._day(self._year())

    def _later_date(self) -> str:
        return self._day(self._later_year())

    def _length(self) -> str:
        return f"{self._amount()} {self.choice(('km', 'kilometres', 'miles'))}"

    def _height(self) -> str:
        amount = f"{self.random.randint(30, 8900):,}" if self.chance(0.5) else self.number(8900, 30)
        return f"{amount} {self.choice(('m', 'metres', 'meters', 'feet'))}"

    def _population(self) -> str:
        if self.chance(0.3):
            return f"{self.number(99)}.{self.number(9)} million"
        return f"{self.random.randint(100, 9999999):,}"


PARTICLES = "de ,van ,von ,van der ,de la ,al-,O',Mc,bin ,da ,di ,Le ,ter ,Abu "
COMPANIES = "Corporation,Company,Inc.,Group,& Co.,Motors,Press,& Sons,Books"


class World(Quantities):
    """A stream of names and values: `draw("person")`, `draw("river")`, `draw("film_genre")`."""

    def draw(self, kind: str) -> str:
        """A fresh value of `kind`: a method of that name, or the word list, sometimes left open."""
        method: Callable[[], str] | None = getattr(self, f"_{kind}", None)
        if method is not None:
            return method()
        if kind != "word" and self.chance(0.12):
            return self.choice((self.draw("word"), self.coin().lower()))
        return self.choice(lists()[kind])

    def name(self, kind: str) -> str:
        """A name for a subject, on this world's side of the held-out line."""
        while True:
            name = self.draw(kind)
            if is_held_out(name) == self.held_out:
                return name

    def alike_name(self, name: str) -> str:
        """As `alike`, on this world's side of the held-out line."""
        while True:
            other = self.alike(name)
            if other != name and is_held_out(other) == self.held_out:
                return other

    def _person(self) -> str:
        roll = self.random.random()
        first = self.choice(lists()["first"]) if self.chance(0.6) else self.coin()
        last = self._surname()
        if roll < 0.04:
            return self.coin()
        if roll < 0.10:
            first = " ".join(
                self.choice("ABCDEFGHIJKLMNOPRSTVW") + "." for _ in range(1 + (roll < 0.06))
            )
        elif roll < 0.20:
            middle = (
                self.choice("ABCDEFGHJKLMPRSTW") + ".",
                self.choice(lists()["first"]),
                self.coin(),
            )
            first = f"{first} {self.choice(middle)}"
        elif roll < 0.28:
            last = self.choice(PARTICLES.split(",")) + last
        elif roll < 0.33:
            last = f"{last}-{self._surname()}"
        elif roll < 0.36:
            last = f"{last} {self._surname()}"
        elif roll < 0.39:
            return f"{first} {self.choice(('I', 'II', 'III', 'IV', 'of ' + self._place()))}"
        elif roll < 0.41:
            last += self.choice((" Jr.", " III", " Sr."))
        return f"{first} {last}"

    def _place(self) -> str:
        roll = self.random.random()
        if roll < 0.4:
            return self.choice(lists()["place"])
        place = self.coin()
        if roll > 0.86:
            place = (
                self.choice(("New ", "Saint ", "Port ", "Upper ", "North ", "El ", "Bad ")) + place
            )
        elif roll > 0.8:
            place += self.choice(
                (
                    " City",
                    " Springs",
                    "-sur-" + self.coin(),
                    "burg",
                    "ville",
                    "abad",
                    "ton",
                    " Township",
                    " Island",
                    "-" + self.coin(),
                )
            )
        return place

    def _country(self) -> str:
        return self.choice(lists()["country"]) if self.chance(0.6) else self.coin()

    def _region(self) -> str:
        region = self.choice(lists()["region"]) if self.chance(0.6) else self.coin()
        return region + self.choice((" County", " Province")) if self.chance(0.15) else region

    def _title(self) -> str:
        word = [capitalise(self.draw("word")) for _ in range(3)]
        coin, roll = self.coin(), self.random.random()
        if self.held_out and roll < 0.5:
            roll = 0.5 + roll
        patterns = (
            f"The {word[0]} {word[1]}",
            f"{word[0]} {word[1]}",
            f"The {word[0]}",
            word[0],
            f"The {word[0]} of the {word[1]}",
            f"{word[0]} and {word[1]}",
            f"{word[0]} in the {word[1]}",
            f"{word[0]} {word[1]} {word[2]}",
            f"My {word[0]} {word[1]}",
            f"No {word[0]} for {word[1]}",
            f"{word[0]} of {coin}",
            coin,
            f"{coin} {word[0]}",
            f"The {word[0]} of {coin}",
            self._person(),
            f"{word[0]} {self.number(99)}",
            f"{coin} and {self.coin()}",
            f"La {coin}",
            f"{coin}'s {word[0]}",
            f"{word[0]}: The {coin} {word[1]}",
            f"{coin} {self.coin().lower()}",
            f"Der {coin}",
            f"{word[0]}, {coin}!",
            self._surname(),
            f"{coin} ({self.choice(('film', 'song', 'album'))})",
        )
        return patterns[int(roll * len(patterns))]

    def _occupations(self) -> str:
        jobs = [self.draw("occupation") for _ in range(self.choice((1, 1, 1, 2, 2, 3)))]
        return " and ".join(filter(None, (", ".join(jobs[:-1]), jobs[-1])))

    def _job(self) -> str:
        return self.draw("occupation")

    def _script(self) -> str:
        low, high = self.choice(SCRIPTS)
        letters = "".join(
            chr(self.random.randint(low, high)) for _ in range(self.random.randint(3, 9))
        )
        return letters if self.chance(0.6) else f"{letters} {letters[::-1]}"

    def _foreign(self) -> str:
        article = self.choice(("Le", "La", "Il", "El", "Die", "Das", "O", "Les"))
        return f"{article} {self.coin()} {self.coin().lower()}"

    def _river(self) -> str:
        coin = self.coin()
        return self.choice((f"{coin} River", f"River {coin}", f"{coin} Sea", coin))

    def _natural(self) -> str:
        coin = self.coin()
        return self.choice(
            (
                f"Mount {coin}",
                f"{coin} River",
                f"Lake {coin}",
                f"{coin} Falls",
                coin,
                coin,
                f"the {coin} River",
                f"{coin} Island",
                f"the {coin}",
            )
        )

    def _building_name(self) -> str:
        coin = self.choice((self.coin(), self.coin(), self._surname(), self._place()))
        kind = capitalise(self.choice(lists()["building"]))
        return self.choice((f"{coin} {kind}", f"the {coin} {kind}", f"{kind} of {coin}", coin))

    def _university(self) -> str:
        place = self._place()
        return self.choice(
            (f"the University of {place}", f"{place} University", f"{self._surname()} College")
        )

    def _company(self) -> str:
        coin = self._surname()
        ending = COMPANIES.split(",")
        return self.choice((coin, f"{coin} {self.choice(ending)}", f"{coin} & {self._surname()}"))

    def _label(self) -> str:
        return f"{self._surname()} {self.choice(('Records', 'Music', 'Entertainment'))}"

    def _club(self) -> str:
        ending = ("FC", "United", "City", "Rovers", capitalise(self.draw("word")), "SK", "Athletic")
        return f"{self._place()} {self.choice(ending)}"

    def _org(self) -> str:
        return self.choice((self._company, self._club, self._label))()

    def _award(self) -> str:
        word = capitalise(self.draw("word"))
        return self.choice(
            (
                f"{self._surname()} Prize",
                f"{word} Award",
                f"Nobel Prize in {word}",
                f"{self._surname()} Medal",
                f"Order of {self.coin()}",
            )
        )

    def _position(self) -> str:
        office = self.choice(("president", "prime minister", "governor", "bishop", "king", "mayor"))
        return f"{office} of {self._country() if self.chance(0.5) else self._place()}"

    def _feat(self) -> str:
        goal = self.choice((self._natural(), self._country(), self._place()))
        deed = (
            "climb",
            "reach",
            "fly over",
            "walk across",
            "sail around",
            "cross",
            "walk on",
            "swim",
        )
        return f"{self.choice(deed)} {goal}"

    def _discovery(self) -> str:
        word, coin = self.draw("word"), self.coin()
        return self.choice(
            (
                self.choice(lists()["noun"]),
                coin.lower(),
                f"the {coin} effect",
                f"{coin}'s law",
                coin,
                f"{word} {self.draw('word')}",
            )
        )

    def _invention(self) -> str:
        word = self.draw("word")
        return self.choice(
            (
                f"the {self.choice(lists()['tool'])}",
                f"the {word} {self.draw('word')}",
                f"the {self.coin().lower()}",
                f"the {self.coin()} {word}",
                self.coin(),
            )
        )

    def _species(self) -> str:
        coin = self.coin()
        return self.choice(
            (
                f"{coin} {self.coin().lower()}",
                f"the {self.draw('word')} {self.draw('animal')}",
                f"{coin.lower()} {self.draw('animal')}",
                coin,
            )
        )

    def _family(self) -> str:
        return f"{self.coin()}{self.choice(('idae', 'aceae'))}"

    def _symbol(self) -> str:
        return self.coin()[: self.choice((1, 2))]

    def _game(self) -> str:
        word = self.draw("word")
        return self.choice(
            (
                f"{word}ball",
                self.coin().lower(),
                f"{word} {self.draw('sport')}",
                self.choice(lists()["sport"]),
            )
        )

    def _event(self) -> str:
        coin = self.coin()
        return self.choice(
            (
                f"the {self.choice(lists()['conflict'])} of {self._place()}",
                f"the {coin} Cup",
                f"the {coin} {self.choice(lists()['conflict'])}",
                f"the {self._place()} Games",
                f"{coin} {self._place()}",
            )
        )
