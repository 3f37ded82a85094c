"""Numbers, dates and measures, as they are written in encyclopedias."""

from nano_training.names import Names, lists


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
