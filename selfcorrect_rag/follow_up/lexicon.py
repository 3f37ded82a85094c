"""English words by what they do in a question, for the rules about follow-ups."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


AUXILIARIES = _words(
    "is are was were am do does did can could will would shall should may might must has have had "
    "isn't aren't wasn't weren't don't doesn't didn't can't couldn't won't"
)
"""Words that ask for yes or no at the beginning of a question."""
BE = _words("is are was were been be has have had isn't aren't wasn't weren't")
WH = _words("who whom whose what which when where why how who's what's where's")
LINKS = _words("in at on from with near")
"""Between two noun phrases they make one: "the gym in Bergen"."""
PARTS = _words("of for about")
"""What stands behind them is the topic, not what they belong to: "the port of Grafana"."""
NAMING = _words(
    "treaty battle city town kingdom republic island siege peace house bank lord museum fall"
)
"""Nouns that are part of the name behind "of"."""
DEFINITE = _words("the our my your")
DETERMINERS = DEFINITE | _words("a an")
ENDS = (
    AUXILIARIES
    | WH
    | LINKS
    | PARTS
    | DETERMINERS
    | _words(
        "and or but if that this these those than as to by into onto over under after before since "
        "until during through between against within without per via up down off out away back be "
        "been being not no i you he she it we they me him her us them his its their there here now "
        "today tomorrow yesterday already still again ago so then else too because while each "
        "every any some all both"
    )
)
"""Words that stand in no noun phrase."""
PREDICATES = _words("down up off out here there still not already")
"""What may follow a subject and "is" as all that is said of it."""
ADVERBS = _words(
    "daily weekly monthly yearly usually normally currently exactly really actually often always "
    "never first alone automatically"
)
VERBS = _words(
    "add allow answer apply arrive ask begin belong break build buy call change charge check "
    "close come connect contain cost cover crash create deliver depend die do draw eat employ end "
    "expire fail fall feel fit get give go grow happen have hold include keep know last lead "
    "learn leave let like listen live load look lose make mean measure meet move need offer open "
    "own pay play produce provide publish reach read receive remove require restart return run "
    "say see sell send serve set ship show sit sleep speak spend stand start stay stop store "
    "support take teach tell think travel turn use wait want weigh win work write"
)
PARTICIPLES = _words(
    "born bought broken brought built caught chosen done drawn driven fallen found given gone "
    "grown held hidden hit kept known laid led left lost made meant met paid put read run said "
    "seen sent set shown shut sold spent spoken stolen sung taken taught thrown told understood "
    "won worn written open free available ready"
)
"""Participles without -ed, and the commonest adjectives that are said of a thing."""
CALENDAR = _words(
    "january february march april may june july august september october november december monday "
    "tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays "
    "fridays saturdays sundays"
)
NO_NAMES = CALENDAR | _words("i i'm i've i'd i'll ok")
INSIDE = _words("of the de la le du da dos von van der den del di bin ibn al el y and")
"""Small words inside names."""
NUMBERED = _words("war part volume chapter type phase class act")
STARTS = (
    ENDS
    | ADVERBS
    | _words(
        "name list tell give find show explain describe compare thanks thank please yes hi hello "
        "hey okay great cool well"
    )
)
"""Words that have a capital where they begin a sentence, and are no names."""
LEADS = _words("and but or so ok okay then thanks")
"""Words before a question that are no part of it."""
PERSON_NOUNS = _words(
    "person author writer poet painter artist singer actor actress director composer architect "
    "inventor founder founders president king queen minister chancellor mayor ceo boss manager "
    "head leader owner player scientist engineer developer maintainer colleague employee man "
    "woman brother sister wife husband mother father son daughter friend teacher doctor"
)
PLACE_NOUNS = _words("place city town capital country village state region island street building")
HAVING = _words("include includes have has offer offers contain get provide give")
"""Verbs behind which something new is spoken of."""
THINGS = _words("it its")
GROUPS = _words("they them their theirs")
PERSONS = _words("he she him her his hers")
POSSESSIVE = _words("its their theirs his hers")
GOES = _words("get go travel come move fly drive walk went moved")
IMPERSONAL = _words(
    "matter happen true possible impossible necessary allowed correct right rain raining snow "
    "snowing going like worth depends seems says"
)
"""Words behind an "it" that refers to no thing."""
IMPERSONAL_TO = _words(
    "cost costs ok okay legal safe likely easy hard difficult better best good bad important "
    "clear required mean possible"
)
"""The same where "to" or "that" follows."""
CLOCK = _words("time day date year weather")
JOINS = _words("and if when but so or then because while after")
GROUP_NOUNS = _words(
    "team teams company companies band bands group groups club clubs organisation organization "
    "university firm startup labs inc gmbh ltd corp foundation"
)
SETTING = _words(
    "change changed set configure configured override increase reset find see spell calculated "
    "measured mean"
)
"""What is done to the values of things rather than to them."""
SOMEONE = _words("someone somebody anyone anybody everyone everybody people")
NEUTRAL = _words("for of about")
VALUES = _words(
    "address age area author birthday capital code color colour cost currency date deadline "
    "default email fee founder height length license limit location manager meaning name number "
    "owner password phone population port price purpose reason release sister size speed status "
    "title url user username value version weight"
)
"""What things have, rather than things."""
ORDINALS = _words("one ones other others same rest first second third last next")
SMALL_TALK = _words(
    "thanks thank you ok okay great cool nice perfect good hi hello hey yes no sure please got it "
    "i see very much a lot so fine wow right interesting awesome"
)
LIVES = _words("born die died live lived marry married buried study grow sit sleep eat")
"""What is said of persons."""
