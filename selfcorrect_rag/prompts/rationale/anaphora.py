"""Reads what a clause or heading of a rationale says of documents without naming them: by a
pronoun, as "the others", or for a list below it."""

import re

from selfcorrect_rag.prompts.rationale.clauses import (
    FLAGS,
    IRRELEVANT,
    LACKING,
    OTHER,
    POSITIVE_NOT,
    REPORTING,
    USEFUL,
    Stance,
)
from selfcorrect_rag.prompts.rationale.mentions import BEGIN, END, MARK

# Pronouns


_PRONOUN = re.compile(
    r"(?:(?:but|and|so|yet|although|though|because|as|since) )*(?:it|they)\b", FLAGS
)


def begins_with_pronoun(clause: str) -> bool:
    return _PRONOUN.match(clause) is not None


_FOLLOWS = re.compile(
    r"but (?:\w+ly |never |then )?(?!is\b|was\b|this\b|its\b|has\b|does\b|as\b)[a-z]+(?:s"
    r"|ed)\b(?= )"
    r"|(?:in|from|according to) (?:it|this|them|these|both)\b|none of (?:it|this|that|them|these"
    r"|those|which|whom)\b"
    r"|(?:(?:but|however|yet|while|although|though|and|therefore|thus|so|hence|because|as|since"
    r"|for|still|only)\b[ ,]*)*"
    r"(?:(?:it|its|they|they['’]re|it['’]s|neither|both|which|itself|still|do|does|is|are"
    r"|isn['’]t|doesn['’]t|not|irrelevant|unrelated"
    r"|unhelpful|useless|useful|helpful|relevant|off|no use|no good|no help|ignored?|skip\w*"
    r"|discarded|dismissed|excluded|no|nope|tasty|of no)\b"
    r"|(?:this|these|that|those|the) (?:one|ones|two|latter|former|documents?|passages?|text"
    r"|excerpt|article|entry|page|is|are|was|were|does|do|doesn)\b"
    r"|(?:that|this|those|these)(?:['’]?s)?\b|(?:an?|another|other|some|wrong|different)\b"
    rf"|(?:the|that|this) \w+ (?:it \w+ )?(?:is|are|was|were) {OTHER}|(?:the) (?:excerpt|text"
    rf"|passage|article|page|entry)\b"
    r"|(?:I|we|one|you) .{0,60}\b(?:it|them|that|this|those|these|either|both)\b)",
    FLAGS,
)
_RELATIVE = re.compile(
    r"(?:and |but )?(?:which|hence|so (?:no|nope|not)\b|an?\b|another\b|other\b|some\b)", FLAGS
)
_PLURAL = re.compile(r"\b(?:none|they|they['’]re|these|those|neither|both|them|are)\b", FLAGS)
_BUT = re.compile(r"(?:but|however|yet)\b", FLAGS)


def follows(clause: str) -> bool:
    """Whether it speaks of documents that were named before."""
    return _FOLLOWS.match(clause) is not None


def is_but(clause: str) -> bool:
    return _BUT.match(clause) is not None


def is_plural(clause: str) -> bool:
    return _PLURAL.search(clause) is not None


def is_relative(clause: str) -> bool:
    """Whether it speaks of what stands in the same sentence alone."""
    return _RELATIVE.match(clause) is not None


def of_pronoun(clause: str) -> Stance:
    """The stance that a clause gives the documents named before."""
    clause, is_praised = POSITIVE_NOT.subn(" ", clause)
    shown = REPORTING.sub("says", clause)
    if IRRELEVANT.search(shown) or _NOT_SO.search(shown):
        return Stance.IRRELEVANT
    if LACKING.search(shown) or _IT_DOES_NOT.match(shown):
        return Stance.LACKING
    if is_praised or USEFUL.search(shown):
        return Stance.USEFUL
    if _SAYS.search(clause):
        return Stance.REPORTED
    return Stance.TOPIC if _IT_IS_ABOUT.match(clause) else Stance.NAMED


_IT_DOES_NOT = re.compile(
    r"(?:\w+,? ){0,2}(?:it|they|that|those|these|this)(?: \w+)? "
    r"(?:\w+n['’]t|(?:is|are|do|does|did|was|were|has|have) not|cannot)\b",
    FLAGS,
)
_NOT_SO = re.compile(
    r"^(?:(?:but|though|although|yet|and|however|in fact|actually|really|it|they|both|that|those"
    r"|these)[ ,]+)*"
    r"(?:(?:is|are|was|were|do|does|did) not|(?:is|are|was|were|do|does|did)n['’]t)(?: (?:either"
    r"|really|at all|so))?\W*$",
    FLAGS,
)
_IT_IS_ABOUT = re.compile(
    r"(?:(?:but|and|so|yet|because|as|since|for|however),? )*(?:it|they|this|that|these"
    r"|those)(?:['’](?:s|re))? "
    r"(?:(?:is|are|was|were|only|just|merely|actually|really|mainly|all) )*"
    r"(?:about|concerns?|deals? with|discuss(?:es)?|focus(?:es)?|covers?|talks? about|treats? of"
    r"|refers? to)\b",
    FLAGS,
)


_SAYS = re.compile(
    r"^(?:in|from|according to) (?:it|this|them)\b|(?:^but|\b(?:it|they|which|this|that|document"
    r"|latter|former)) (?:also |both |all |explicitly "
    r"|clearly |does )*(?:states?|says?|mentions?|notes?|tells?|shows?|explains?|names?|gives?"
    r"|lists?|credits?|identif(?:y|ies)|calls?|reads?|records?|describes?|reports?|has|attributes?"
    r"|places?|puts?|dates?|repeats?)\b",
    FLAGS,
)

_COLLECTIVE = re.compile(
    r"\b(?:(?:all |both )?(?:of )?(?:the |these |those )?(?:other|remaining|rest)(?: (?:of (?:the"
    r"|them|these)))?(?: \w+)?(?: documents?| passages?| ones| texts?| sources?| articles?)?"
    r"|(?:the )?others\b|(?:everything|anything|nothing) else\b|none of (?:the|these|them|those"
    r"|your)(?: \w+){0,2}|no (?:provided |retrieved |given )?(?:documents?|passages?|sources?)"
    r"|neither (?:document|passage|of (?:the|them))|nothing in (?:the|these"
    r"|any)(?: \w+)? (?:documents?|passages?)"
    r"|(?:all |both )?(?:of )?(?:the|these|those|all)(?: \w+)? (?:documents|passages|sources"
    r"|texts|results)"
    r"|(?:the )?(?:provided |given |retrieved )(?:documents|passages|information|context))\b",
    FLAGS,
)
_ONLY_SOME = re.compile(
    r"\bonly (?:one|two|three|four|five|some)(?: of)?(?: (?:the|these|them|those))?(?: \w+)?"
    r"(?: (?:documents?|passages?|texts?|sources?|ones?))? (?:is|are|bears?|helps?|contains?"
    r"|mentions?|answers?|address(?:es)?|matters?|provides?|speaks?|concerns?|deals?)\b",
    FLAGS,
)
_OTHERS = re.compile(r"\b(?:others?|else|rest|remaining)\b", FLAGS)


_NONE_OF_THEM = re.compile(
    r"none of (?:them|these|those)\b(?! (?:documents|passages|texts|sources|results))", FLAGS
)


def is_none_of_them(clause: str) -> bool:
    return _NONE_OF_THEM.match(clause) is not None


def collective(clause: str) -> Stance | None:
    """The stance it gives all documents, or all others; None where it says nothing against them."""
    if _ONLY_SOME.search(clause) and not LACKING.search(clause):
        return Stance.LACKING
    match = _COLLECTIVE.search(clause)
    if not match:
        return None
    plain = POSITIVE_NOT.sub(" ", clause)
    is_none = re.match(r"(?:none|no|neither|nothing)\b", match[0], FLAGS) is not None
    if is_none and not re.search(r"\b(?:irrelevant|unrelated|useless)\b", plain):
        return Stance.LACKING
    if IRRELEVANT.search(plain) or LACKING.search(plain) or re.search(r"n['’]t\b", plain):
        return Stance.LACKING
    if _OTHERS.search(match[0]) and re.search(
        r"\b(?:about|concern|deal with|discuss|cover)\b", plain, FLAGS
    ):
        return Stance.LACKING
    return None


_SINGLED = re.compile(
    rf"\b(?:only|solely|just|exclusively)(?: on| in| from)? (?:the )?\(?{BEGIN}|{END} (?:alone"
    rf"|is all|is the only|are the only)\b|\bonly (?:one|document|source|useful|relevant"
    rf"|helpful)\b.*{BEGIN}|\b(?:I|we)\b (?:\w+ ){{0,2}}?(?:only|solely"
    rf"|just) (?:\w+ ){{0,3}}{BEGIN}",
    FLAGS,
)
_SINGLED_VERBS = re.compile(
    r"\b(?:useful|helpful|relevant|of use|of help|need(?:ed)?|looked|kept|keep|rel(?:y|ied)"
    r"|answers?|contains?|support\w*|used?"
    r"|mentions?|helps?|provides?|gives?|names?|states?|says?|relevance|address\w*)\b",
    FLAGS,
)


def singles_out(clause: str) -> bool:
    """Whether it says that no other document is useful."""
    return bool(_SINGLED.search(clause) and _SINGLED_VERBS.search(clause))


_LISTS = re.compile(
    rf"\b(?:documents?|passages?) (?:that|which) (?:is|are) (?:\w+ )?(?:useful|relevant"
    rf"|helpful)\b[^{BEGIN}]*{BEGIN}"
    rf"|^\W*{MARK}(?:[ ,]*(?:and )?{MARK})* (?:is|are) (?:useful|relevant|helpful) (?:to|for"
    rf"|in) (?:answer|answering)\b",
    FLAGS,
)


def lists_useful(sentence: str) -> bool:
    """Whether it lists the documents that are useful to answer the question (Table 12)."""
    return _LISTS.search(sentence) is not None


# Headings


_LABEL = re.compile(rf"^\W*([^:{BEGIN}.!?]{{2,60}}): (?=.*{BEGIN})", re.DOTALL)


def label(sentence: str) -> Stance | None:
    """The verdict before the colon of "Irrelevant: Documents 3 and 5", if it is one."""
    match = _LABEL.match(sentence)
    return of_heading(match[1]) if match else None


def without_label(sentence: str) -> str:
    """The sentence without a verdict before its colon."""
    match = _LABEL.match(sentence)
    return sentence[match.end() :] if match and of_heading(match[1]) else sentence


def of_heading(line: str) -> Stance | None:
    if re.match(r"\W*(?:no|drop(?:ped)?)\W*$", line, FLAGS):
        return Stance.IRRELEVANT
    if re.match(r"\W*yes\W*$", line, FLAGS):
        return Stance.USEFUL
    if IRRELEVANT.search(line) and not POSITIVE_NOT.search(line):
        return Stance.IRRELEVANT
    if LACKING.search(line):
        return Stance.LACKING
    return Stance.USEFUL if USEFUL.search(line) else None
