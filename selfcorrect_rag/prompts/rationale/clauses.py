"""Reads what a clause of a rationale says of the documents that it names: the English of use and
dismissal. Documents stand in it as marks (`selfcorrect_rag.prompts.rationale.mentions`)."""

import re
from enum import IntEnum

from selfcorrect_rag.prompts.rationale.mentions import BEGIN, END, MARK


class Stance(IntEnum):
    """A judgement of a document; over a rationale, the highest stance decides."""

    NAMED = 0
    TOPIC = 1
    """Its topic is told, and no more."""
    REPORTED = 2
    """Its content is told, or it is cited as a source."""
    LACKING = 3
    """It lacks something."""
    USEFUL = 4
    IRRELEVANT = 5


FLAGS = re.IGNORECASE

_NOT = r"(?:\bnot|n['’]t|\bnor|\bless|\bhardly|\bcannot|\bnever|\bneither)"
_ADVERBS = r"(?:(?!not\b)[\w-]+ ){0,3}?"
OTHER = (
    r"(?:(?:an? |the |some |quite |entirely |completely |totally |only |about ){0,3}"
    r"(?:different|another|other|others|separate|rival|wrong|unrelated|similarly[- ]named)\b"
    r"|not (?:the|a) (?:same|right|one)\b|some(?:one|thing|body|where) else|others\b|elsewhere\b)"
)

_HEDGED = re.compile(r"\b(?:appear|seem|tend|happen|serve)s? to ", FLAGS)
_SEEMING = re.compile(
    r"\b(?:might|may|could|at first\w*|initially|on the surface)\b[^,.;]{0,40}?\b(?:(?:ir)?relevant"
    r"|(?:un)?(?:useful|helpful|related)|promising|off-topic|tangential)\b"
    r"|(?:\b(?:you|one|we|I)\b|['’]d\b) (?:\w+ ){0,2}?(?:think|thought|expect|expected|hope"
    r"|hoped)\b[^,.;]{0,80}"
    r"|\b(?:seem|look|appear|sound)(?:s|ed)?\b[^,.;]{0,30}?\b(?:relevant|useful|helpful|promising"
    r"|related) (?:at first|initially|on the surface)",
    FLAGS,
)
"""Hedges: to seem so is not to be so."""

IRRELEVANT = re.compile(
    r"\birrelev\w+|\bunrelated\b|\bunhelpful\b|\buseless\b|\boff[- ]?(?:the[- ])?topic\b"
    r"|\b(?:beside|besides|off) the (?:point|mark|subject)\b|\btangential\b|\bimmaterial\b"
    rf"|{_NOT} {_ADVERBS}(?:relevant|useful|helpful|help|helps|related|pertinent|needed|need"
    rf"|necessary|applicable|aligned"
    r"|consider(?:ed)?|used?|using|concerned?|concerns|about|rely|relied|relying|count|matter"
    r"|matters|belong|enter"
    r"|apply|applies|connected|required|of (?:use|help|interest|value|relevance)|(?:to"
    r"|on) the (?:purpose|point|topic)"
    r"|want(?:ed)?|take|taken|trust|trusted|consult(?:ed)?|look|draw|drew|cite|include|included"
    r"|counted"
    r"|what (?:is|was|['’]s|I|we|the question|you)|what(?:['’]s)? (?:is |was )?(?:meant|needed"
    r"|asked|wanted))\b"
    r"|\bno (?:\w+ ){0,2}?(?:relevance|use|help|bearing|connection|relation|relationship|interest"
    r"|concern|value|good|part|role|need|link|place)\b"
    rf"|\b(?:nothing|little|naught) (?:at all )?(?:to (?:do|see) with|of (?:use|help|value"
    rf"|interest|relevance)|useful|relevant|helpful)"
    r"|\b(?:ignor|disregard|dismiss|discard|exclud|reject|eliminat|discount|skip|omit|ditch)(?:e"
    r"|ed|ing|s|p|ped|ping|t|ted)?\b"
    r"|\b(?:forget|drop(?:ped)?|toss|avoid(?:ed)?) (?:about )?(?=[\x02(\"]|it\b|them\b|that\b"
    r"|this\b|those\b|the (?:others?|rest)\b)"
    r"|\b(?:set|put|push|left|leave|leaving|lay|laid|cast|toss)(?:ting)? (?:\S+ ){0,4}?(?:aside"
    r"|out|apart|away)\b"
    r"|\brul(?:e|ed|ing) (?:\S+ ){0,3}?out\b|\b(?:is|are|was|were) (?:both |all |therefore "
    r"|also )?out\b|\bpass(?:ed|ing)? (?:\w+ ){0,2}?over\b|\bnot it\b|\b(?:trap|decoy)\b"
    r"|\bnois[ey]\b|\bdistract\w*|\bmismatch|\bred herring|\bfalse (?:friend|lead|match)"
    r"|\bmislead|\bby mistake\b"
    r"|\b(?:wrong|mistaken|incorrect|false|inaccurate|untrue|coincidental|unused|unneeded"
    r"|unnecessary)\b|\bdead end\b|\b(?:tangent|veer|stray|wander|digress|confus)(?:s|es|ing"
    r"|ion)?\b|\bdecided against\b"
    r"|\bturn(?:s|ed) out (?:not|to (?:be about|concern|deal))\b|\bdrop(?:ped)?\W*$"
    r"|\beverything else\b|\bn/a\b|\btoo (?:general|vague|broad|generic|short|old|thin)\b"
    r"|\b(?:is|are) (?:just |only |very |rather )?(?:generic|general|vague)\b"
    r"|\boutside (?:of )?(?:the |this |our )?(?:scope|question|topic)|\bout of (?:scope|place)\b"
    r"|\bin(?:applicable|apposite)\b|\bunusable\b|\bworthless\b|\bpointless\b|\bof little (?:use"
    r"|help|value|relevance)\b|\bwaste of\b"
    r"|\bunsuitable\b|\bunreliable\b|\boutdated\b|\bmiss(?:es|ed)? the (?:point|mark)\b"
    r"|\bfar from (?:relevant|useful|helpful)\b|(?:=|,|\bso|\bhence|—|–|-|:) ?(?:no|nope|nah)\W*$"
    rf"|{END} ?[:=–—-]+ ?not(?!\w)|[✗✘❌✖]",
    FLAGS,
)
_INFORM = (
    r"(?:mention|provide|contain|state|answer|address|specify|discuss|help|refer|give|include|say"
    r"|support|indicate"
    r"|match|relate|name|offer|tell|describe|explain|talk|have|identify|confirm|reveal|show"
    r"|clarify|cover|deal"
    r"|speak|list|add|touch|bear|record|note|report|concern|find|found|see|saw|locate|yield|hold"
    r"|prove|establish)"
)
LACKING = re.compile(
    rf"{_NOT} {_ADVERBS}{_INFORM}\w*|{_NOT} {_ADVERBS}(?:given|stated|mentioned|found|listed"
    rf"|specified|provided)\b"
    r"|\b(?:fails?|failed|lacks?|lacked|lacking|omits?|omitted|neither|silent|missing|misses"
    r"|unlike|useless)\b"
    r"|\bno (?:\w+ ){0,2}(?:information|mention|answers?|details?|evidence|reference|date|name"
    r"|word|trace|sign|indication|data|clue|hint)\b"
    r"|\bwithout (?:\w+ ){0,2}(?:mention|provid|giv|stat|nam|answer|specif|say|tell)"
    rf"|(?:[:=|(,]|\b(?:but|about|concern(?:s|ed|ing)?|describes?|covers?|on|cover|discuss(?:es)?"
    rf"|refers? to|deals? with|of|for|is|are|was|were|mentions?|treats? of)) ?{OTHER}"
    r"|\b(?:nothing|none|nowhere|nobody)\b|\bbut (?:not|no|nothing|never)\b|\b(?:rather than"
    r"|instead(?: of)?)\b|\bin passing\b(?! that)"
    r"|\b(?:is|are|was|were|about)\b[^.;]{0,80}, not (?:the|an?|about|of|from)\b"
    r"|\b(?:marginal|loose|vague|remote|superficial|peripheral|slight|partial"
    r"|bare)ly (?:relevant|useful"
    r"|helpful|related|relates|touches|connected)\b|\bwould (?:only )?(?:be|help"
    r"|have been)\b[^.;]{0,60}\b(?:if|only)\b",
    FLAGS,
)
POSITIVE_NOT = re.compile(
    rf"{_NOT} {_ADVERBS}(?:irrelevant|unrelated|unhelpful|useless|wrong|contradict\w*|conflict\w*"
    rf"|disagree\w*|dispute\w*"
    r"|ignored?|ignoring|dismissed|overlook\w*|disregarded|doubt\w*|without)\b|\bnot only\b"
    r"|\bnot just\b|\bno doubt\b|\bno other\b",
    FLAGS,
)
USEFUL = re.compile(
    r"\b(?:useful|helpful|relevant|pertinent|according to|based on|supports?|supported|supporting"
    r"|confirm(?:s|ed|ing)?"
    r"|corroborat\w+|back(?:s|ed|ing)?|answer(?:s|ed)|key|essential|crucial|decisive|sufficient"
    r"|suffices?|settles?|helps?|helped"
    r"|of (?:use|help|value|interest|relevance)|needed|need|used?|using|rel(?:y|ied|ies"
    r"|ying)(?: \w+ly)? on"
    r"|consult(?:ed)?|keep|kept|in (?:line|agreement|accord)\b|explicit|exactly|conclusive"
    r"|definitive"
    r"|drew on|draw(?:ing|n)? (?:on|from)|consistent with|agrees?|can be used|sources?|evidence"
    r"|as per|per|thanks to"
    r"|directly|took|taken|learn(?:ed|t)?|gave me|(?:any|much|some|very) (?:good|use|help)"
    rf"|matters?|trust|where (?:I|we|it)|go(?:ing|es)? with|went with|(?:leaves|left with) "
    rf"(?:(?:only|us|me|with) )*{BEGIN})\b"
    r"|[✓✔✅]",
    FLAGS,
)

# What a document that stands as the subject does


_LEAD = re.compile(
    r"(?:[\W\d]|\b(?:and|ok|okay|but|or|so|also|both|only|while|whereas|although|though|as|since"
    r"|because|which|that|well|then|however"
    r"|firstly|secondly|finally|first|second|next|meanwhile|likewise|similarly|additionally"
    r"|moreover|furthermore|on|the|other"
    r"|hand|contrast|by|in|addition|not|with|regard|respect|to|for|neither|nor|either|therefore"
    r"|thus|hence|if|i|think|see|out|"
    r"turning|looking|at|moving|come|of|it|yet|still|note|unfortunately|[\w]+ly|alone|page"
    r"|article|text|list|entry|biography|documents?|passages?)\b)*",
    FLAGS,
)
_SUBJECT = re.compile(
    rf"{END}(?:['’]s (?:\w+ ){{1,2}}(?=\w+s\b))?(?: "
    rf"?\([^()]{{0,100}}\))?(?:,[^,{BEGIN}]{{1,60}},(?= ))? ?[,:=—–|-]? ?"
    r"(?P<adverbs>(?:(?:also|both|all|each|itself|themselves|it|they|he|she|again|then|too"
    r"|clearly|however|only|merely|just"
    r"|simply|even|still|does|do|did|would|will|can|could|may|might"
    r"|alone|\w+ly) )*)(?P<verb>[^\W\d_]+(?:n['’]t)?)\b(?P<rest>.*)",
    re.DOTALL | FLAGS,
)
_BE = re.compile(
    r"is|are|was|were|be|being|been|isn't|aren't|wasn't|weren't|appears|appear|seems|seem|looks"
    r"|look|turns|turned|proves|proved",
    FLAGS,
)
_NO_VERB = re.compile(
    r"and|or|nor|of|in|on|at|by|for|from|with|to|as|because|since|if|when|where|who|which|that"
    r"|whose|there|the|a|an|no|not|yes|only|alone|together|but|so|while|than|then",
    FLAGS,
)
_TOPIC_VERBS = re.compile(
    r"(?:is|are|was|were|'s|seems?|appears?)? ?(?:to be )?(?:just |only |merely |mainly |also "
    r"|all |both |simply |either |more |solely |rather |mostly |actually |instead )*"
    r"(?:abo?ut?|abuot|concern(?:s|ed|ing)?|deal(?:s|ing|t)?(?: only| mainly)? with|discuss(?:es"
    r"|ed|ing)?|focus(?:es|ed|ing)?|treats? of|tells? (?:us |me )?about|talk(?:s|ed|ing)?"
    r"|cover(?:s|ed|ing)?|has to do with|have to do with|revolves?|centers?|centres?|relates?"
    r"|refers?|on)\b",
    FLAGS,
)
_REPORT = re.compile(
    r"(?:state|say|mention|note|report|explain|indicate|reveal|show|describe|confirm|suggest"
    r"|claim|imply|implie|tell|told"
    r"|establish|add|identify|identifie|name|list|give|gave|credit|record|place|specify|specifie"
    r"|read|put|call)(?:s|es|d|ed)?",
    FLAGS,
)
_NO_OBJECT = re.compile(
    r" (?:about |of |us |me )?(?:nothing|none|no|neither|little|only|merely|not|(?:an? "
    r"|the )?(?:different|other|another|wrong)|someone|something)\b",
    FLAGS,
)
REPORTING = re.compile(
    r"\b(?:\w+ing|which|it|says?|states?) (?:(?!means|makes|implies)\w+ )?that\b.*",
    FLAGS | re.DOTALL,
)
_FINITE = re.compile(
    r"\b(?:wrote|written|born|said|won|became|led|made|gave|given|built|died|took|taken|came"
    r"|began|sang|sung|told|found|held"
    r"|is|was|were|are|has|had|have|can|will|did|does|do)\b|\b(?!series\b|species\b)\w{2,}(?:ed"
    r"|es|[^su\W]s)\b",
    FLAGS,
)
_NEGATED = re.compile(
    r"(?:^| )(?:not|never|hardly|barely|scarcely|neither|nor|cannot|no|nothing|none|nobody"
    r"|little)\b|n['’]t\b",
    FLAGS,
)
_MERELY_A = re.compile(r" (?:only|merely|just|simply) (?:an?|the) (?!one|thing)", FLAGS)
_MERELY = re.compile(r"\b(?:only|merely|just|simply)\b", FLAGS)


def of_named(clause: str) -> Stance:
    """The stance that a clause gives the documents that it names."""
    clause, is_praised = POSITIVE_NOT.subn(" ", clause)
    clause = _SEEMING.sub("seems", _HEDGED.sub("also ", clause))
    clause = " ".join(clause.replace('""', " quoted ").split(" "))
    subject = _as_subject(clause)
    shown = _without_content(clause, subject)
    if _ELLIPSIS.search(clause):
        return Stance.USEFUL
    if verdict := _by_mark(clause):
        return verdict
    if _is_attribution(clause):
        return Stance.REPORTED if not _MISSING_THERE.search(clause) else Stance.LACKING
    if IRRELEVANT.search(shown):
        return Stance.IRRELEVANT
    if subject:
        stance = _of_subject(subject, clause)
        if stance is not None:
            return Stance.USEFUL if stance <= Stance.REPORTED and is_praised else stance
    if LACKING.search(shown):
        return Stance.LACKING
    if is_praised or USEFUL.search(shown):
        return Stance.USEFUL
    if _is_cited(clause):
        return Stance.REPORTED
    if _NEGATED.search(clause.split(BEGIN)[0]):
        return Stance.LACKING
    return Stance.REPORTED if _IN.search(clause) else Stance.NAMED


def _without_content(clause: str, subject: re.Match[str] | None) -> str:
    """The clause without what its documents are said to say."""
    if subject and _REPORT.fullmatch(subject["verb"]) and not _NO_OBJECT.match(subject["rest"]):
        return clause[: subject.start("rest")]
    return REPORTING.sub("", clause)


_YES = re.compile(
    rf"{END}(?: ?[|:=–—-]+|,) ?(?:yes|high\b|✓|✔|✅)|\| ?(?:yes|useful|relevant|helpful|✓|✔"
    rf"|✅) ?(?:\||$)",
    FLAGS,
)
_NO = re.compile(
    rf"{END} ?[|:=–—-]+ ?(?:no|none|low|nope|nah|✗|✘|❌|✖)(?!\w)"
    rf"|{END}, no(?=,)|{END}(?:,[^{BEGIN}]*,)? (?:\w+ )?(?:no|not)\W*$|\| ?(?:no|irrelevant|✗|✘"
    rf"|❌|✖) ?(?:\||$)",
    FLAGS,
)


def _by_mark(clause: str) -> Stance | None:
    """The verdict of "2: yes", or of a row of a table."""
    if _YES.search(clause):
        return Stance.USEFUL
    return Stance.IRRELEVANT if _NO.search(clause) else None


_ATTRIBUTION = re.compile(
    rf"\W*(?:(?:well|and|but|as|while|first|second|because|since|also|so)\b,? ?)*(?:in|from"
    rf"|acc?ording to|per|as per|based on|by|given|if we look at"
    rf"|(?!regarding|concerning|turning|moving|\w*thing\b)\w+ing(?: (?:at|by|on|to|from"
    rf"|together))?)"
    rf" (?:both )?(?:the )?(?:\w+ )?(?:\"\" ?)?\(?{MARK}(?:(?:, | and |, and ){MARK})*\)?(?:[,:]"
    rf"| |$)(?! ?(?:and|or)\b)",
    FLAGS,
)
_MISSING_THERE = re.compile(
    rf"{END},? (?:there (?:is|are|was)(?: no\b| nothing| not\b|n['’]t)|(?:I|we) (?:find|found|see"
    rf"|saw|can find|have|do not|don['’]t|did not|didn['’]t"
    r"|could not|couldn['’]t|cannot|can['’]t)(?: find| see)? ?(?:no|nothing|any|anything)|nothing"
    r"|no )\b",
    FLAGS,
)
_IN = re.compile(
    rf"\b(?:in|from|by|both) (?:the )?\(?{BEGIN}|\b(?:see|vide|cf\.?|look at) (?:also )?{BEGIN}"
    rf"|\b(?:says?|states?|notes?|writes?) {BEGIN}",
    FLAGS,
)


def _is_attribution(clause: str) -> bool:
    """Whether it begins "In Document 2," and goes on with what stands there."""
    return bool(_ATTRIBUTION.match(clause)) and not IRRELEVANT.search(clause.split(END)[0])


_CITED = re.compile(
    rf"[\w\"][^{BEGIN}]*[(\[](?:[a-z.]{{1,12}} )?{BEGIN}"  # "... (Document 2)", "[see Document 2]"
    rf"|\w.*\w\W{{0,3}}{BEGIN}[^{END}]* {END}(?:[ ,]*(?:and )?{MARK})*\W*$"  # "... [2][4]."
    rf"|^\W*(?:{MARK}[\W]*(?:and )?)+$",  # names alone
    FLAGS | re.DOTALL,
)


def _is_cited(clause: str) -> bool:
    """Whether the documents stand in it as the source of what it says."""
    return _CITED.search(clause) is not None


_GROUP = re.compile(
    rf"(?:{MARK}(?: ?\([^()]{{0,100}}\)|,[^,{BEGIN}]{{1,60}},)?(?:,? (?:and|or|nor|&|as well as"
    rf"|in) (?:both )?|, )(?=(?:the )?{BEGIN})(?:the )?)*{MARK}",
    FLAGS,
)


_BEFORE_SUBJECT = re.compile(
    r"\b(?:which|as|that|the \w+ (?:in|of|at)|both|and) (?:both )?$", FLAGS
)


def _as_subject(clause: str) -> re.Match[str] | None:
    """The predicate of the documents, where they are the subject of the clause."""
    lead = clause.split(BEGIN)[0]
    if not _LEAD.fullmatch(lead.split("(")[0]) and not _BEFORE_SUBJECT.search(lead):
        return None
    if lead.endswith("(") and lead.strip() != "(":
        return None
    group = _GROUP.search(clause)
    return _SUBJECT.match(clause, group.end() - 1) if group else None


_DENIED_SUBJECT = re.compile(r"\b(?:neither|not|nor|none of)\b", FLAGS)
_DENIED_VERB = re.compile(
    r"(?:(?:also|both|really|simply|just|even|itself|actually|\w+ly) )*(?:\w+n['’]t"
    r"|(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|may|might|must|should)"
    r" (?:\w+ly |really |even )?(?:not|never|neither|hardly|no longer)\b"
    r"|(?:cannot|never|not|hardly|neither|fails?|failed|lacks?|omits?)\b)",
    FLAGS,
)
_NOTHING = frozenset(["nothing", "none", "other", "another", "different"])
_TO_OTHERS = re.compile(rf"^ (?:about |to |on |of )?{OTHER}", FLAGS)
_ONLY = re.compile(
    r" (?:(?:only|merely|just)\b(?! (?:in|on|after|by|at|once|from)\b)"
    r"|(?:nothing|none|no|neither|little)\b)| (?:us|me) (?:only|nothing|little)\b",
    FLAGS,
)
_COLON = re.compile(rf"{END}(?: ?\([^()]*\))? ?[:=|—–-]")


def _of_subject(predicate: re.Match[str], clause: str) -> Stance | None:
    """None where the rest of the clause must tell."""
    adverbs, verb, rest = predicate["adverbs"].lower(), predicate["verb"].lower(), predicate["rest"]
    after = f"{adverbs}{verb}{rest}"
    lead = clause[: clause.index(BEGIN)]
    if _DENIED_SUBJECT.search(lead) or _DENIED_VERB.match(after) or verb in _NOTHING:
        return Stance.LACKING
    if _TOPIC_VERBS.match(after):
        if _AND_SAYS.search(rest):
            return Stance.REPORTED
        return Stance.LACKING if LACKING.search(after) else Stance.TOPIC
    is_colon = _COLON.match(predicate[0]) is not None
    if _BE.fullmatch(verb) and _MERELY_A.match(rest):
        return Stance.LACKING
    if _BE.fullmatch(verb) and not (is_colon and adverbs):
        return Stance.REPORTED if _AND_SAYS.search(rest) else None
    if _MERELY.search(adverbs) or _ONLY.match(rest):
        return Stance.LACKING
    if _TO_OTHERS.search(rest) or _SHORT_OF.search(rest):
        return Stance.LACKING
    if is_colon and not _FINITE.search(after) and not _FACT.search(after):
        return None if IRRELEVANT.search(after) or USEFUL.search(after) else Stance.TOPIC
    if _NO_VERB.fullmatch(verb) and not (is_colon and _FINITE.search(after)):
        return None
    if _BACKGROUND.match(after) and not _AND_SAYS.search(rest):
        return Stance.NAMED
    if USEFUL.search(after.split(" that ")[0]):
        return Stance.USEFUL
    return Stance.REPORTED


_FACT = re.compile(r"\d|[\"→]|\bquoted\b|->")
"""In what only names something, after a colon: it answers rather than tells what it is about."""
_BACKGROUND = re.compile(
    r"(?:\w+ly )?(?:gives?|offers?|contains?|provides?|has) (?:(?:some|the|an?|more|general"
    r"|useful|brief) )*(?:history|background|biography|context|overview|introduction|summary)\b",
    FLAGS,
)
"""Background on the subject, on which the answer does not rest."""
_AND_SAYS = re.compile(
    r",? (?:stating|saying|noting|telling|explaining|mentioning|naming|confirming|adding|showing"
    r"|giving)\b|^ (?:how|why|when|who|that)\b"
    r"|\band (?:also |it )?(?:(?:says?|states?|notes?|tells?|names?|gives?|mentions?|adds?)\b"
    r"|[a-z]+s (?:that|he|she|it|they|him|her|how|who|when|where)\b)",
    FLAGS,
)


_ELLIPSIS = re.compile(
    rf"^(?:\w+ ){{0,2}}{MARK}(?: (?:and|or) {MARK})* (?:is|are|does|do|did|was|were|has|have)\W*$",
    FLAGS,
)
"""An affirmative verb that stands for what was said before: "Document 2 is"."""

_LIKEWISE = re.compile(
    rf"\W*(?:and |but )?(?:the )?(?:both )?{MARK}(?:(?:,| and|, and|,? or) {MARK})*,?"
    rf" (?:(?:is|are|does|do|did|says?) )?(?:so )?(?:likewise|similarly|the same|too"
    rf"|as well)\W*$|\W*(?:and |but )?(?:(?:so|nor|neither|as|likewise) (?:is|are|was|were|do"
    rf"|does|did|has|have|can|could|will|would)\b"
    rf"|(?:the )?same (?:(?:goes|holds|applies|is true|can be said|with)\b)|ditto\b|likewise\b,?)"
    rf"(?: true)?(?: (?:for|of|to|about))?:? (?:the )?(?:both )?{MARK}(?:(?:,| and|, and|,? or"
    rf"|,? nor) {MARK})*\W*$",
    FLAGS,
)


def is_likewise(clause: str) -> bool:
    """Whether it says of its documents what was said before: "so is Document 3"."""
    return _LIKEWISE.match(clause) is not None


_SHORT_OF = re.compile(
    r"\bin passing\b(?! that)|^ (?:\w+ ){0,4}?(?:open|out|unsaid|unanswered)\b|\bbut (?:not|no"
    r"|nothing|never)\b|\bwithout (?:\w+ )?(?:mention|provid|giv|stat|nam|answer"
    r"|specif|say|tell|identif|address)"
    r"|\b(?:of|with|by|shar\w+|bear\w+) (?:only )?(?:the|a|an) (?:same"
    r"|similar) (?:\w+ )?(?:sur)?name\b|\bnamesake",
    FLAGS,
)


def is_topic(clause: str) -> bool:
    """Whether a clause says what its documents are, or are about, and no more."""
    return of_named(clause) in (Stance.NAMED, Stance.TOPIC)


_GAPPED = re.compile(
    rf"\W*(?:and |but )?{MARK}(?: ?\([^()]{{0,100}}\))?,? (?:an?|the|with|to|of|on"
    rf"|from)\b(?P<rest>.*)",
    FLAGS,
)


def is_gapped(clause: str) -> bool:
    """Whether its verb is the one of the clause before: "and Document 2 the author"."""
    match = _GAPPED.match(clause)
    return bool(match and not _FINITE.search(match["rest"]))
