"""What a question asks for, by its words: which answers the reader's rules shape."""

import re

_INPUT = "## Input:\n\n"
"""Self-RAG's mark between a task's instruction and the question."""
_HOW_TO = re.compile(
    r"\b(?:how (?:do|can|to|would|should|does one|might)|command (?:to|for))\b", re.IGNORECASE
)
_YES_NO = re.compile(
    r"^\W*(?:is|are|was|were|do|does|did|can|could|has|have|had|will|would|should|may|must)\b",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"\b(?:(?:which|what)(?: of the)?(?: [\w-]+){0,2} \w\w+(?<![su])s"
    r" (?:can|could|do|does|did|are|were|may|might|must|have|had|should|will|would|let|need|make)\b"
    r"|(?:what|who|which|where) (?:are|were)\b|(?:name|list) (?:all|the|some)\b)",
    re.IGNORECASE,
)
"""What asks with a plural."""
_COMMON = re.compile(
    r"\b(?:an?|about|and|any|are|as|at|be|by|can|did|do|does|for|from|ha[ds]|have|how|i|in|is|it|its"
    r"|me|my|of|on|or|than|that|the|their|there|this|to|was|we|were|what|when|where|which|who|whom"
    r"|whose|why|will|with|would|you|your)\b",
    re.IGNORECASE,
)
"""The commonest English words."""
_ASKS = re.compile(
    r"\b(?:who|whom|whose|what|when|where|which|why|how|is|are|was|were|do|does|did|can|could|has"
    r"|have|had|tell|give|name|list|find|show|explain|describe)\b",
    re.IGNORECASE,
)
_FOREIGN = re.compile(
    r"(?:we[rnm]|wo(?:her|hin)?|wann|wie(?:viele?)?|warum|wieso|welche[rsnm]?|qui|où|quand|quel(?:le)?s?"
    r"|pourquoi|combien|qui[eé]n(?:es)?|qué|cu[aá]l(?:es)?|d[oó]nde|cu[aá]ndo|cu[aá]nt[oa]s?|cómo"
    r"|perché|qual[ei]|quando|quant[oai]s?|quem|onde|waar(?:om)?|wanneer|welke?|vem|när|hve?[ao]r?"
    r"|hvem|kto|gdzie|kiedy|który)"
)
"""Words that ask in other languages, without those that are English words or names too."""


def plain_question(instruction: str) -> str:
    """The question alone, without a task's instruction before it."""
    return instruction.rpartition(_INPUT)[2].strip()


def is_how_to(question: str) -> bool:
    """Whether it asks how something is done."""
    return bool(_HOW_TO.search(question))


def is_yes_no(question: str) -> bool:
    """Whether yes or no would answer it."""
    return bool(_YES_NO.search(question)) and " or " not in question.lower()


def is_readable(question: str) -> bool:
    """Whether the reader, which knows English only, can be expected to understand it.

    Text in another script is not, nor is what asks with a word of another language, nor a question
    of five words or more without one of the commonest English words.
    """
    letters = [letter for letter in question if letter.isalpha()]
    if not letters:
        return False
    if sum(letter.isascii() for letter in letters) < 0.7 * len(letters):
        return False
    words = (word.strip("¿?¡!.,:;\"'“”") for word in question.lower().split())
    if not _ASKS.search(question) and any(map(_FOREIGN.fullmatch, words)):
        return False
    return len(question.split()) < 5 or bool(_COMMON.search(question))


def asks_for_several(question: str) -> bool:
    """Whether it asks for several things: "which countries", "what are the names of"."""
    return bool(_SEVERAL.search(question))


def wants_sentence(question: str) -> bool:
    """Whether a sentence or a line answers it better than a few words."""
    return is_how_to(question) or is_yes_no(question)
