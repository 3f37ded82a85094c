"""Changelogs as pages, and questions on what changed when."""

import re
from collections.abc import Iterator
from random import Random

from nano_training.reader.manual_questions import Asked
from nano_training.reader.pages import Block, Page
from nano_training.reader.wording import clause, keywords, participle, plain, third, words

DATE = (
    r"\d{4}-\d\d-\d\d|\d{4}/\d\d/\d\d|\d{1,2}\.\d{1,2}\.\d{4}|\d{1,2} [A-Z][a-z]{2,8},? \d{4}|"
    r"[A-Z][a-z]{2,8}\.? \d{1,2}(?:st|nd|rd|th)?,? \d{4}|[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4}"
)
VERSION = r"\d+\.\d+(?:\.\d+)*(?:[-.]?(?:a|b|rc|post|dev|alpha|beta)\.?\d*)?"
RELEASE = re.compile(
    r"^(?:#+ |\* |=+ )?(?:\*\*)?"
    r"(?:Noteworthy changes in |Changes (?:in|since|for) |What's new in |News for )?"
    rf"(?:[Rr]elease |[Vv]ersion |[\w-]+[ -](?:\()?)?\[?v?(?P<version>{VERSION}(?:[-+~:\w.]*\w)?)\b"
    rf"[^\w\n]{{0,6}}(?:[\w ,]{{0,14}}[^\w\n]{{1,3}})??(?P<date>{DATE})?[^\n]{{0,60}}$"
)
DEBIAN = re.compile(r"^[\w.+-]+ \((?P<version>[^)\s]+)\) [\w -]+; urgency=\w+")
SIGNED = re.compile(
    r"^ -- (?P<who>[^<\n]+?) +<[^>]*>  (?P<date>\w{3}, +\d+ \w{3} \d{4}) [\d:]+ [+-]\d+"
)
BULLET = re.compile(r"^ {0,4}[-*+•] +")
UNDERLINE = re.compile(r"^([=\-~^*#])\1{2,}$")
MADE = words(
    """add allow convert correct deprecate disable drop enable expose fix implement improve
    introduce move port remove rename replace restore support update upgrade"""
)
ALL = {form: verb for verb in MADE for form in (verb, third(verb), participle(verb))}


def changelog(name: str, title: str, text: str) -> Page:
    """Releases as headings and their changes as texts."""
    blocks: list[Block] = []
    section = ""
    for line in text.replace("\r", "").expandtabs(4).split("\n"):
        line = line.rstrip()
        found = DEBIAN.match(line) or RELEASE.match(line)
        last = blocks[-1] if blocks else None
        if UNDERLINE.match(line) and last and last.kind == "heading":
            blocks[-1] = last._replace(text=f"{last.text}\n{line}")
        elif found:
            section = found["version"]
            blocks.append(Block(line, "heading", section=section))
        elif SIGNED.match(line) or re.match(r"^#{2,5} |^ {2}\[ .* \]$", line):
            blocks.append(Block(line, section=section))
        elif BULLET.match(line):
            blocks.append(Block(line, "entry", section=section, gap="\n"))
        elif line and last and last.kind == "entry" and line.startswith(" "):
            blocks[-1] = last._replace(text=f"{last.text}\n{line}")
        elif line:
            blocks.append(Block(line, section=section, gap="\n"))
    return Page(name, title, blocks)


def change_questions(page: Page, random: Random) -> Iterator[Asked]:
    """On versions, dates and changes."""
    heading = None
    for number, block in enumerate(page.blocks):
        if block.kind == "heading":
            heading = number
            yield from _release(page, number, random)
        elif heading is not None and block.kind == "entry" and number - heading < 15:
            yield from _change(page, heading, number, random)
        elif heading is not None and (signed := SIGNED.match(block.text)):
            yield from _signed(page, heading, number, signed, random)


def _release(page: Page, number: int, random: Random) -> Iterator[Asked]:
    block = page.blocks[number]
    version, tool = block.section, page.name
    found = re.search(DATE, block.text)
    if found:
        forms = [
            (f"When was {tool} {version} released?", found[0]),
            (f"When did version {version} of {tool} come out?", found[0]),
            (f"What is the release date of {tool} {version}?", found[0]),
            (f"{tool} {version} release date", found[0]),
            (f"date of release {version}", found[0]),
            (f"Which version of {tool} was released on {found[0]}?", version),
            (f"Which release of {tool} came out on {found[0]}?", version),
        ]
        question, answer = random.choice(forms)
        yield Asked(question, answer, number, number, "changelog: date")


def _signed(
    page: Page, heading: int, number: int, found: re.Match[str], random: Random
) -> Iterator[Asked]:
    version, tool = page.blocks[number].section, page.name
    if "Daemon" in found["who"]:
        return
    forms = [
        (f"Who uploaded {tool} {version}?", found["who"]),
        (f"Who made the {version} release of {tool}?", found["who"]),
        (f"Who signed version {version} of {tool}?", found["who"]),
        (f"When was {tool} {version} released?", found["date"]),
        (f"{tool} {version} date", found["date"]),
    ]
    question, answer = random.choice(forms)
    yield Asked(question, answer, heading, number, "changelog: date")


def _change(page: Page, heading: int, number: int, random: Random) -> Iterator[Asked]:
    block, tool, version = page.blocks[number], page.name, page.blocks[heading].section
    said = re.sub(r"^ *[-*+•] +(?:\*\*[\w /-]+\*\*:? |\[[\w /-]+\] |[\w./-]+: )?", "", block.text)
    said = re.sub(r"\s+\(?\[?(?:#|gh-|bpo-|Closes|closes|LP|by @|thanks)[^\n]*$", "", said)
    said = re.sub(r"\n\s+[A-Z]\w+ [A-Z]\w+(?:[, ]*<.*|, .*|$)", "", said)
    item = clause(said, 20)
    first, _, rest = plain(item).partition(" ")
    verb = ALL.get(first.lower())
    rest = re.sub(r"(?<=\w{3})(?:, | \(| - | -- ).*", "", rest)
    if not verb or not 1 <= len(rest.split()) <= 14 or not re.fullmatch(r"[\w .'/+%:\"@=-]+", rest):
        return
    if re.match(r"(?:to|for|in|on|with|from|by|up|of|that|when|if|now)\b", rest):
        return
    done, what = participle(verb), rest
    be = "were" if re.match(r"[a-z]+s\b(?! for)", what) else "was"
    forms = [
        f"In which version was {what} {done}?",
        f"Which version of {tool} {done} {what}?",
        f"Which release {done} {what}?",
        f"What version {done} {what}?",
        f"In what release of {tool} {be} {what} {done}?".replace(" were ", f" {be} "),
        f"{tool} {keywords(f'{done} {what}', 6)} version",
        f"which version {done} {keywords(what, 7)}",
    ]
    if random.random() < 0.75:
        question = random.choice(forms)
        yield Asked(question, version, heading, number, "changelog: version")
    else:
        forms = [
            f"What was {done} in {version}?",
            f"What did {tool} {version} {verb}?",
            f"What does release {version} {verb}?",
        ]
        others = [
            other
            for other in page.blocks
            if other is not block
            and other.section == version
            and re.search(rf"\b(?:{verb}|{done})", other.text, re.IGNORECASE)
        ]
        if not others:
            answer = clause(said.partition(" ")[2], 20)
            if answer:
                yield Asked(random.choice(forms), answer, heading, number, "changelog: change")
