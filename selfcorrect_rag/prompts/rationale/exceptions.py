"""Documents that a clause sets apart from the others: by "unlike", "except" or "not", or by a
verdict in brackets."""

import re
from collections.abc import Iterator

from selfcorrect_rag.prompts.rationale.clauses import FLAGS, IRRELEVANT, LACKING, Stance
from selfcorrect_rag.prompts.rationale.mentions import BEGIN, MARK, numbers_in

_EXCEPTION = re.compile(
    rf"(?:, ?|\b)(?:and |but )?(?P<cue>not(?: in| from| on)?|rather than|instead of|as opposed to"
    rf"|unlike|contrary to|in contrast to|except(?: for)?|with the exception of|excluding"
    rf"|other than|apart from"
    rf"|aside from|besides|over|in preference to|more than)(?: (?:from|on|in"
    rf"|for))? (?:the )?(?P<marks>{MARK}(?:(?:, | and |, and | or ){MARK})*)",
    FLAGS,
)


_OTHER_THAN = ("except", "with", "other", "apart", "aside", "besides")


def exceptions(clause: str, is_against: bool) -> Iterator[tuple[list[int], Stance]]:
    """Documents that a clause takes out: "unlike Document 3", "none except Document 2".

    Args:
        clause: with the marks of documents.
        is_against: whether it speaks against the others.
    """
    for match in _EXCEPTION.finditer(clause):
        is_other = match["cue"].lower().startswith(_OTHER_THAN)
        stance = Stance.USEFUL if is_other and is_against else Stance.LACKING
        yield numbers_in(match["marks"]), stance
    for match in _ASIDE.finditer(clause):
        if found := _of_aside(match["said"]):
            yield numbers_in(match["mark"]), found


_ASIDE = re.compile(rf"(?P<mark>{MARK}) ?(?P<said>\([^(){BEGIN}]{{1,100}}\)|[✓✔✅✗✘❌✖])")
_SAYS_NO = re.compile(r"\(?(?:no|nope|not|✗|✘|❌|✖)(?!\w)", FLAGS)
_SAYS_YES = re.compile(r"\(?(?:yes|useful|relevant|helpful|✓|✔|✅)(?!\w)", FLAGS)


def _of_aside(said: str) -> Stance | None:
    """The verdict in brackets after a document: "Document 3 (irrelevant)"."""
    if _SAYS_YES.match(said):
        return Stance.USEFUL
    if _SAYS_NO.match(said) or IRRELEVANT.search(said):
        return Stance.IRRELEVANT
    return Stance.LACKING if LACKING.search(said) else None


def without_exceptions(clause: str) -> str:
    """The clause without the documents that :func:`exceptions` finds in it."""
    kept = _ASIDE.sub(lambda m: m["mark"] if _of_aside(m["said"]) else m[0], clause)
    return re.sub(r" +(?=,| )", "", _EXCEPTION.sub(" ", kept))
