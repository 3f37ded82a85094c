"""The final answer of a rationale, whose prompt asks for reasoning and a concise conclusion.

Pure text, in time linear in its length.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from selfcorrect_rag.prompts.rationale import anaphora
from selfcorrect_rag.prompts.rationale.clauses import Stance
from selfcorrect_rag.prompts.rationale.mentions import ANSWER_IN_QUOTES, GUESS, marked, numbers_in
from selfcorrect_rag.prompts.refusals import is_refusal
from selfcorrect_rag.prompts.sentences import ABBREVIATION, LONGEST_ABBREVIATION, sentences

_FLAGS = re.IGNORECASE


def final_answer(rationale: str, titles: Sequence[str] = ()) -> str:
    """The answer that a rationale comes to; empty where the rationale is.

    What follows the last announcement ("Answer: ...", "the answer is ...", "... is the answer") up
    to the end of its sentence, or the list below it, joined by commas. Where nothing is announced,
    the last sentence that speaks of no document, or that says that nothing answers. Left out are
    what leads to the answer ("Therefore, it is ..."), where it stands (", according to Document
    2"), what it is not (", not Lyon"), and closing words ("I hope this helps!"). What is called
    wrong is no answer, and neither is "the answer is not given" while there is another. A last line
    that is an answer in quotes ("The answer is “C++”.") gives that word for word, and one that
    declines with a guess ("... do not say (best guess: Lyon).") is given whole.

    Args:
        rationale: what a model wrote.
        titles: of the documents as they were numbered, by which it may name them.
    """
    last = rationale.rstrip().rpartition("\n")[2]
    in_quotes = ANSWER_IN_QUOTES.search(last)
    if in_quotes and not is_refusal(in_quotes["answer"]):
        return in_quotes["answer"]
    if GUESS.search(last) and is_refusal(last):
        return last
    text = re.sub(r"\*\*|__|`|[⁰¹²³⁴-⁹]|\$", "", rationale)
    text = _MARKED_UP.sub(lambda match: f"\nAnswer: {next(filter(None, match.groups()))}\n", text)
    text = re.sub(r"(?i)\b(answers? (?:is|are|was|were))n['’]t\b", r"\1 not", text)
    text = re.sub(r"(?m)^ANSWER (?=\w)", "Answer: ", text)
    if not re.search(r"[.!?] [A-Z]", text):  # one who writes all in small letters
        text = re.sub(r"(?<=[a-z]{2}[.!?]) (?=[a-z])", "\n", text)
    text = _ASIDE.sub("", re.sub(r"(?<=[.!?]) (?=docs?\b)", "\n", text))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    told = _body([line for line in lines if line])
    announced = (answer for answer in _announced(told) if not is_refusal(answer))
    return next(announced, "") or _concluded(told, titles)


_MARKED_UP = re.compile(
    r"<answer>([^<>]{1,2000})</answer>|\\boxed\{(?:\\text\{)?([^{}]{1,200})\}"
    r"|\"(?:final[_ ])?answer\"\s?:\s?\"([^\"\n]{1,500})\"|\|\s?(?:final )?answer\s?\|([^"
    r"|\n]{1,500})\|",
    _FLAGS,
)
_ASIDE = re.compile(r"(?:(?<=[.!?] )|^)(?:\([^()\n]{0,300}\)|\[[^\[\]\n]{20,300}\])", re.MULTILINE)
"""A sentence in brackets."""


_NO_DOCUMENT = re.compile(
    r"\b(?:none of (?:the|these|them|those)(?! other)|neither (?:document|passage"
    r"|of the)\b(?! [\[(#]?\d)|no (?:provided |given |retrieved )?(?:documents?"
    r"|passages?)\b(?! [\[(#]?\d)"
    r"|(?:the|these|all|provided|given)(?: \w+)? (?:documents|passages|information|context"
    r"|texts) (?:do|does|did|is|are|say|contain)(?: not|n['’]t| nothing| no))\b",
    _FLAGS,
)
_OTHERS = re.compile(r"\b(?:others?|rest|remaining)\b", _FLAGS)


# What is announced


_NOUN = r"(?:ans\w{0,3}er|anser)s?"
_QUOTED = r"\"[^\"\n]{0,300}\"|“[^”\n]{0,300}”"
_STATED = re.compile(
    rf"(?:^[\W\d]{{0,6}}|(?<=[.!?:] )|\b(?:the|my|our|an?|so|short) )(?:(?:final|correct|right"
    rf"|short|concise|best|only|likely|overall) )*{_NOUN}\b"
    rf"(?:, [^,.:]{{1,60}},)?(?: (?:to|for)\b(?:[^.:\n\"“]|{_QUOTED}){{0,200}}?)?"
    r" ?(?P<sign>:|=|[-–—>→]+ |\b(?:is|are|was|(?:would|must|should|has to|seems to|appears to)"
    r"(?: therefore| thus| then| \w+ly)? be)\b:?) ?",
    _FLAGS,
)
_STATED_AFTER = re.compile(
    rf"^(?:(?:this|that) makes )?(?P<answer>[^.!?\n]{{1,200}}?),? (?:is|are|would be|must be"
    rf"|should be)(?: \w+ly"
    rf"| therefore| thus)? (?:the|my|our)(?: (?:final|correct|right|best|only))* {_NOUN}\W*$",
    _FLAGS,
)
_HEADLINE = re.compile(rf"^#{{1,6}} (?:\w+ )?(?:{_NOUN}|conclusion)\W*$", _FLAGS)
_DOUBTED = re.compile(
    r"\b(?:might|may|could|would|some|one|people|many|tempting|thought|assumed|believed"
    r"|suspected|at first|initially|if|whether|false|claim\w*|not) (?:\w+ ){0,4}$",
    _FLAGS,
)
_IS_WRONG = re.compile(
    r"\b(?:which|but|though|although|however|and|this|that|it)\b[^.]{0,40}?(?:\b(?:wrong"
    r"|incorrect|false|inaccurate|mistaken|untrue)\b"
    r"|\b(?:is|was|are|were) not (?:right|correct|true|so)|\b(?:is|was|are)n['’]t (?:right"
    r"|correct|true|so))",
    _FLAGS,
)


def _announced(lines: Sequence[str]) -> Iterator[str]:
    """Announced answers, the last first."""
    for i in range(len(lines) - 1, -1, -1):
        line = lines[i]
        if _HEADLINE.match(line) and (answer := _below(lines, i)):
            yield answer
            continue
        for sentence in reversed(list(_whole_sentences(line))):
            yield from _in_sentence(sentence, lines, i)


def _in_sentence(sentence: str, lines: Sequence[str], i: int) -> Iterator[str]:
    after = _STATED_AFTER.match(sentence)
    if after and not _STATED.match(sentence):
        yield _bare(_without_lead(after["answer"]))
        return
    end = len(sentence)
    for match in reversed(list(_STATED.finditer(sentence))):
        rest, end = sentence[match.end() : end], match.start()
        if _DOUBTED.search(sentence[max(0, end - 60) : end]):
            continue
        if not rest and match["sign"].endswith(":") and sentence == lines[i][-len(sentence) :]:
            rest = _below(lines, i)
            if rest:
                yield rest
            continue
        if is_refusal(rest):  # which its lead-up, cut from an answer, may belong to
            continue
        answer = _asserted(rest)
        if answer and not _IS_WRONG.search(rest) and not _IS_ABOUT.match(answer):
            yield answer


_IS_ABOUT = re.compile(
    r"(?:based|derived|located|found|provided|given|supported|explicitly|stated|mentioned|(?:in"
    r"|from) (?:the )?\W*doc\w*)\b",
    _FLAGS,
)
"""Follows "the answer is" where that tells the source, not the answer."""
_BULLET = re.compile(r"(?:[-*•]|\d{1,2}[.)]) ")
_LONGEST_LIST = 100
"""Items of a list that are read: each of them may announce the list anew."""


def _below(lines: Sequence[str], i: int) -> str:
    """The sentence, or the list, in the lines below line ``i``."""
    items = []
    for line in lines[i + 1 : i + 1 + _LONGEST_LIST]:
        if not _BULLET.match(line):
            break
        items.append(_bare(_BULLET.sub("", line, count=1)))
    if items:
        return ", ".join(items)
    first = next(_whole_sentences(lines[i + 1]), "") if i + 1 < len(lines) else ""
    return _asserted(first)


# What is concluded where nothing is announced


_CLOSING = re.compile(
    r"\W*(?:(?:i )?hope (?:this|that|it)\b|let me know|(?:please )?(?:feel free|let me know"
    r"|note that|don['’]t hesitate)|if you (?:have|need|want|would)"
    r"|hth\b|hi\b\W*$|hello\b\W*$|is there anything|thank(?:s| you)|(?:i['’]m |i am )?(?:happy"
    r"|glad) to|kind regards|best (?:regards|wishes)|regards|cheers|good luck"
    r"|you['’]re welcome|have a (?:nice|great|good)|do you (?:have|need|want)|any (?:other"
    r"|more) questions)",
    _FLAGS,
)
_NOTE = re.compile(r"\W*(?:p\.?s\.?|note|disclaimer|sources?|references?|confidence)\b ?:", _FLAGS)
_CONCLUDES = re.compile(
    r"\W*(?:so|thus|therefore|hence|accordingly|consequently|in (?:conclusion|summary|short|sum)"
    r"|to (?:conclude|sum up|summari[sz]e)|overall|ultimately"
    r"|all in all|as a result|what remains|this (?:means|implies|makes)|that (?:means|makes)"
    r"|all of which means|conclusion)\b",
    _FLAGS,
)
_DOCUMENT = re.compile(
    r"\bdoc(?:u\w{0,8}|s)?\b|\b(?:passages?|sources?|texts?|snippets?|excerpts?"
    r"|ones?)\b(?= ?[\[(#]?\d)|\bpassages?\b|\[\d|^\W*\d+ ?[:|=]",
    _FLAGS,
)


_SIGNED = re.compile(
    r"(?:cheers|regards|(?:kind|best) (?:regards|wishes)|best|yours(?: \w+)?|sincerely|thanks"
    r"|hth)\W*$",
    _FLAGS,
)


def _body(lines: list[str]) -> list[str]:
    """The lines above the one that signs off."""
    signed = next((i for i, line in enumerate(lines) if i and _SIGNED.match(line)), len(lines))
    return lines[:signed]


def is_closing(sentence: str) -> bool:
    """Whether it only takes leave, or offers more: "I hope this helps!"."""
    return _CLOSING.match(sentence) is not None


def _concluded(lines: Sequence[str], titles: Sequence[str]) -> str:
    told = [s for line in lines for s in _whole_sentences(_LINE_MARK.sub("", line)) if _says(s)]
    told = [s for s in told if not is_closing(s) and not _STATED.fullmatch(s)]
    answers = [s for s in told if not _NOTE.match(s)] or told
    answers = [s for s in answers if _says(_without_source(s))] or answers
    sources = [_without_source(s) for s in answers]
    of_documents = [_names_documents(said, titles) for said in answers]
    candidates = [
        said if is_refusal(said) else cited
        for said, cited, names, named in zip(
            answers, sources, of_documents, [False, *of_documents], strict=False
        )
        if not said.endswith("?")
        and not _IS_WRONG.search(said)
        and (
            (not names and not (named and _dismisses(said)))
            or (_CONCLUDES.match(said) and not _names_documents(cited, titles))
            or (_refuses_all(said) and not numbers_in(marked(said, titles)))
        )
    ]
    if not candidates:
        reported = [_REPORTS.sub("", cited) for cited in sources]
        candidates = [
            cited
            for cited in reported
            if not _names_documents(cited, titles) and not _NO_SUBJECT.match(cited)
        ] or answers[-1:]
    if not candidates:
        return ""
    if is_refusal(candidates[-1]):
        stated = _STATED.match(candidates[-1])
        if stated and stated["sign"].endswith(":"):
            return candidates[-1][stated.end() :]
        return _LABEL.sub("", candidates[-1])
    return next(filter(None, map(_asserted, reversed(candidates))), _bare(candidates[-1]))


def _names_documents(sentence: str, titles: Sequence[str]) -> bool:
    return bool(_DOCUMENT.search(sentence) or numbers_in(marked(sentence, titles)))


def _dismisses(sentence: str) -> bool:
    """Whether, after one on documents, it speaks against them: "Those two don't say"."""
    return anaphora.follows(sentence) and anaphora.of_pronoun(sentence) >= Stance.LACKING


_NO_SUBJECT = re.compile(
    r"\W*(?:and |, )*(?:is|are|was|were|do|does|don['’]t|doesn['’]t)\b", _FLAGS
)


_REPORTS = re.compile(
    r"^\W*(?:both )?doc\w{0,8}[^.:;]{1,30}? (?:\w+ly )?(?:says?|states?|shows?|confirms?"
    r"|indicates?|tells us|makes? (?:it )?clear)(?: that)? ",
    _FLAGS,
)
_LINE_MARK = re.compile(r"^(?:#{1,6} |[-*•>] |[-=]+> ?|\d{1,2}[.)] )+")


def _says(sentence: str) -> bool:
    return re.search(r"\w", sentence) is not None


def _refuses_all(sentence: str) -> bool:
    """Whether it says that no document answers, or that its writer cannot."""
    if _OTHERS.search(sentence):
        return False
    return _NO_DOCUMENT.search(sentence) is not None or is_refusal(sentence)


# An answer without what surrounds it


_DOCS = r"(?:[\[(]?\bdoc\w{0,8}\b|\[\d|\bpassages? \d|\bsources? \d)"
_CITED = re.compile(
    r" ?\([^()]{0,20}\bdoc[^()]{0,80}\)| ?\[[^\[\]]{0,20}\bdoc[^\[\]]{0,80}\]| ?\[\d[\d, –-]*\]",
    _FLAGS,
)
_SOURCE = re.compile(
    rf",? (?:as|according to|per|as per|based on|see|from|which|thanks to|both|because|since"
    rf"|given that)\b[^.:;]{{0,60}}?{_DOCS}[^.:;]{{0,80}}[.!]?$"
    rf"|(?:;| [—–-]) [^.:;]{{0,60}}?{_DOCS}[^.:;]{{0,80}}[.!]?$",
    _FLAGS,
)
_SOURCE_BEFORE = re.compile(
    rf"^[^:]{{0,60}}?\b(?:according to|per|as|from|in|based on|see) "
    rf"[^:]{{0,20}}?{_DOCS}[^:]{{0,40}}: (?=\S)",
    _FLAGS,
)


def _without_source(sentence: str) -> str:
    sentence = _CITED.sub("", sentence)
    sentence = _SOURCE_BEFORE.sub("", sentence)
    lead = _LEAD.match(sentence)
    if lead and lead.end() < len(sentence):
        sentence = sentence[lead.end() :]
    return _SOURCE.sub("", sentence)


_LEAD = re.compile(
    r"(?:[^\w\"“'‘(\[$€£+-]*(?:(?:so|thus|therefore|hence|accordingly|consequently"
    r"|in (?:conclusion|summary|short|sum)|to (?:conclude|sum up|summari[sz]e)|overall"
    r"|ultimately|finally|all in all|on (?:balance|the whole|reflection)|all things considered"
    r"|in (?:other words|all likelihood|any case|the end|my (?:opinion|view)|essence|total)"
    r"|as a result|however|but|and|well|yet|then|still|indeed"
    r"|in fact|of course|probably|most likely|likely|clearly|definitely|simply"
    r"|actually|conclusion|all of which means|this (?:means|implies)|that means|(?:this"
    r"|that) makes (?:it|him|her|them)"
    r"|putting (?:this|it|these)(?: all)? together|taken together)\b(?! \w+ (?:and|or)\b(?=$))"
    r"|(?:i['’]d|i would|i['’]ll|i) (?:(?!cannot|can|not|do)\w+ )?"
    r"(?:go with|say|choose|conclude|believe|think|answer|know|recall|remember|suppose)(?: that)?\b"
    r"|(?:i['’]m|i am) going with\b"
    r"|(?:(?:i am|i['’]m) )?not (?:\S+ )?sure,? but|(?:from|by) (?:\w+ ){0,3}knowledge\b"
    r"|(?:from|based on|given|according to|on the basis of|to) (?:\[\d|the|my|these|this|all|our"
    r"|both|doc)[^,.]{0,80},"
    r"|(?:going by|judging by|in|by|per|as|with|following|using|reading|combining)(?: \w+){0,2}?"
    r" (?:doc|\[\d|passage)[^,.]{0,60},"
    r"|(?:with|given|for|in) (?:that|this|these|all)\b(?: [a-z]+){0,3},"
    r"|(?:as far as|to the best of|as) (?:i|my)\b(?: [a-z]+){1,2},?|tl;?dr\b|(?:from|by) (?:this"
    r"|that|these)(?= i)|my (?:guess|conclusion|verdict|choice) (?:is|would be)"
    r"|(?:we can|one can|we|it can be) (?:conclude|conclud(?:e|ed)|say)(?: that)?\b"
    r"|it follows that\b|that\b(?= the| it)|what remains is\b))*[ ,:>]*",
    _FLAGS,
)
_IT_IS = re.compile(
    r"(?:(?:it|that|this|they)(?:['’]s| is| was| are| were| must be| would be|['’]re"
    r"| must have been| has to be| can only be)|is|was|(?:all of )?(?:this|that|these"
    r"|it) (?:all )?(?:points?|leads?) to"
    r"|we are looking for) (?!not\b|[\w-]+ed\b|born\b|written\b|made\b|held\b|built\b|given\b"
    r"|known\b|why\b|because\b|clear\b)",
    _FLAGS,
)
_CLEFT = re.compile(
    r"^(?:it|this) (?:is|was) (?P<answer>(?:(?!not\b)\S+ ){1,8}?)(?:that|who|which) ", _FLAGS
)
_ROLE = re.compile(
    r"^(?:the|her|his|their|its|my|our) (?!\S+ (?:of"
    r"|in) \S+ed\b)[^,.;:\"]{2,80}?(?<! you)(?<! we) (?:is|was|are"
    r"|were)(?: therefore| thus| then|:)? (?!not\b|no\b|\w+ed\b|born\b|written\b|made\b|held\b"
    r"|built\b|given\b|known\b|sung\b|won\b|led\b|why\b|clear\b|(?:in|at|on|by|from) (?!\d))",
    _FLAGS,
)
_IS_THE_MOST = re.compile(
    r"(?P<answer>(?!(?:it|this|that|he|she|they|there)\b)[^,.;]{2,60}?) (?:is|was|are"
    r"|were) the (?:[a-z]{3,}est|most|only)\b",
    _FLAGS,
)
"""Who is the first, the only or the largest is the answer, not that they are."""
_LABEL = re.compile(r"^[A-Z][a-z]*(?: [a-z]+)?: (?=\S)")
_TAIL = re.compile(
    r"(?:,? then|,? it is|,? i think|,? i believe|,? after all|,? of course|,? though|,? for "
    r"sure|,? it was)\W*$",
    _FLAGS,
)
_REASON = re.compile(
    r",? because\b.*$|, (?:since|as (?:it|he|she|they|the|this)|given that|for (?:it|he|she"
    r"|they)|which|who|so)\b.*$",
    _FLAGS,
)
_BUT_IT_IS = re.compile(
    r"[^,;:]{0,200}\b(?:not|nothing|none|thought|assumed|unclear"
    r"|\w+n['’]t)\b[^,;:]{0,200}(?:, but (?:\w+ ){0,4}?it(?: is|['’]s| was)"
    r"|, so [^:]{0,80}:) (?P<answer>.+)$",
    _FLAGS,
)
_NOT_BUT = re.compile(
    r"^not (?P<denied>.{1,80}?)(?:,? but(?: rather)?|;|,? (?:it|that)(?: is|['’]s)|,? instead| "
    r"[—–-]) (?P<answer>.+)$",
    _FLAGS,
)
_BUT_NOT = re.compile(
    r"(?:,| \(| and|, and) not (?!only\b).{1,80}$|,? (?:rather than|instead of|as opposed to) "
    r".{1,80}$",
    _FLAGS,
)


def _asserted(said: str) -> str:
    """The answer that a sentence gives; empty where it only denies one."""
    said = _without_lead(_without_source(next(_whole_sentences(said), "")))
    if after_all := _BUT_IT_IS.match(said):
        said = after_all["answer"]
    if denied := _NOT_BUT.match(said):
        said = _without_lead(denied["answer"])
    elif re.match(
        r"not\b(?! (?:\w+ )?(?:enough|given|stated|mentioned|specified|provided|known|available"
        r"|found|clear|possible|in the))",
        said,
        _FLAGS,
    ):
        return ""
    for tail in (_BUT_NOT, _REASON, _TAIL):
        said = tail.sub("", said)
    return _bare(said)


def _without_lead(said: str) -> str:
    lead = _LEAD.match(said)
    if lead and lead.end() < len(said):
        said = said[lead.end() :]
    cleft = _CLEFT.match(said)
    if cleft:
        return cleft["answer"].strip()
    if superlative := _IS_THE_MOST.match(said):
        return superlative["answer"]
    for pattern in (_IT_IS, _ROLE, _LABEL):
        match = pattern.match(said)
        if match and match.end() < len(said):
            said = said[match.end() :]
    return said


_LONGEST_SENTENCE = re.compile(r".{1,2000}", re.DOTALL)
"""Longer ones are read in pieces: patterns look at all of a sentence from many of its words."""


def _whole_sentences(line: str) -> Iterator[str]:
    """The sentences of a line, one with "J. R. R. Tolkien" in one piece."""
    held: list[str] = []
    pieces = sentences(line)
    for piece, following in pairwise([*pieces, ""]):
        held.append(piece)
        is_number = piece.endswith(("No.", "no.")) and following[:1].isdigit()
        if not is_number and not ABBREVIATION.search(piece[-LONGEST_ABBREVIATION:]):
            yield from _LONGEST_SENTENCE.findall(" ".join(held))
            held = []
    if held:
        yield from _LONGEST_SENTENCE.findall(" ".join(held))


def _bare(answer: str) -> str:
    answer = answer.strip()
    if not ABBREVIATION.search(answer[-LONGEST_ABBREVIATION:]):
        answer = answer.rstrip(".!")
    is_quoted = re.fullmatch(r"[\"“]([^\"“”]*)[\"”]", answer)
    return (is_quoted[1].rstrip(".") if is_quoted else answer).strip(" ,;")
