"""Documents that a clause of a rationale sets apart from the others: by "unlike", "except" or
"not", or by a verdict in brackets."""

import re
from collections.abc import Iterator

from selfcorrect_rag.prompts.rationale.mentions import BEGIN, MARK, numbers_in
from selfcorrect_rag.prompts.rationale.verdicts import FLAGS, IRRELEVANT, LACKING, Grade

_EXCEPTION = re.compile(
    rf"(?:, ?|\b)(?:and |but )?(?P<cue>not(?: in| from| on)?|rather than|instead of|as opposed to"
    rf"|unlike|contrary to|in contrast to|except(?: for)?|with the exception of|excluding"
    rf"|other than|apart from"
    rf"|aside from|besides|over|in preference to|more than)(?: (?:from|on|in"
    rf"|for))? (?:the )?(?P<marks>{MARK}(?:(?:, | and |, and | or ){MARK})*)",
    FLAGS,
)


def exceptions(clause: str, is_against: bool) -> Iterator[tuple[list[int], Grade]]:
    """Documents that a clause takes out: "unlike Document 3", "none except Document 2".

    Args:
        clause: with the marks of documents.
        is_against: whether it speaks against the others.
    """
    for match in _EXCEPTION.finditer(clause):
        is_other = (
            match["cue"]
            .lower()
            .startswith(("except", "with", "other", "apart", "aside", "besides"))
        )
        praised = is_other and is_against
        yield numbers_in(match["marks"]), Grade.USEFUL if praised else Grade.LACKING
    for match in _ASIDE.finditer(clause):
        if grade := _of_aside(match["said"]):
            yield numbers_in(match["mark"]), grade


_ASIDE = re.compile(rf"(?P<mark>{MARK}) ?(?P<said>\([^(){BEGIN}]{{1,100}}\)|[✓✔✅✗✘❌✖])")
_SAYS_NO = re.compile(r"\(?(?:no|nope|not|✗|✘|❌|✖)(?!\w)", FLAGS)
_SAYS_YES = re.compile(r"\(?(?:yes|useful|relevant|helpful|✓|✔|✅)(?!\w)", FLAGS)


def _of_aside(said: str) -> Grade | None:
    """The verdict in brackets after a document: "Document 3 (irrelevant)"."""
    if _SAYS_YES.match(said):
        return Grade.USEFUL
    if _SAYS_NO.match(said) or IRRELEVANT.search(said):
        return Grade.IRRELEVANT
    return Grade.LACKING if LACKING.search(said) else None


def without_exceptions(clause: str) -> str:
    kept = _ASIDE.sub(lambda m: m["mark"] if _of_aside(m["said"]) else m[0], clause)
    return re.sub(r" +(?=,| )", "", _EXCEPTION.sub(" ", kept))
