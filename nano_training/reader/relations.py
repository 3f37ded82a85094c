"""Questions on one relation of one entity, over real encyclopedic intros.

Rules read what an intro states of its subject (``templates/relations.toml``). Half as many
questions again go to passages that do not answer them: the right page without the fact, a
namesake's page, or the page of another thing of the same kind.
"""

import gzip
import html
import json
import random
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from nano_training.reader.rows import Row

TABLE = Path(__file__).parent.parent / "templates" / "relations.toml"
SOURCE = "relations"
MOST = 700
"""Answerable rows of one relation."""
COPIES, MOST_COPIES = 2, 6
"""Rows of one fact, each worded and cut in its own way; more of a rare relation's facts."""
RARE = 150
"""Rows wanted of every relation."""
FIRST_WORDS = 120

_ABBREVIATED = re.compile(
    r"(?:\b[A-Z]|\b(?:Mr|Mrs|Ms|Dr|St|Sts|Jr|Sr|No|Lt|Col|Gen|Capt|vs|Prof|Rev|Sgt|Vol|Inc|Ltd|Co|Bros"
    r"|feat|ft|Op|op|Maj|Gov|Sen|Rep|Hon|Mt|Ft|ca|lit|approx|fl|[cbdr]))\.$"
)
_BORDER = re.compile(r"(?<=[.!?])[\"”’)\]]* (?=[\"“‘'(]?[A-Z0-9À-Ž])")
_COPULA = re.compile(r" (?:is|was|are|were) (?:an?|the|one of the)? ?")
_PHRASE_END = re.compile(
    r"[.;:]| (?:who|whose|which|that|where|known|best|starring|directed|written|produced|by|from|in"
    r"|of|at|for|with|on|based|released|set|about|located|recorded|created|to|published"
    r"|and (?:was|is|the))\b"
)
_SUBJECT = (
    r"[\"“]?(?:(?:He|She|It|They|His|Her|Its|Their)\b"
    r"|(?:This|The) (?:\w+ ){0,2}?(?:film|movie|picture|song|single|track|album|record|EP|novel"
    r"|book|play|story|magazine|series|show|band|group|duo|company|firm|label|school|university|college|club"
    r"|team|game|town|village|city|county|district|municipality|island|lake|river|stream|mountain|peak"
    r"|volcano|building|church|castle|bridge|museum|stadium|airport|station|theatre|species|genus|plant"
    r"|battle|siege|screenplay|script|soundtrack|score|music|cast|population|capital|flowers|leaves"
    r"|cinematography|(?:official )?language|currency|headquarters)s?\b"
    r"|(?:In|On|At|After|During|From|Before|Born|Since|By)\b[^,.;]*, (?:he|she|it|they)\b)"
)
_DATED = re.compile(
    r"^[^.(]{0,90}\([^()]*(?:\bborn\b|–|-|\bdied|\bc\.)[^()]*\d{3,4}|^[^.(]{0,90}\([^()]*\d{3,4} ?–"
)


class Page(NamedTuple):
    """The intro of one entity."""

    title: str
    name: str
    """The title without what tells namesakes apart."""
    text: str
    kind: str
    noun: str
    """What the intro calls the entity."""
    sentences: tuple[tuple[int, int], ...]


class Relation(NamedTuple):
    """How a relation is stated and asked."""

    name: str
    kinds: frozenset[str]
    find: tuple[re.Pattern[str], ...]
    cue: re.Pattern[str]
    unless: re.Pattern[str] | None
    ask: tuple[str, ...]


class Fact(NamedTuple):
    """Where a page states a relation."""

    page: Page
    relation: Relation
    sentence: int
    start: int
    end: int

    @property
    def answer(self) -> str:
        """The value as it stands in the page."""
        return self.page.text[self.start : self.end]


def relation_rows(data: Path, *, seed: int = 0) -> list[Row]:
    """Questions on the pages in ``data``, answerable or not, shuffled."""
    rng = random.Random(seed)
    facts = [fact for page in pages(data) for fact in stated(page)]
    rows = [*_answerable(facts, rng), *_silent(facts, rng), *_elsewhere(facts, rng)]
    rng.shuffle(rows)
    return rows


@cache
def relations() -> tuple[Relation, ...]:
    """The table of relations."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    parts: dict[str, str] = table["parts"]

    def compiled(pattern: str) -> re.Pattern[str]:
        pattern = re.sub(r"<([A-Z]+)>", r"(?P<answer>{\1})", pattern)
        while re.search(r"\{[A-Z]+\}", pattern):
            pattern = re.sub(r"\{([A-Z]+)\}", lambda match: f"(?:{parts[match[1]]})", pattern)
        return re.compile(pattern)

    return tuple(
        Relation(
            name,
            frozenset(entry["kinds"]),
            tuple(map(compiled, entry["find"])),
            compiled(entry["cue"]),
            compiled(entry["unless"]) if "unless" in entry else None,
            tuple(entry["ask"]),
        )
        for name, entry in table["relation"].items()
    )


@cache
def _kinds() -> dict[str, re.Pattern[str]]:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {kind: re.compile(pattern) for kind, pattern in table["kinds"].items()}


def pages(data: Path) -> list[Page]:
    """The intros in ``data``, each once."""
    read = (page_of(title, text) for title, text in _texts(data))
    return list({(page.title, page.text): page for page in read if page}.values())


def _texts(data: Path) -> Iterator[tuple[str, str]]:
    for row in json.loads((data / "2wikimultihopqa_corpus_6119.json").read_text("utf-8")):
        yield row["title"], row["text"]
    corpus = json.loads((data / "hotpotqa_train100_corpus.json").read_text("utf-8"))
    for title, sentences in corpus.items():
        yield title, "".join(sentences)
    for row in json.loads((data / "musique_train100.json").read_text("utf-8")):
        for paragraph in row["paragraphs"]:
            yield paragraph["title"], paragraph["paragraph_text"]
    with gzip.open(data / "nq_open_oracle_2655.jsonl.gz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            yield row["ctxs"][0]["title"], row["ctxs"][0]["text"]


def tidy(text: str) -> str:
    """The text with spaces and quotes where they belong: some corpora were split into tokens."""
    text = html.unescape(text).replace("``", '"').replace("''", '"').replace(" -- ", " – ")
    text = re.sub(r"\s*\(\s*", " (", text)
    text = re.sub(r"\s+([,.;:)!?]|['’]s\b)", r"\1", text)
    text = re.sub(r"(?<=\w)- (?!(?:and|or|to|und)\b)(?=\w)", "-", text)
    text = re.sub(r"(?<=\w\w)& (?=\w)", " & ", text)
    text = re.sub(r"\b([DLO]|Mc)' (?=[A-Z])", r"\1'", text)
    return " ".join(_quoted(text).split())


def _quoted(text: str) -> str:
    """The text with quotes close to what they hold, where they come in pairs."""
    pieces = text.split('"')
    if len(pieces) % 2 == 0:
        return text
    held = {number: f'"{piece.strip()}"' for number, piece in enumerate(pieces) if number % 2}
    return "".join(
        held.get(number) or _apart(piece.strip(), number, len(pieces) - 1)
        for number, piece in enumerate(pieces)
    )


def _apart(piece: str, number: int, last: int) -> str:
    """What stands between two quotes, with spaces before and after it."""
    before = "" if number == 0 or re.match(r"[,.;:)!?'’\-–/\]]", piece) else " "
    after = "" if number == last or piece.endswith(("(", "-", "–", "/", "[")) else " "
    return f"{before}{piece}{after}"


def page_of(title: str, text: str) -> Page | None:
    """A page, or None where the text is not an intro that says what the title is."""
    title, text = html.unescape(title), tidy(text)
    name = re.sub(r" \([^()]*\)$", "", title)
    known = re.split(r"[\s,:]", name)[0].lower() in text[:80].lower()
    if not known or title.startswith("List of") or "may refer to" in text or "surname" in title:
        return None
    spans = sentence_spans(text)
    first = re.sub(r" \([^()]*\)", "", text[slice(*spans[0])])
    found = _COPULA.search(first)
    if not found:
        return None
    phrase = first[found.end() :]
    end = _PHRASE_END.search(phrase)
    phrase = phrase[: end.start()] if end else phrase
    for kind, pattern in _kinds().items():
        if noun := pattern.search(phrase):
            return Page(title, name, text, kind, noun[0].lower(), spans)
    kind = "person" if _DATED.search(text) and re.search(r"\b(?:[Hh]e|[Ss]he)\b", text) else "thing"
    return Page(title, name, text, kind, kind, spans)


def sentence_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Start and end of each sentence."""
    spans = []
    start = 0
    for border in _BORDER.finditer(text):
        if not _ABBREVIATED.search(text, start, border.start()):
            spans.append((start, border.end() - 1))
            start = border.end()
    return (*spans, (start, len(text)))


def stated(page: Page) -> list[Fact]:
    """What the page states of its entity: of each relation, the first mention."""
    words = [re.escape(word) for word in re.findall(r"[^\s,:]{3,}", page.name) if word[0].isupper()]
    subject = re.compile("|".join([_SUBJECT, *(rf"(?:The )?[\"“]?{word}\b" for word in words)]))
    facts = []
    for relation in relations():
        if page.kind in relation.kinds:
            fact = _first(page, relation, subject)
            if fact and page.text.find(fact.answer) == fact.start:
                facts.append(fact)
    return facts


def _first(page: Page, relation: Relation, subject: re.Pattern[str]) -> Fact | None:
    for number, (start, end) in enumerate(page.sentences):
        sentence = page.text[start:end]
        if number and not subject.match(sentence):
            continue
        for pattern in relation.find:
            match = pattern.search(sentence)
            if not match or (
                relation.unless and relation.unless.search(sentence, 0, match.start())
            ):
                continue
            answer = re.sub(r"(?:[\s,\-–/]| (?:and|or|to|of|the))+$", "", match["answer"])
            if answer.lower() not in page.name.lower() and not answer.endswith(("'s", "’s")):
                begin = start + match.start("answer")
                return Fact(page, relation, number, begin, begin + len(answer))
    return None


def is_silent(relation: Relation, title: str, passage: str) -> bool:
    """Whether a passage has not a word on a relation of its entity."""
    return not relation.cue.search(f"{title}. {passage}")


def question(page: Page, relation: Relation, rng: random.Random, *, full: bool = False) -> str:
    """The relation asked in one wording; ``full``: the title tells namesakes apart."""
    wording = rng.choice(relation.ask)
    name = page.title if full or rng.random() < 0.08 else page.name
    if not full and rng.random() < 0.12:
        name = _shorter(name)
    asked = wording.replace("{x}", name).replace("{noun}", page.noun)
    return asked if wording.endswith("?") else asked.lower()


def _shorter(name: str) -> str:
    head = re.split(r", |: | \(", name)[0]
    words = head.split()
    return f"{words[0]} {words[-1]}" if len(words) == 3 and words[1].endswith(".") else head


def passage(page: Page, needed: int, rng: random.Random) -> tuple[str, int]:
    """A cut of the page that holds one of its sentences, and where it starts."""
    start, end = 0, len(page.text)
    how = rng.random()
    if how < 0.3:
        first = rng.randint(max(0, needed - 2), needed)
        last = max(needed, first + rng.randint(1, 2))
        start = page.sentences[first][0]
        end = page.sentences[min(last, len(page.sentences) - 1)][1]
    elif how < 0.45 and needed:
        start = page.sentences[rng.randint(1, needed)][0]
    elif how < 0.75:
        words = list(re.finditer(r"\S+", page.text))[:FIRST_WORDS]
        end = max(words[-1].end(), page.sentences[needed][1])
    return page.text[start:end], start


def _answerable(facts: list[Fact], rng: random.Random) -> Iterator[Row]:
    by_relation: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        by_relation[fact.relation.name].append(fact)
    for found in by_relation.values():
        rows: set[Row] = set()
        copies = max(COPIES, min(MOST_COPIES, RARE // len(found)))
        for fact in rng.sample(found, len(found)) * copies:
            text, start = passage(fact.page, fact.sentence, rng)
            if text.find(fact.answer) == fact.start - start and len(rows) < MOST:
                asked = question(fact.page, fact.relation, rng)
                rows.add(Row(asked, fact.page.title, text, (fact.answer,), SOURCE))
        yield from sorted(rows)


def _silent(facts: list[Fact], rng: random.Random) -> Iterator[Row]:
    """Questions on the right page, which says nothing of what is asked."""
    of_page = {fact.page: fact for fact in facts}
    stated_often = Counter(fact.relation.name for fact in facts)
    for page, fact in of_page.items():
        text, _ = passage(page, fact.sentence, rng)
        unsaid = [
            relation
            for relation in relations()
            if page.kind in relation.kinds and is_silent(relation, page.title, text)
        ]
        if unsaid:
            weights = [1 + stated_often[relation.name] ** 0.5 for relation in unsaid]
            asked = question(page, rng.choices(unsaid, weights)[0], rng)
            yield Row(asked, page.title, text, (), SOURCE)


def _elsewhere(facts: list[Fact], rng: random.Random) -> Iterator[Row]:
    """Questions on a page whose answer another page has: a namesake's, or any of the same kind."""
    alike: dict[tuple[str, str, str], list[Fact]] = defaultdict(list)
    for fact in facts:
        for word in ("", *_words(fact.page.name)):
            alike[fact.relation.name, fact.page.kind, word].append(fact)
    for fact in rng.sample(facts, len(facts) // 4):
        key = fact.relation.name, fact.page.kind
        shared = [word for word in sorted(_words(fact.page.name)) if len(alike[*key, word]) > 1]
        other = rng.choice(alike[*key, rng.choice(shared) if shared else ""])
        same = fact.page.name.lower() == other.page.name.lower()
        text, _ = passage(other.page, other.sentence, rng)
        if _is_other(fact, other) and fact.answer not in text:
            asked = question(fact.page, fact.relation, rng, full=same)
            yield Row(asked, other.page.title, text, (), SOURCE)


def _words(name: str) -> set[str]:
    """Words that namesakes share."""
    return {word for word in re.findall(r"\w{4,}", name.lower()) if word not in {"with", "from"}}


def _is_other(fact: Fact, other: Fact) -> bool:
    """Whether the other page is about something else and does not mention this one's entity."""
    if fact.page.name.lower() == other.page.name.lower():
        return "(" in fact.page.title and "(" in other.page.title and fact.page != other.page
    return _shorter(fact.page.name).lower() not in f"{other.page.title} {other.page.text}".lower()
