"""Recognises texts that decline to answer, which cite nothing."""

import re

from selfcorrect_rag.prompts.sentences import sentences

REFUSAL = "The documents do not say."
"""The refusal of this package's own models and graphs."""

_TEXTS = (
    r"(?:documents?|passages?|contexts?|sources?|excerpts?|texts?|articles?|snippets?|references?"
    r"|search\s+results|information|knowledge"
    r"|(?:provided|given|available|retrieved)\s+(?:evidence|data|contents?|results|materials?))"
)
"""Names for the given texts; "the evidence does not show" is more often a fact."""
_GIVEN = (
    r"(?:(?:the|these|this|any|either|both|all|my|your|of|that|those|above)\s+)*"
    r"(?:(?:provided|given|available|retrieved|supplied|cited|relevant|above|listed|numbered"
    r"|background|search|two|three|four|five|several|other)\s+)*"
)
_NUMBERED = (
    r"(?:\s*(?:number\s+)?\d{1,3}"
    r"(?:\s*(?:,\s*(?:and|or|nor)?|and|or|nor|-|to)\s*\d{1,3})*)?"
)
_AFTER = r"(?:\s+(?:provided|given|above|retrieved|available|supplied))?"
_THEM = rf"(?:{_GIVEN}{_TEXTS}{_NUMBERED}{_AFTER}|none\s+of\s+(?:{_GIVEN}{_TEXTS}|them))"
_WHERE = rf"(?:\b(?:in|within|by|from|on)\s+{_GIVEN}{_TEXTS}\b)"
_HERE = (
    rf"(?=(?:\s+(?:this|that|it|so))?\W*$|[^.]{{0,160}}?{_WHERE}"
    r"|[^.,]{0,80}?\b(?:what|anything)\s+(?:i|we)\s+(?:have|had|was|were|am|are|see)\b"
    r"|[^.,]{0,80}?\b(?:the|this|that|your|my)\s+(?:\w+\s+)?(?:question|answer)\b"
    r"|[^.,]{0,80}?\bto\s+(?:\w+ly\s+)?(?:answer|say|tell)\W*$)"
)
"""Bounds the wordings that facts have too: the sentence ends, or it speaks of the given texts
or of the question."""
_NOT = r"(?:do(?:es)?\s+not|don't|doesn't|did\s+not|didn't|cannot|can\s?not|can't|fails?\s+to)"
_TELL = (
    r"(?:say|mention|contain|state|specify|provide|include|give|tell|answer|address|indicate"
    r"|identify|name|reveal|offer|discuss|describe|explain|clarify|list|cover|have|hold|disclose"
    r"|report|note|show|refer|record)"
)
_TOLD = (
    r"(?:said|mentioned|contained|stated|specified|provided|included|given|answered|addressed"
    r"|indicated|identified|named|found|discussed|described|available|clear|present|listed"
    r"|answerable|there)"
)
_I_CANNOT = (
    r"(?:cannot|can\s?not|can't|could\s+not|couldn't|am\s+(?:not\s+able|unable)\s+to"
    r"|was\s+(?:not\s+able|unable)\s+to|were\s+(?:not\s+able|unable)\s+to|will\s+not|won't)"
)
_FIND_OUT = (
    r"(?:answer|find|determine|tell|say|provide|give|identify|confirm|verify|locate|establish"
    r"|help|conclude|know|predict|offer|name|work\s+out|infer|be\s+(?:sure|certain)|see)"
)

_OPENING = re.compile(
    r"(?:\s|[-*\u2022>#])*"
    r"(?:(?:(?:i\s*am|i'm|we\s+are)?\s*(?:very\s+|so\s+)?(?:sorry|afraid)|unfortunately|apologies"
    r"|(?:i|we|my)\s+apologi[sz]e|regrettably|well|however|thus|therefore|so|hence|also"
    r"|(?:the\s+)?(?:final\s+)?answer\s*(?::|is\b:?)"
    rf"|(?:based|relying|going)\s+(?:solely\s+|only\s+)?on\s+{_GIVEN}{_TEXTS}"
    r"(?:\s+(?:provided|given|above|available))?"
    r"|without\s+(?:\w+\s+){0,3}?(?:information|context|details?|evidence|documents?)"
    rf"|(?:from|according\s+to|given|in|with)\s+{_GIVEN}{_TEXTS}"
    r"(?:\s+(?:provided|given|above|available))?"
    r"|as\s+an?\s+\w+(?:\s+\w+){0,2}"
    r")\s*[,:;.!]?\s*(?:but\s+|that\s+)?)*",
    re.IGNORECASE,
)
"""Words that may precede a refusal."""

_CONTRACTED = re.compile(r"(?<=\bit)'s\b|(?<=\bthere)'s\b", re.IGNORECASE)
_LEADS_UP = re.compile(rf"\b{_TEXTS}\b|\b(?:sorry|afraid|apolog)", re.IGNORECASE)
"""Words that announce a refusal."""

_REFUSES = re.compile(
    rf"""(?:
    (?:i|we)\s+(?:do\s+not|don't|didn't|did\s+not)\s+(?:really\s+|actually\s+)?
        (?:know(?!\s+of\b)|have\b(?:\s+\w+){{0,4}}\s+(?:information|answer|knowledge|data|evidence|details?)
        |(?:find|see)\b{_HERE}|think\s+{_THEM})
    |(?:i|we)\s+have\s+no\s+(?:information|idea|answer|knowledge|data|evidence)
    |(?:i|we)\s+(?:found|find|see)\s+(?:nothing\b|no\s+(?:\w+\s+){{0,3}}
        (?:(?:information|mention|answers?)\b|(?:documents?|passages?|references?|details?|sources?)\b
        {_HERE}))
    |(?:i'm|we're)\s+(?:not\s+able|unable)\s+to\s+{_FIND_OUT}
    |i\s+{_I_CANNOT}\s+(?:\w+ly\s+)?{_FIND_OUT}
    |we\s+{_I_CANNOT}\s+(?:\w+ly\s+)?{_FIND_OUT}\b{_HERE}
    |(?:i|we)(?:\s+am|'m|\s+are|'re)\s+not\s+(?:sure|certain|aware)
    |{_THEM}\s+{_NOT}\s+(?:\w+ly\s+)?(?:(?:appear|seem)\s+to\s+)?{_TELL}
    |{_THEM}\s+(?:do(?:es)?\s+not|don't|doesn't)\s+either(?=\W*$)
    |(?:neither|nor)\s+do(?:es)?\s+{_THEM}(?=\W*$)
    |{_THEM}\s+(?:do(?:es)?|says?)\s+not(?=\W*$)|{_THEM}\s+(?:don't|doesn't)(?=\W*$)
    |{_THEM}\s+(?:says?|mentions?|contains?|provides?|gives?|offers?|has|have|includes?|states?)
        \s+(?:nothing|no\s+(?:\w+\s+){{0,2}}(?:information|mention|details?|answers?|evidence
        |reference|indication|data))
    |{_THEM}\s+(?:is|are)\s+(?:not\s+(?:sufficient|enough|relevant|helpful)|insufficient|silent
        |irrelevant|unrelated)
    |{_THEM}\s+(?:lacks?|omits?|makes?\s+no\s+mention)
    |none\s+of\s+{_GIVEN}{_TEXTS}{_NUMBERED}\s+(?:say|mention|contain|state|specif|provid|include|give|tell
        |answer|address|indicate|identif|name|discuss|describe)\w*
    |(?:no|neither)\s+(?:of\s+)?{_GIVEN}{_TEXTS}{_NUMBERED}\s+(?:\w+ly\s+)?(?:say|mention|contain
        |state|specif|provid|include|give|tell|answer|address|indicate|identif|name|discuss
        |describe|supports?)\w*
    |there\s+(?:(?:is|was|are)\s+(?:no|not\s+(?:enough|sufficient|any)|insufficient))\s+
        (?:\w+\s+){{0,2}}(?:information\s+(?:about|on|regarding|concerning)\b
        |mention\s+of\b(?![^.]*\bin\b)
        |(?:information|mention|answers?|details?|context|data|reference)\b{_HERE})
    |there\s+(?:is|was|are)\s+(?:no|nothing|not)\b[^.]{{0,160}}?{_WHERE}
    |no(?:t\s+enough)?\s+(?:\w+\s+){{0,2}}(?:information|mention|answer|details?)\b
        (?:{_HERE}|[^.]{{0,80}}?\b(?:is|was|are|can\s+be|could\s+be)\s+(?:\w+ly\s+)?
        {_TOLD}\b(?:\s+(?:about|on|regarding|concerning)\b|{_HERE}))
    |(?:this|that|the)?\s*(?:question\s+)?(?:cannot|can\s?not|can't|could\s+not)\s+be\s+
        (?:answered|determined|found|inferred|established)\b{_HERE}
    |(?:the|this|that|his|her|its|their)\s+(?:[\w'-]+\s+){{1,8}}?(?:(?:is|was|are|were|has\s+been)
        \s+(?:not|nowhere|never)\s+(?:\w+ly\s+)?{_TOLD}|(?:cannot|could\s+not|can't)\s+be\s+
        (?:determined|inferred|found|answered))\b[^.]{{0,40}}?{_WHERE}
    |(?:the|his|her|its|their)\s+(?:[\w'-]+\s+){{1,8}}?(?:is|was|are|were)\s+
        (?:not|nowhere|never)\s+(?:\w+ly\s+)?(?:mentioned|stated|specified|indicated)(?=\W*$)
    |it\s+(?:is|was)\s+(?:not|nowhere|never)\s+(?:\w+ly\s+)?
        (?:said|mentioned|stated|specified|indicated|provided|given|clear|known|available)\b
        (?=\W*$|[^.]{{0,160}}?{_WHERE})
    |it\s+(?:is|was)\s+(?:not|never)\s+(?:\w+ly\s+)?(?:said|mentioned|stated|specified)\s+
        (?:who|what|when|where|which|how|why|whether|if)\b
    |it\s+(?:is|was)\s+(?:unclear|unknown)(?=\W*$|[^.]{{0,160}}?{_WHERE})
    |it\s+cannot\s+be\s+determined\b{_HERE}
    |(?:not|nowhere|never)\s+(?:\w+ly\s+)?{_TOLD}\b(?=\W*$|[^.]{{0,160}}?{_WHERE})
    |(?:cannot|can\s?not|can't|could\s+not|couldn't|not\s+able\s+to)\s+(?:\w+ly\s+)?{_FIND_OUT}\b{_HERE}
    |(?:the|this|that|my)\s+(?:\w+\s+)?(?:answer|question)\s+(?:(?:cannot|can't|could\s+not|can\s+not)\s+be
        |remains?\s+(?:open|un\w+)|is\s+(?:not\s+)?(?:unanswered|unanswerable|answerable|impossible))
    |(?:it\s+is\s+)?(?:impossible|not\s+possible)\s+to\s+{_FIND_OUT}\b{_HERE}
    |(?:it\s+)?remains?\s+(?:unclear|unknown|unanswered|open)(?=\W*$)
    |there(?:\s+is|'s|\s+was)\s+no\s+(?:way|basis)\s+(?:of|to|for)\s+\w+{_HERE}
    |(?:no|there\s+is\s+no)\s+(?:\w+\s+)?(?:answer|conclusion)\s+(?:can|could|is|was)\s+(?:be\s+)?\w+\b{_HERE}
    |(?:not|nowhere)\s+(?:\w+\s+)?{_WHERE}(?=\W*$)
    |(?:i|we)\s+(?:(?:must|have\s+to|will|would)\s+)?(?:\w+\s+)?(?:decline|refrain)
    |(?:i(?:\s+would|'d)|we(?:\s+would|'d))\s+(?:only\s+|just\s+)?(?:be\s+guessing|rather\s+not|need\s+more)
    |{_THEM}\s+leaves?\s+(?:\w+\s+){{0,3}}?(?:open|unanswered)
    |nothing\s+(?:here|in\s+(?:them|{_GIVEN}{_TEXTS}))\s+\w+
    |no\s+answer\s*:
    |(?:the\s+)?(?:answer|information)\s+(?:\w+\s+)?(?:is|was)\s+(?:not|nowhere|unknown|unclear|missing)
        (?:\s+(?:\w+ly\s+)?(?:{_TOLD}|known))?\b{_HERE}
    |(?:answer|information)?\s*(?:unknown|unclear|unanswerable|unavailable|n/?a
        |insufficient\s+information|cannot\s+answer|can't\s+answer|unable\s+to\s+answer
        |don't\s+know|do\s+not\s+know|no\s+idea|dunno)(?=\W*$|,)
    |(?:insufficient|not\s+enough)\s+(?:information|evidence|context|data)\b
        (?:{_HERE}|\s+to\s+(?:answer|determine|say|tell)\b)
    |unable\s+to\s+{_FIND_OUT}\b{_HERE}
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_NEGATES = re.compile(
    r"\b(?:not|no|nor|never|nothing|nowhere|none|neither|cannot|unable|unknown|unclear|insufficient"
    r"|lacks?|omits?|fails?|silent|irrelevant|unrelated|impossible|unanswerable|unavailable|n/?a"
    r"|missing|decline|refrain|guessing|need\s+more|open|unanswered|dunno)\b|n't\b",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"(?:[,;:]|\s[-\u2013\u2014])\s*(?:but|however|yet|though|although|still|nevertheless"
    r"|instead)\b"
    r"|,?\s+so\s+(?:i|we)\s+(?:rely|go|use|answer|will|would|turn)\b"
    r"|\b(?:but|however)\s+(?:it|they|he|she|the|we|i|there|document|passage)\b",
    re.IGNORECASE,
)
"""Words after which a sentence gives an answer after all."""
_BESIDES = re.compile(
    rf"(?:(?:instead|rather|only)[,\s]+)?"
    rf"(?:{_THEM}\s+)?(?:only\s+|merely\s+|just\s+|both\s+|all\s+)*"
    r"(?:(?:mentions?|discuss(?:es)?|describes?|focus(?:es)?|contains?|concerns?|talks?|covers?"
    r"|deals?|refers?)\b|(?:is|are)\s+(?:only\s+)?(?:about|on|concerned|related)\b)"
    r"|(?:please|if\s+you|let\s+me\s+know|you\s+(?:may|might|could|can)|would\s+you|could\s+you"
    r"|can\s+you|i\s+hope|i\s+(?:would|can|could|recommend|suggest)|more\s+(?:context|information)"
    r"|further\s+(?:context|information))\b",
    re.IGNORECASE,
)
"""Additions to a refusal: the topic of its documents, offers of help."""

_PRONOUN = re.compile(r"(?:it|they|neither|none)\s+", re.IGNORECASE)
"""Pronouns for the documents, after a sentence about them."""


def is_refusal(text: str) -> bool:
    """Whether a text declines to answer, in every sentence apart from additions to a refusal.

    "I don't know", "The passage does not say", "The documents do not contain ...", "There is no
    information on ...", "Not mentioned." and their like. A sentence that goes on to say something
    ("..., but ...") is no refusal, and neither is a fact that sounds like one: "The author is
    unknown", "The treaty does not mention slavery". What people say of the world too ("It is
    impossible to see ...", "There is no data ...") declines only where the sentence ends there, or
    speaks of the given texts or of the question. An empty text is not a refusal.
    """
    refused = of_texts = False
    for sentence in sentences(text):
        resolved = _PRONOUN.sub("the documents ", _stripped(sentence)) if of_texts else sentence
        declines = refuses(resolved)
        if not (declines or _BESIDES.match(_stripped(resolved))):
            return False
        refused, of_texts = refused or declines, True
    return refused


def refuses(sentence: str) -> bool:
    """:func:`is_refusal` for a single sentence."""
    stripped = _stripped(sentence)
    match = _REFUSES.match(stripped)
    if match is None and _LEADS_UP.search(_plain(sentence)[: -len(stripped) or None]):
        match = _REFUSES.match(f"{stripped.rstrip(' .!')} in the documents")
    return bool(match and _NEGATES.search(stripped) and not _GOES_ON.search(stripped))


def _stripped(sentence: str) -> str:
    """A sentence without emphasis and introductory words."""
    plain = _plain(sentence)
    return plain[_OPENING.match(plain).end() :]  # type: ignore[union-attr]


def _plain(sentence: str) -> str:
    plain = re.sub(r"\*\*|__|[\"\u201c\u201d]", "", sentence.replace("\u2019", "'"))
    plain = _CONTRACTED.sub(" is", " ".join(plain.split()))
    return re.sub(r"\b(is|are|was|were)n't\b", r"\1 not", plain, flags=re.IGNORECASE)
