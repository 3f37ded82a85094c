"""Verb forms, clauses and synonyms, to ask in a user's words for what a manual describes."""

import re
from collections.abc import Callable
from random import Random
from typing import NamedTuple


def words(text: str) -> frozenset[str]:
    """The words of a list."""
    return frozenset(text.split())


VERBS = words(
    """abort accept access activate add adjust allocate allow analyze annotate append apply archive
    assign attach authenticate auto-detect avoid backup begin bind block bring build bypass
    cache calculate call cancel change check choose clean clear clone close collapse collect
    colorize combine compare compile compress compute configure connect consider construct
    consult convert copy count create cut deactivate decode decompress define delete dereference
    describe detach detect determine disable discard disconnect display divide download draw
    drop dump duplicate echo edit embed emit emulate enable encode encrypt decrypt ensure enter
    escape evaluate examine exclude execute exit expand explain export extract fail fetch fill
    filter find flatten flush follow force format forward free generate get give group handle
    hide highlight honor identify ignore import include increase indent inherit initialize
    insert inspect install interpret invert invoke iterate join keep kill launch leave limit
    link list listen load locate lock log look lookup make manage mark match merge migrate
    mirror modify monitor mount move normalize notify omit open optimize output overlay override
    overwrite pack parse pass pause perform permit ping play prepend prepare preserve pretend
    prevent print process produce prohibit prompt protect provide prune publish pull push put
    query quit raise randomize rank read rebuild receive record recurse redirect reduce refresh
    refuse register reject reload remove rename render repair repeat replace report request
    require reset resize resolve restart restore restrict resume retain retrieve retry return
    reuse reverse revert rewrite rotate round run sample save scan schedule search seek select
    send separate serve set shorten show shuffle shut shutdown silence simulate skip sleep sort
    specify split squeeze start stop store stream strip submit subtract suppress swap switch
    synchronize tag take terminate test time-stamp toggle touch trace track transfer transform
    translate transmit traverse treat trigger trim truncate try turn uncompress undo uninstall
    unload unlock unmount unpack unregister unset unzip update upgrade upload use validate
    verify visit wait walk warn watch work wrap write zero"""
)
AMBIGUOUS = words(
    """access archive backup block build cache change check compress control copy cut display
    download drop dump echo edit exit export filter force format free group import index input
    limit link list listen lock log lookup mark match mirror mount output pack pause ping play
    process prompt query record register release render report request reset return round run
    sample scan schedule search set shutdown sort split start stop store stream switch tag test
    touch trace track transfer update upgrade use visit wait work wrap zero leave time-stamp
    escape forward expand default open query"""
)
"""Verbs that are nouns or adjectives as well."""
OBJECTS = words(
    """a about after all also an and any as at automatically back before both by changes
    continuously current data detailed different each either every everything extra files
    first for from given if in information interactively into it its just lines list
    more most multiple names new no non-zero nothing of on one only out output
    output's over permissions recursively results several some statistics such that the
    their them these this timestamps to two until up values verbose when whether
    which with without your"""
)
"""Words after which one of the ambiguous is a verb."""
INTRANSITIVE = words("""abort be begin exit fail go listen pause quit sleep stop wait""")
DOUBLED = words(
    """bar begin chop cut drop emit get log map omit permit plot plug put quit run
    scan set ship shut skip split stop strip submit swap tag trim unset unzip wrap zip"""
)
PAST = {
    "begin": "begun",
    "bind": "bound",
    "bring": "brought",
    "build": "built",
    "choose": "chosen",
    "cut": "cut",
    "draw": "drawn",
    "find": "found",
    "get": "got",
    "give": "given",
    "hide": "hidden",
    "keep": "kept",
    "leave": "left",
    "make": "made",
    "overwrite": "overwritten",
    "put": "put",
    "read": "read",
    "rebuild": "rebuilt",
    "rewrite": "rewritten",
    "run": "run",
    "send": "sent",
    "set": "set",
    "show": "shown",
    "shut": "shut",
    "split": "split",
    "take": "taken",
    "undo": "undone",
    "unset": "unset",
    "write": "written",
}
NOUNS = words(
    """additional address alternative amount base character charset color column command comma
    comma-separated current default destination directory encoding environment file filename
    folder format height host hostname identifier initial interval key label length level limit
    list local location maximum max message minimum min mode name new number optional output
    password path pattern percentage port prefix random rate region root seed separator size
    source string suffix target temperature threshold time timeout title token total type url
    user username value version width working"""
)
NAMED = re.compile(
    r"\w+ (?:of|for|to use|file|directory|format|encoding|name|path|style|width|mode|device|"
    r"level)\b"
)
"""A thing, where its first word is a verb as well."""
OTHER_ENTRY = re.compile(
    r"(?:the |an? )?(?:same as|synonym|alias|opposite|inverse|new in|"
    r"default (?:for|is|to|true|false))\b",
    re.IGNORECASE,
)
"""An entry that only speaks of another one, or of versions and defaults."""
SYNONYMS = [
    ("display", "show"),
    ("print", "show"),
    ("show", "display"),
    ("directory", "folder"),
    ("directories", "folders"),
    ("remove", "delete"),
    ("delete", "remove"),
    ("create", "make"),
    ("specified", "given"),
    ("specify the", "set the"),
    ("enable", "turn on"),
    ("disable", "turn off"),
    ("maximum", "max"),
    ("standard output", "stdout"),
    ("standard error", "stderr"),
    ("standard input", "stdin"),
    ("configuration", "config"),
    ("verify", "check"),
    ("information", "info"),
    ("repository", "repo"),
    ("ignore", "skip"),
    ("terminate", "stop"),
    ("execute", "run"),
    ("retrieve", "get"),
    ("fetch", "get"),
    ("modify", "change"),
    ("immediately", "at once"),
    ("suppress", "hide"),
    ("overwrite", "replace"),
    ("perform", "do"),
    ("omit", "leave out"),
    ("symbolic links", "symlinks"),
    ("symbolic link", "symlink"),
    ("documentation", "docs"),
    ("environment variable", "env var"),
    ("generate", "create"),
    ("preserve", "keep"),
    ("additional", "extra"),
    ("recursively", "with all subfolders"),
]
STOP_WORDS = words(
    """a all an and any are as at be by can do does for from given has have i if in instead into is
    it its of on only or so such than that the their them then this to used using was when where
    which will with you your what how my"""
)
INTRODUCTION = re.compile(
    r"^(?:(?:optional(?:ly)?|boolean|bool)[:;,.] *)?(?:"
    r"(?:if|when) (?:`*(?:true|set|given|specified|enabled|present|this \w+ is \w+)`*)"
    r"(?: to true)?, "
    r"|(?:this|the) (?:\w+ )?(?:option|flag|switch|command|function|method|setting|utility) "
    r"|whether (?:or not )?to |used to |(?:a )?flag to |option to )?"
    r"(?:can be used to |is used to |allows (?:you|the user|users) to |allows? to |lets you )?"
    r"(?:(?:tells?|causes?|instructs?|makes?) [\w-]+ to )?",
    re.IGNORECASE,
)
SENTENCE_END = re.compile(r"(?<![. ][a-zA-Z])(?<!\betc)(?<!\bvs)(?<!\bcf)[.;:!](?=\s|$)")


class Phrase(NamedTuple):
    """What something does: a verb in its base form and what follows it."""

    verb: str
    rest: str
    negative: bool = False
    """Whether it is not done: "do not overwrite"."""

    def base(self) -> str:
        """As in "to list files"."""
        return ("not " if self.negative else "") + f"{self.verb} {self.rest}".strip()

    def third(self) -> str:
        """As in "it lists files"."""
        if self.negative:
            return f"avoids {gerund(self.verb)} {self.rest}".strip()
        return f"{third(self.verb)} {_coordinated(self.rest, third)}".strip()

    def gerund(self) -> str:
        """As in "for listing files", whether negative or not."""
        return f"{gerund(self.verb)} {_coordinated(self.rest, gerund)}".strip()


def _coordinated(rest: str, form: Callable[[str], str]) -> str:
    """What follows a verb, with the verbs after "and" and "or" in the same form."""

    def changed(found: re.Match[str]) -> str:
        word = found[2]
        is_verb = word in VERBS and (word not in AMBIGUOUS or word in INTRANSITIVE)
        return f"{found[1]} {form(word) if is_verb else word}"

    return re.sub(r"\b(and|or) (\w+)", changed, rest)


def third(verb: str) -> str:
    """The third person of a verb: "writes"."""
    if verb in ("be", "have", "do", "go"):
        return {"be": "is", "have": "has", "do": "does", "go": "goes"}[verb]
    if re.search(r"(?:s|x|z|ch|sh)$", verb):
        return verb + "es"
    return re.sub(r"y$", "ie", verb) + "s" if re.search(r"[^aeiou]y$", verb) else verb + "s"


def gerund(verb: str) -> str:
    """The form of a verb in -ing."""
    if verb in DOUBLED:
        return verb + verb[-1] + "ing"
    return re.sub(r"(?<![eoy])e$", "", verb) + "ing" if verb != "be" else "being"


def participle(verb: str) -> str:
    """The past participle of a verb."""
    if verb in PAST:
        return PAST[verb]
    if verb in DOUBLED:
        return verb + verb[-1] + "ed"
    return re.sub(r"e$", "", re.sub(r"(?<=[^aeiou])y$", "i", verb)) + "ed"


BASES = {
    **{verb: verb for verb in VERBS},
    **{third(verb): verb for verb in VERBS},
}


THIRDS = "|".join(third(verb) for verb in sorted(VERBS - AMBIGUOUS))


def clause(text: str, most: int = 22) -> str:
    """The first sentence or clause of a description, without marks at its ends; empty where it is
    longer than ``most`` words or breaks off."""
    text = re.sub(r"^\([A-Z ]+\) ", "", " ".join(text.split()))
    end = SENTENCE_END.search(text)
    if end and end[0] == ":":
        return ""
    found = text[: end.start()] if end else text
    found = re.sub(r"(?<=\w)\s+[(\[][^()\[\]]*[)\]]$", "", found).strip(" ,-–")
    if found.count("(") != found.count(")") or found.count("[") != found.count("]"):
        return ""
    if found.count('"') % 2 or found.count("`") % 2 or found.count("**") % 2:
        return ""
    return found if found and len(found.split()) <= most else ""


def phrase(text: str, most: int = 14) -> Phrase | None:
    """What a description says that something does; None where its first clause does not begin with
    a known verb."""
    found = INTRODUCTION.sub("", clause(text, 40))
    found = re.sub(r"(?<=\w{3})(?:, | \(| - | -- | — ).*", "", found)
    found = plain(found)
    negative = re.match(r"(?:do(?:es)? not|don't|doesn't|never|will not) +", found, re.IGNORECASE)
    if negative:
        found = found[negative.end() :]
    first, _, rest = found.partition(" ")
    verb = BASES.get(first.lower())
    if not verb or len(rest.split()) > most or (not rest and verb not in INTRANSITIVE):
        return None
    after = rest.split(" ")[0].lower()
    if verb == "take" and after in ("a", "an", "one", "no", "the", "optional"):
        return None  # says what is given to it, not what it does
    if re.search(rf"\b(?:and|or) (?:{THIRDS})\b", rest):
        return None
    if after in ("of", "is", "are", "to") and verb not in ("listen", "switch", "wait", "connect"):
        return None
    if first.lower() in AMBIGUOUS and after not in OBJECTS and not negative:
        return None
    if not re.fullmatch(r"[\w ,.'/+%:\"-]*", rest) or rest.endswith((" a", " the", " of", " to")):
        return None
    return Phrase(verb, rest, negative is not None)


def noun_phrase(text: str, most: int = 9) -> str:
    """What a description names ("the maximum number of retries"); empty where it is none."""
    found = plain(re.sub(r"(?<=\w{3})(?:, | \(| - | -- | — ).*", "", clause(text, 30)))
    word = found.split(" ")[0]
    first = word.lower()
    if first not in ("the", "a", "an") and first not in NOUNS:
        return ""
    if first in VERBS and not NAMED.match(found):  # "list details of each"
        return ""
    if OTHER_ENTRY.match(found):
        return ""
    if not 2 <= len(found.split()) <= most or not re.fullmatch(r"[\w ,.'/+-]*", found):
        return ""
    if re.search(r"\b(?:is|are|was|will|be|can|if|this|must|should|has|or|of|to|the)$", found):
        return ""
    if re.search(r"\b(?:is|are|was|will|be|can|this|must|should|has|may|you|we)\b", found):
        return ""
    found = found if word.isupper() and len(word) > 1 else found[0].lower() + found[1:]
    found = re.sub(r"^an? ", "the ", found)
    return found if found.startswith("the ") else f"the {found}"


def plain(text: str) -> str:
    """Without marks of markup, and with placeholders in small letters: "a file" for FILE."""
    text = re.sub(r"``?|\*\*|\\|(?<!\w)[*_]|[*_](?!\w)", "", text)
    text = re.sub(r":\w+:", "", text)
    text = re.sub(r"<([a-z][\w -]*)>", lambda found: f"the {found[1]}", text)
    text = re.sub(
        r"(?<!the )(?<!each )(?<!all )(?<!-)(?<!\w)(FILE|DIR|DIRECTORY|PATH|NAME|STRING|COMMAND|"
        r"PATTERN|NUMBER|LIST|USER|HOST|PORT)(?!\w)",
        lambda found: f"a {found[1].lower()}",
        text,
    )
    return re.sub(r"\b(the|a|each|all) the ", r"\1 ", text).strip()


def keywords(text: str, most: int) -> str:
    """The first words of a text that carry its meaning, as typed into a search box."""
    words = [word.strip(".,:;'\"()") for word in text.split()]
    return " ".join([word for word in words if word.lower() not in STOP_WORDS][:most])


def reworded(text: str, random: Random) -> str:
    """The text with a synonym here and there."""
    for word, other in SYNONYMS:
        if random.random() < 0.4:
            changed = re.sub(rf"(?<![\w-]){word}(?![\w-])", other, text, count=1)
            if changed != text:
                return changed
    return text


def typed(question: str, random: Random) -> str:
    """A question as users type it: now and then without a capital or question mark."""
    question = " ".join(question.split())
    if random.random() < 0.25:
        if re.match(r"(?:How|I[ns]|Wh\w+|Can|Under|By|On|List) ", question):
            question = question[0].lower() + question[1:]
        question = question.removesuffix("?")
    elif random.random() < 0.08:
        question = question.removesuffix("?")
    return question
