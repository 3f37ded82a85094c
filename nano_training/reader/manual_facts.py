"""Questions on facts that READMEs and manual pages state: what a thing is, its licence, authors,
versions, ports, formats, commands to install it."""

import re
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from nano_training.reader.manual_questions import Asked
from nano_training.reader.pages import Block, Page
from nano_training.reader.wording import phrase, reworded

NAMES = r"[A-Z][\w'’.\-]+(?: (?:de|van|von|der|[A-Z][\w'’.\-]*)){1,3}"
WORDINGS = 3
"""Questions on a fact; there are few."""
LISTED = r"[A-Z0-9][\w.+#/-]*"


class Fact(NamedTuple):
    """A form in which a fact is stated, and the questions that ask for it."""

    kind: str
    pattern: re.Pattern[str]
    questions: tuple[str, ...]
    """With ``{name}`` for what the page is about, and the pattern's other groups."""


def _fact(kind: str, pattern: str, *questions: str) -> Fact:
    return Fact(kind, re.compile(pattern), questions)


FACTS = (
    _fact(
        "install",
        r"(?m)(?:^|`|\$ )(?P<value>(?:(?:python3? -m |sudo )?pip3? install|uv (?:pip install|add)|"
        r"poetry add|pipx install) [^\n`#&|;]*?[\w\]\"'])(?= *(?:$|`|#|&|;|\|))",
        "How do I install {name}?",
        "how to install {name}",
        "How can I install {name} with pip?",
        "What is the command to install {name}?",
        "What do I type to install {name}?",
        "{name} install command",
        "install {name}",
        "How is {name} installed?",
    ),
    _fact(
        "install",
        r"(?m)(?:^|`|\$ )(?P<value>(?P<with>conda|brew|npm|cargo|yarn|mamba|"
        r"sudo apt(?:-get)?|apt(?:-get)?|dnf|pacman) (?:-S|install|add) "
        r"[^\n`#&|;]*?[\w\]])(?= *(?:$|`|#|&|;|\|))",
        "How do I install {name} with {with}?",
        "How can I install {name} using {with}?",
        "{name} {with} install",
        "What is the {with} command for {name}?",
    ),
    _fact(
        "what it is",
        r"^\W*(?:{name}|It|This (?:package|library|module|project)) is (?P<value>(?:an?|the) "
        r"[^.;:\n]{12,140}?(?:\n[^.;:\n]{3,90}?)?)"
        r"(?=[.;:](?:\s|$)|, (?:which|that|and|with)| that | which )",
        "What is {name}?",
        "what's {name}",
        "What kind of thing is {name}?",
        "What is meant by {name}?",
        "define {name}",
        "Can you tell me what {name} is?",
    ),
    _fact(
        "licence",
        r"(?:[Ll]icensed under|[Dd]istributed under|[Rr]eleased under|available under|"
        r"[Ll]icen[sc]e:|covered by|under the terms of) (?:the )?(?:terms of the |\[)?"
        r"(?P<value>(?:[A-Z0-9]|v\d)[\w.+-]*(?: (?:[A-Z0-9]|v\d|or later)[\w.+-]*| version| Public"
        r"| or any later version| clause){0,6}?"
        r"(?= \(|[.,;)\]]|\n|$| [Ll]icen|, | as | and | see | for | with | found)"
        r"(?: [Ll]icen[sc]e)?)",
        "What is the licence of {name}?",
        "What license does {name} use?",
        "Under which license is {name} released?",
        "{name} license",
        "How is {name} licensed?",
        "Which licence covers {name}?",
    ),
    _fact(
        "author",
        r"(?:[Ww]ritten by|[Cc]reated by|[Dd]eveloped by|Author:|authored by)"
        rf" (?:and maintained by )?\[?(?P<value>{NAMES}(?:(?:, | and |, and ){NAMES})*)",
        "Who wrote {name}?",
        "Who is the author of {name}?",
        "Who created {name}?",
        "{name} author",
        "Who made {name}?",
        "By whom was {name} written?",
    ),
    _fact(
        "maintainer",
        rf"(?:[Mm]aintained by|Maintainer:|[Mm]aintainer is) \[?(?P<value>{NAMES})",
        "Who maintains {name}?",
        "Who is the maintainer of {name}?",
        "{name} maintainer",
        "Who looks after {name} now?",
    ),
    _fact(
        "python",
        r"(?:[Rr]equires|[Ss]upports|[Nn]eeds?|compatible with|[Tt]ested (?:on|with|under)|"
        r"works with|runs on) (?:at least )?(?:Python|python|CPython) (?:versions? )?"
        r"(?P<value>\(?(?:>=? ?)?[23](?:\.\d+)+\+?(?:(?:, | and |, and | or | to | through |-|–|/)"
        r"(?:newer|later|above|up|higher|greater|[23]\.\d+\+?))*)",
        "Which Python version does {name} need?",
        "What version of Python is required by {name}?",
        "Which versions of Python does {name} support?",
        "{name} python version",
        "What Python do I need for {name}?",
    ),
    _fact(
        "port",
        r"\b(?:[Pp]ort (?:is |to |number )?|localhost:|127\.0\.0\.1:|0\.0\.0\.0:)"
        r"(?P<value>\d{2,5})\b",
        "Which port does {name} use?",
        "What port does {name} listen on?",
        "{name} port",
        "On which port does {name} run?",
        "what port is {name} on",
        "What is the port number of {name}?",
    ),
    _fact(
        "documentation",
        r"(?:[Dd]ocumentation|docs|manual|[Dd]ocs)[^.\n]{0,40}?"
        r"(?: at| on| here| see|:) *<?(?:\[[^\]]*\]\()?"
        r"(?P<value>https?://[\w./~%#?=&-]*[\w/])",
        "Where is the documentation of {name}?",
        "Where can I find {name}'s docs?",
        "{name} documentation link",
        "What is the URL of the {name} documentation?",
        "Where do I read the manual of {name}?",
    ),
    _fact(
        "bugs",
        r"(?:[Rr]eport(?:ing)?(?: any)? (?:bugs|issues|problems)|bug reports|[Ii]ssue tracker)"
        r"[^\n]{0,60}?(?: at| on| to|:| <)+ *<?(?:\[[^\]]*\]\()?"
        r"(?P<value>https?://[\w./~%#?=&-]*[\w/]|[\w.+-]+@[\w.-]+\w)",
        "Where do I report bugs in {name}?",
        "Where can I report an issue with {name}?",
        "{name} bug tracker",
        "Where should bugs of {name} be sent?",
        "How do I report a bug in {name}?",
    ),
    _fact(
        "formats",
        r"(?P<verb>[Ss]upports?|[Aa]ccepts?|[Rr]eads?|[Hh]andles?|[Pp]rovides?) "
        r"(?:the following |these |several |many |various )?"
        r"(?P<what>(?:[a-z]+ ){0,2}(?:formats|protocols|types|platforms|backends|algorithms|"
        r"encodings|languages|methods|databases|codecs|engines|versions|extensions))"
        r"(?: like| such as| including|:)? *:? "
        rf"(?P<value>{LISTED}(?:(?:, (?:and |or )?| and | or ){LISTED})+)",
        "Which {what} does {name} support?",
        "What {what} are supported by {name}?",
        "What {what} does {name} handle?",
        "{name} supported {what}",
        "list the {what} that {name} supports",
    ),
    _fact(
        "variable",
        r"[Ss]et(?:ting)? (?:the )?(?:environment variable )?[`\"'*]*"
        r"(?P<value>[A-Z][A-Z0-9]*_[A-Z0-9_]+)[`\"'*]*"
        r"(?:=\w+)?(?: environment variable)?(?: to [^\s]+)? to (?P<to>[a-z][^.\n(]{6,80})",
        "Which environment variable do I set to {to}?",
        "What variable lets me {to}?",
        "env var to {to}",
        "How do I {to} in {name}?",
    ),
    _fact(
        "path",
        r"(?P<what>configuration|config|log|cache|settings|history|data|lock|socket|socket|"
        r"password|database|key)s? (?P<sort>files?|director(?:y|ies)|folders?)[^.\n]{0,40}?"
        r"(?: in| at| is| under|:| named| called) [`\"']?"
        r"(?P<value>(?:~|/|\$[A-Z_]+/|%[A-Z]+%)[\w./~\-$]*[\w])",
        "Where is the {what} file of {name}?",
        "Where does {name} keep its {what} files?",
        "What is the path of the {what} file?",
        "{name} {what} file location",
    ),
    _fact(
        "default",
        r"[Tt]he default (?P<what>[a-z][a-z ]{3,30}?) (?:is|of) [`\"']*"
        r"(?P<value>(?:\d[\w.,]*|[a-z]+[_/.\-][\w./-]*\w|[A-Z]\w+)"
        r"(?: (?:seconds?|minutes?|hours?|days?|bytes|[kKMG]i?B|ms|milliseconds|lines|"
        r"characters))?)",
        "What is the default {what}?",
        "What {what} does {name} use by default?",
        "default {what} of {name}",
        "What's the default {what} in {name}?",
    ),
    _fact(
        "since",
        r"(?P<what>`+[\w.()=-]+`+(?: \w+){0,3}) (?:was|were|is|are|has been) "
        r"(?P<did>added|introduced|removed|deprecated|renamed) (?:in|since|as of) "
        r"(?:version |release |Python |[A-Z]\w+ )?(?P<value>v?\d+\.\d+(?:\.\d+)*)",
        "In which version was {what} {did}?",
        "Since when is {what} {did}?",
        "When was {what} {did}?",
        "{what} {did} in which release",
        "What version of {name} {did} {what}?",
    ),
)


def fact_questions(page: Page, random: Random) -> Iterator[Asked]:
    """On facts in paragraphs and code."""
    name = re.escape(page.name)
    patterns = {fact: fact.pattern for fact in FACTS}
    what = FACTS[2]
    called = what.pattern.pattern.replace("{name}", rf"(?:The )?[`*]*(?i:{name})[`*]*")
    patterns[what] = re.compile(called)
    for number, block in enumerate(page.blocks):
        if block.kind == "heading":
            continue
        for fact, pattern in patterns.items():
            if fact.kind == "what it is" and number > 8:
                continue
            found = pattern.search(block.text)
            if found:
                yield from _asked(page, number, fact, found, random)


def _asked(
    page: Page, number: int, fact: Fact, found: re.Match[str], random: Random
) -> Iterator[Asked]:
    groups = {key: " ".join((value or "").split()) for key, value in found.groupdict().items()}
    value = groups.pop("value").strip(" ,.;:")
    if fact.kind == "install" and not _installs(value, page.name):
        return
    if "to" in groups:
        wanted = phrase(groups["to"])
        if not wanted or wanted.negative:
            return
        groups["to"] = wanted.base()
    if "what" in groups and re.match(r"(?:the|it|this|that|which|and)\b", groups["what"], re.I):
        return
    groups = {key: re.sub(r"[`*]", "", text) for key, text in groups.items()}
    if value and value.count("(") == value.count(")"):
        for form in random.sample(fact.questions, min(WORDINGS, len(fact.questions))):
            question = reworded(form.format(name=page.name, **groups), random)
            yield Asked(question, value, number, number, f"facts: {fact.kind}")


def _installs(command: str, name: str) -> bool:
    """Whether a command installs the package itself, not another."""
    last = command.split()[-1].strip("\"'").lower()
    wanted = re.sub(r"[-_.]+", "-", name.lower())
    return wanted in re.sub(r"[-_.]+", "-", last) or last == "."


def metadata_page(name: str, fields: dict[str, str]) -> Page:
    """The head of a package's metadata as a text of keys and values."""
    blocks = [Block(f"{key}: {value}", gap="\n") for key, value in fields.items()]
    return Page(name, name, blocks)


METADATA = {
    "Version": (
        "Which version of {name} is this?",
        "{name} version",
        "What is the version of {name}?",
    ),
    "Summary": (
        "What is {name}?",
        "What does {name} do?",
        "what is {name} for",
        "{name} description",
    ),
    "Author": ("Who wrote {name}?", "Who is the author of {name}?", "{name} author"),
    "Author-email": (
        "What is the e-mail address of {name}'s author?",
        "How do I reach the author of {name}?",
        "{name} contact email",
    ),
    "Maintainer": ("Who maintains {name}?", "Who is the maintainer of {name}?"),
    "License": (
        "What is the licence of {name}?",
        "What license is {name} under?",
        "{name} license",
        "How is {name} licensed?",
    ),
    "License-Expression": ("What license does {name} have?", "{name} licence", "license of {name}"),
    "Requires-Python": (
        "Which Python does {name} require?",
        "What Python version do I need for {name}?",
        "{name} requires python",
        "Which versions of Python does {name} run on?",
    ),
    "Home-page": ("What is the home page of {name}?", "{name} website", "Where is {name} hosted?"),
}


def metadata_questions(page: Page, random: Random) -> Iterator[Asked]:
    """On the fields of a package's metadata."""
    for number, block in enumerate(page.blocks):
        key, _, value = block.text.partition(": ")
        if key in METADATA and len(value.split()) < 25:
            question = random.choice(METADATA[key]).format(name=page.name)
            yield Asked(question, value.strip(" ."), number, number, "metadata")
