"""Questions on the pages of manuals, by rule: on entries (options, parameters, variables, files),
examples, names and facts."""

import re
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from nano_training.reader.pages import Block, Page
from nano_training.reader.wording import (
    INTRANSITIVE,
    Phrase,
    clause,
    keywords,
    noun_phrase,
    phrase,
    plain,
    reworded,
    words,
)


class Asked(NamedTuple):
    """A question on a page."""

    question: str
    answer: str
    first: int
    """The block where the answer stands."""
    last: int
    """The last block that the passage needs."""
    source: str


OPTION = re.compile(r"-{1,2}[A-Za-z0-9?@#][\w-]*")
VARIABLE = re.compile(r"\$?[A-Z][A-Z0-9]*_[A-Z0-9_]+")
PATH = re.compile(r"(?:~|\$[A-Z_]+|\.)?/[\w.\-/*$]+|[\w-]+\.(?:conf|toml|json|ini|ya?ml|cfg|rc)")
DEFAULT = re.compile(
    r"(?:\b[Dd]efault(?:s to|(?:s|ing)? (?:value )?(?:is|of|to|are|being):?|(?: value)?[:=])|"
    r"[(\[][Dd]efaults?(?: to| is)?[:=]?) *"
    r"(?P<mark>``|[`\"'“‘]?)(?P<value>[^\s`\"'“”‘’()\[\];,]+"
    r"(?: (?:seconds?|minutes?|hours?|days?|bytes|[kKMG]i?B|ms|milliseconds|lines|characters"
    r"|columns|MB|KB))?)"
)
ENDS = re.compile(r"\s*(?:[.,;)\]]|$)")
NO_VALUES = words(
    """the a an that to this be not if whether when what for it in is on use used of all one no set
    as your any and or by using value values based both only same their its with determined
    current platform system chosen taken read are none either calculated specified behavior
    number half"""
)


GIVEN = words("choose configure define disable enable force give select set specify use")
"""What a user does, not the tool."""


def entry_questions(page: Page, random: Random) -> Iterator[Asked]:
    """On what stands in lists of options, parameters, variables, files and statuses."""
    for number, block in enumerate(page.blocks):
        if block.kind != "entry" or len(block.head) > 60 or not block.body.strip():
            continue
        short = OPTION.findall(block.head)
        if re.search(r"help|version|usage", block.head) and random.random() < 0.8:
            continue
        section = block.section.upper()
        if re.match("EXIT|RETURN", section):
            yield from _status(page, number, block, random)
        elif re.fullmatch(r"\W*\d+\W*", block.head):  # of a list that is numbered
            continue
        elif section.startswith("ENV") or VARIABLE.fullmatch(block.head):
            yield from _named(page, number, block, ("environment variable", "env var"), random)
        elif short and block.head.startswith("-"):
            yield from _option(page, number, block, short, random)
        elif PATH.fullmatch(block.head):
            yield from _named(page, number, block, ("file", "path"), random)
        elif re.search("COMMAND|GROUP", section):
            yield from _named(page, number, block, ("command", "subcommand"), random)
        elif re.search("ARG|PARAM|:", section + block.text[0]):
            yield from _named(page, number, block, ("parameter", "argument"), random)
        elif re.fullmatch(r"[\w.\-=]+", block.head):
            yield from _named(page, number, block, ("setting", "keyword"), random)


def _option(
    page: Page, number: int, block: Block, names: list[str], random: Random
) -> Iterator[Asked]:
    tool, name = page.name, random.choice(names)
    yield from _doing(page, number, block, ("option", "flag", "switch"), random)
    described = clause(block.body)
    if described:
        forms = [
            f"What does {name} do in {tool}?",
            f"What does {tool}'s {name} do?",
            f"What does the {name} option of {tool} do?",
            f"What does {tool} {name} do?",
            f"What is {name} for?",
            f"What's the {name} flag of {tool} for?",
            f"What does {name} mean?",
            f"{tool} {name} meaning",
            f"what happens if I pass {name} to {tool}?",
            f"What is the effect of {name}?",
        ]
        yield Asked(random.choice(forms), described, number, number, "options: meaning")
    yield from _default(page, number, block, name, random)
    if len(names) > 1 and names[0].startswith("-") and not names[0].startswith("--"):
        long = [other for other in names if other.startswith("--")]
        if long and random.random() < 0.2:
            pairs = [
                (f"What is the short form of {long[0]}?", names[0]),
                (f"What is the long form of {names[0]} in {tool}?", long[0]),
                (f"{tool}: short for {long[0]}?", names[0]),
            ]
            question, answer = random.choice(pairs)
            yield Asked(question, answer, number, number, "options: form")


def _named(
    page: Page, number: int, block: Block, kinds: tuple[str, ...], random: Random
) -> Iterator[Asked]:
    """On an entry with a name: a variable, parameter, file or keyword."""
    tool, name = page.name, block.head
    yield from _doing(page, number, block, kinds, random)
    described = clause(block.body)
    if described and re.fullmatch(r"[\w$.\-/~*]+", name):
        forms = [
            f"What does {name} do?",
            f"What is {name} for?",
            f"What is {name} in {tool}?",
            f"What does {tool} use {name} for?",
            f"What does the {kinds[0]} {name} mean?",
            f"What is the {name} {kinds[0]} of {tool}?",
            f"{tool} {name}",
        ]
        yield Asked(random.choice(forms), described, number, number, "names: meaning")
    yield from _default(page, number, block, name, random)


def _default(page: Page, number: int, block: Block, name: str, random: Random) -> Iterator[Asked]:
    found = DEFAULT.search(block.body)
    value = found["value"].rstrip(".,:") if found else ""
    if not found or value.lower() in NO_VALUES or not re.search(r"\w", value):
        return
    if found["mark"] and not block.body[found.end() :].startswith(("`", '"', "'", "”", "’")):
        return
    if not re.fullmatch(r"[\w.\-/+:%~$*<>@=\\]+(?: [A-Za-z]+)?", value):
        return
    if value.isalpha() and not found["mark"] and not ENDS.match(block.body, found.end()):
        return
    spoken = name.strip("-*$").partition("=")[0].replace("-", " ").replace("_", " ").lower()
    tool = page.name
    forms = [
        f"What is the default of {name}?",
        f"What is the default value of {tool}'s {name}?",
        f"What's the default for {name} in {tool}?",
        f"{tool} {name} default",
        f"What does {name} default to?",
        f"What value does {name} have by default?",
    ]
    if len(spoken) > 3 and not spoken.startswith("no "):
        forms += [
            f"What is the default {spoken} of {tool}?",
            f"What is {tool}'s default {spoken}?",
            f"default {spoken} {tool}",
            f"What {spoken} does {tool} use by default?",
        ]
    yield Asked(random.choice(forms), value, number, number, "defaults")


def _status(page: Page, number: int, block: Block, random: Random) -> Iterator[Asked]:
    described, tool = clause(block.body), page.name
    code = block.head
    if not described or not re.fullmatch(r"-?\w{1,20}", code):
        return
    if re.fullmatch(r"[A-Z][A-Z_]+", code):
        forms = [f"What does {code} mean?", f"When does {tool} return {code}?", f"{tool} {code}"]
        yield Asked(random.choice(forms), described, number, number, "status")
    if code.isdigit():
        forms = [
            f"What does exit status {code} of {tool} mean?",
            f"What does exit code {code} mean?",
            f"{tool} exit code {code}",
            f"When does {tool} exit with {code}?",
        ]
        yield Asked(random.choice(forms), described, number, number, "status")
        reason = plain(described)
        if re.match(r"if |when ", reason):
            forms = [
                f"What is the exit status of {tool} {reason}?",
                f"Which exit code does {tool} return {reason}?",
            ]
            yield Asked(random.choice(forms), code, number, number, "status")


def _doing(
    page: Page, number: int, block: Block, kinds: tuple[str, ...], random: Random
) -> Iterator[Asked]:
    """Questions in the words of the description, which the entry's name answers."""
    answer = block.head.strip(" ,:")
    found = phrase(block.body)
    word = random.choice(kinds)
    if found:
        for make in random.sample(list(PHRASED), 2):
            question = make(found, page.name, word, random)
            if question:
                yield Asked(reworded(question, random), answer, number, number, f"{kinds[0]}s")
    elif named := noun_phrase(block.body):
        tool = page.name
        of = random.choice(["", f" of {tool}", f" in {tool}"]) if len(named.split()) < 7 else ""
        forms = [
            f"Which {word}{of} sets {named}?",
            f"How do I set {named}{of}?",
            f"How can I change {named}{of}?",
            f"What {word} is there for {named}{of}?",
            f"Which {word}{of} specifies {named}?",
            f"{tool} {word} for {named}",
            f"where do I put {named}{of}?",
            f"{tool} {keywords(named, 4)} {word}",
        ]
        if kinds[0] == "file":
            forms = [
                f"Where do I find {named}{of}?",
                f"Which file holds {named}?",
                f"What is the path of {named}{of}?",
                f"{tool} {keywords(named, 5)} path",
            ]
        if kinds[0] == "command":
            forms = [
                f"What {word} is there for {named}{of}?",
                f"{tool} {word} for {named}",
                f"{tool} {keywords(named, 4)} {word}",
            ]
        yield Asked(
            reworded(random.choice(forms), random), answer, number, number, f"{kinds[0]}s: thing"
        )


def _how(found: Phrase, tool: str, word: str, random: Random) -> str:
    start = random.choice(["How do I", "How can I", "how to", "How do you", "How would I"])
    mark = "" if start == "how to" else "?"
    mine = _mine(found)
    if found.negative:
        stop = random.choice(["stop {} from", "keep {} from", "prevent {} from", "avoid"])
        return f"{start} {stop.format(tool)} {mine.gerund()}{mark}".replace(
            "avoid", f"use {tool} without"
        )
    if found.verb in INTRANSITIVE or (found.verb not in GIVEN and random.random() < 0.3):
        return f"{start} make {tool} {mine.base()}{mark}"
    where = random.choice(["with", "in", "using"])
    at = random.choice([f" {where} {tool}", f" {where} {tool}", ""])
    return f"{start} {mine.base()}{at}{mark}"


def _which(found: Phrase, tool: str, word: str, random: Random) -> str:
    of = random.choice([f" of {tool}", f" of {tool}", f" in {tool}", "", f" for {tool}"])
    which = random.choice(["Which", "What"])
    if found.negative:
        verb = random.choice(["stops it from", "keeps it from", "prevents"])
        return f"{which} {tool} {word} {verb} {found.gerund()}?"
    if found.verb in INTRANSITIVE:
        return f"{which} {word} makes {tool} {found.base()}?"
    return f"{which} {word}{of} {found.third()}?"


def _search(found: Phrase, tool: str, word: str, random: Random) -> str:
    wanted = keywords(found.base() if not found.negative else f"no {found.rest}", 5)
    return random.choice([f"{tool} {wanted}", f"{tool} {wanted} {word}", f"{tool} {word} {wanted}"])


def _use(found: Phrase, tool: str, word: str, random: Random) -> str:
    mine, base = _mine(found), _mine(found).base()
    if found.negative:
        return random.choice(
            [
                f"Is there a way to run {tool} without {mine.gerund()}?",
                f"{tool} should not {found.verb} {mine.rest}, which {word} do I need?",
                f"What do I pass to {tool} so that it does not {found.verb} {found.rest}?",
                f"{tool} without {mine.gerund()}",
            ]
        )
    return random.choice(
        [
            f"Which {word} do I use to {base} with {tool}?",
            f"What should I use to {base}?",
            f"Is there a {tool} {word} to {base}?",
            f"I want {tool} to {base}, what {word} do I need?",
            f"What is the {tool} {word} to {base}?",
            f"What is the {tool} {word} for {mine.gerund()}?",
            f"{tool} {word} to {base}",
            f"Which {word} tells {tool} to {found.base()}?",
        ]
    )


def _mine(found: Phrase) -> Phrase:
    """A phrase as a user says it."""
    rest = re.sub(r"\byour\b", "my", found.rest)
    return found._replace(rest=re.sub(r"\byou\b", "I", rest))


Make = Callable[[Phrase, str, str, Random], str]
PHRASED: tuple[Make, ...] = (_how, _which, _search, _use, _how)


def name_questions(page: Page, random: Random) -> Iterator[Asked]:
    """On the NAME of a manual page: what the tool is."""
    for number, block in enumerate(page.blocks[:3]):
        found = re.match(
            r"^([\w.+-]+(?: [\w-]+)*)(?:, [\w., -]+)? [-–—]+ (.+)$", block.text, re.DOTALL
        )
        if not found or block.section.upper() != "NAME":
            continue
        described, tool = clause(found[2]), page.name
        if not described:
            return
        forms = [
            f"What is {tool}?",
            f"What does {tool} do?",
            f"What is {tool} for?",
            f"What is the {tool} command used for?",
            f"{tool} purpose",
            f"what's {tool}",
        ]
        yield Asked(random.choice(forms), described, number, number, "name")
        does = phrase(found[2])
        if does and tool in block.text:
            forms = [
                f"Which command {does.third()}?",
                f"What command can I use to {_mine(does).base()}?",
                f"Which tool {does.third()}?",
                f"command to {_mine(does).base()}",
            ]
            yield Asked(reworded(random.choice(forms), random), tool, number, number, "name")


LEADS = re.compile(
    r"^(?:(?:\d[.)]|[-*•]) +)?(?:For example, |Then,? |Finally, |Next, )?"
    r"(?:(?:To|If you want to|In order to) (?P<to>.{8,140}?)"
    r"(?:, |:$| (?=run|use|do|type|execute|try)).{0,60}"
    r"|(?P<do>[A-Z][a-z]+ .{6,100}?)):?$",
    re.DOTALL,
)


def example_questions(page: Page, random: Random) -> Iterator[Asked]:
    """On commands and code that a sentence introduces: "To see all files, run:"."""
    for number, (lead, code) in enumerate(zip(page.blocks, page.blocks[1:], strict=False)):
        if code.kind != "code":
            continue
        answer = _command(code.text)
        said = " ".join(lead.text.split())
        if not answer or not (said.endswith(":") or lead.kind == "heading"):
            continue
        last = re.split(r"(?<=[a-z)])\. ", said)[-1]
        found = LEADS.match(last) if lead.kind == "text" else None
        wanted = phrase((found["to"] or found["do"] or "").rstrip(":")) if found else None
        if lead.kind == "heading":
            wanted = _task(lead.section)
        if wanted and not wanted.negative:
            mine, tool = _mine(wanted), page.name
            forms = [
                f"How do I {mine.base()}?",
                f"How can I {mine.base()} with {tool}?",
                f"how to {mine.base()}",
                f"What is the command to {mine.base()}?",
                f"Which command {wanted.third()}?",
                f"how do you {mine.base()} in {tool}",
                f"{tool} {keywords(wanted.base(), 5)} example",
                f"command for {mine.gerund()}",
            ]
            question = reworded(random.choice(forms), random)
            yield Asked(question, answer, number, number + 1, "examples")


def _command(code: str) -> str:
    """The one line of code that a question may ask for."""
    lines = [line.strip() for line in code.split("\n")]
    lines = [re.sub(r"^(?:\$|>|%) |\s+#\s.*", "", line) for line in lines]
    lines = [
        line
        for line in lines
        if line and not line.startswith(("```", "~~~", "#", "//", ".. ", ":", "--"))
    ]
    if len(lines) != 1 or not 2 <= len(lines[0].split()) <= 16 or len(lines[0]) > 120:
        return ""
    return lines[0].strip("`")


def _task(heading: str) -> Phrase | None:
    """What a heading like "Running the tests" or "How to run the tests" is about."""
    said = re.sub(r"^(?:\d+(?:\.\d+)*\.? |how to )", "", plain(heading), flags=re.IGNORECASE)
    said = re.sub(r"(?<= )[A-Z](?=[a-z]+\b)", lambda found: found[0].lower(), said)
    first, _, rest = said.partition(" ")
    stem = re.sub(r"ing$", "", first.lower())
    for base in (stem, stem + "e", stem[:-1]):
        if first.lower().endswith("ing") and rest and phrase(f"{base} the {rest}"):
            return phrase(f"{base} {rest}") or Phrase(base, rest)
    return phrase(said)
