"""A made-up world: fresh names and values for every example, so that nothing can be memorised."""

from collections.abc import Callable

from nano_training.names import SCRIPTS, capitalise, is_held_out, lists
from nano_training.quantities import Quantities

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
