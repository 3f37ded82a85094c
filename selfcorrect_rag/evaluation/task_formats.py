"""Reads a row of a data set as a question of an evaluation, by the fields that it has."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.errors import one_line
from selfcorrect_rag.evaluation.labels import REFLECTIONS, check_reflections
from selfcorrect_rag.evaluation.rows import Question
from selfcorrect_rag.evaluation.task_rows import BadRow

IDS = ("id", "_id", "qid", "question_id", "sample_id", "claim_id")
QUESTIONS = ("question", "query", "user_input", "ambiguous_question", "QUESTION")
ANSWERS = ("answers", "golden_answers", "possible_answers", "answer", "reference", "ground_truth")
PASSAGES = (
    "ctxs",
    "docs",
    "paragraphs",
    "passages",
    "contexts",
    "retrieved_contexts",
    "retrieval_result",
    "context",
    "passage",
    "CONTEXTS",
)
TEXTS = ("text", "paragraph_text", "contents", "page_content", "content", "passage")
"""Names that data sets give to the same field; the first that a row has counts."""
RELEVANT = ("is_supporting", "isgold", "is_gold", "hasanswer", "has_answer")
"""Fields of a passage that say whether it holds the answer."""
TRUTH = {"true": "true", "supports": "true", "false": "false", "refutes": "false"}
"""Labels of PubHealth and of FEVER, as Self-RAG writes them."""
BIOGRAPHY = "Tell me a bio of {topic}."
"""The prompt of FActScore (Min et al., 2023, section 3.4.1)."""

_UNFIT = re.compile("[\x00\ud800-\udfff]")


def question_of(
    row: object, number: int, format: str | None = None, fields: Mapping[str, str] | None = None
) -> Question:
    """The question of a row.

    Args:
        row: with text keys, as JSON gives it.
        number: of the row within its data, from 1; a row without an id is ``row-NUMBER``.
        format: a key of :data:`FORMATS`; None: the one that the row's fields are of.
        fields: names of this module and the names that the row has for them, as in
            ``{"question": "prompt"}``.

    Raises:
        BadRow: it is no question of this format; the message says why, after the row's place.
    """
    if not isinstance(row, Mapping):
        raise BadRow(f"is {_kind(row)}, not an object with fields")
    if any(map(_UNFIT.search, _texts(row))):
        raise BadRow("holds NUL or half of a surrogate pair")
    renamed = {ours: row[theirs] for ours, theirs in (fields or {}).items() if theirs in row}
    given = {**row, **renamed}
    if "golden_answers" in given and isinstance(given.get("metadata"), Mapping):
        given = {**given.pop("metadata"), **given}  # FlashRAG keeps all other fields there
    taken = Fields(given)
    name = taken.take(IDS)
    if isinstance(name, bool) or not isinstance(name, str | int | None):
        raise BadRow(f"has {_kind(name)} as its id")
    if REFLECTIONS in given:
        try:
            check_reflections(given[REFLECTIONS])
        except ValueError as error:
            raise BadRow(f"has {error}") from error
    found = FORMATS[format or _format(given)](taken)
    identity = str("" if name is None else name).strip() or f"row-{number}"
    found = found._replace(id=identity, extra={**taken.left, **found.extra})
    return found._replace(answers=(), unanswerable=True) if _unanswerable(given) else found


class Fields:
    """The fields of a row, which are taken out of it as they are read."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.left = dict(row)
        """Fields that no one has taken."""

    def take(self, names: Iterable[str]) -> Any:
        """The first field of ``names`` that is not null; None where there is none."""
        found = next((name for name in names if self.left.get(name) is not None), None)
        return None if found is None else self.left.pop(found)


def _format(row: Mapping[str, Any]) -> str:
    """The format that a row's fields are of."""
    has_answer = any(row.get(name) is not None for name in ANSWERS)
    if row.get("choices") or isinstance(row.get("question"), Mapping):
        return "arc"
    if row.get("claim") and not row.get("claims"):
        return "pubhealth"
    if row.get("qa_pairs"):
        return "asqa"
    if row.get("claims"):
        return "eli5"
    if row.get("topic") and not has_answer:
        return "bio"
    if "final_decision" in row:
        return "pubmedqa"
    if isinstance(row.get("answer"), bool):
        return "yes-no"
    return next((name for sign, name in _SIGNS.items() if sign in row), "qa")


# Formats


def _plain(fields: Fields) -> Question:
    """The papers' ``question, answers, ctxs``, and whatever names its fields alike."""
    question = _question(fields)
    answers = [*_answers(fields.take(ANSWERS)), *_answers(fields.take(("answer_aliases",)))]
    return _with_passages(question._replace(answers=_unique(answers)), fields)


def _plain_of(task: str) -> Callable[[Fields], Question]:
    """Plain questions of a data set that InstructRAG has an instruction for."""
    return lambda fields: _plain(fields)._replace(task=task)


def _arc(fields: Fields) -> Question:
    """Options with letters, as Self-RAG writes them: 1 to 4 become A to D, in answers too."""
    stem = fields.left.get("question")
    if isinstance(stem, Mapping):  # the first release: {"stem": .., "choices": [..]}
        fields.left |= {"question": stem.get("stem"), "choices": stem.get("choices")}
    question = _question(fields)
    options = _options(fields.take(("choices",)))
    letters = {key: chr(ord("A") + place) for place, key in enumerate(options)}
    if list(options) != [str(place) for place in range(1, len(options) + 1)]:
        letters = {key: key for key in options}
    given = fields.take(("answerKey", *ANSWERS))
    answers = []
    for answer in given if isinstance(given, list) else [given]:
        if isinstance(answer, int) and not isinstance(answer, bool) and str(answer) not in options:
            key = list(options)[answer] if 0 <= answer < len(options) else None
        else:
            texts = [key for key, text in options.items() if text == answer]
            key = str(answer) if str(answer) in options else texts[0] if len(texts) == 1 else None
        if key is not None:
            answers.append(letters[key])
        elif answer not in (None, ""):
            raise BadRow(f"has the answer {_shown(answer)}, which is none of {', '.join(options)}")
    choices = {letters[key]: text for key, text in options.items()}
    found = question._replace(answers=_unique(answers), choices=choices, task="arc")
    if letters != {key: key for key in options}:
        found = found._replace(extra={"answerKey": given})
    return _with_passages(found, fields)


def _pubhealth(fields: Fields) -> Question:
    """A statement, which is true or false; the labels of FEVER are read as such too."""
    question = _question(fields, ("claim", *QUESTIONS))
    label = fields.take((*ANSWERS, "label"))
    given = [one_line(item, 40).lower() for item in _listed(label)]
    answers = [TRUTH[item] for item in given if item in TRUTH]
    if len(answers) < len(given):
        raise BadRow(f"has the label {_shown(label)}, neither true nor false")
    choices = {"true": "true", "false": "false"}
    found = question._replace(answers=_unique(answers), choices=choices, task="pubhealth")
    return _with_passages(found, fields)


def _bio(fields: Fields) -> Question:
    """A biography of ``topic``, with FActScore's prompt where the row has no question."""
    topic = fields.left.get("topic")
    if not isinstance(topic, str) or not topic.strip():
        raise BadRow("has no topic")
    fields.left.setdefault("question", BIOGRAPHY.format(topic=topic.strip()))
    return _plain(fields)


def _asqa(fields: Fields) -> Question:
    """``qa_pairs`` and ``docs`` stay in ``extra``, as the metrics of ASQA read them, and so does
    the long answer; answers are all short answers."""
    question = _question(fields)
    pairs = fields.left.get("qa_pairs")
    if not isinstance(pairs, list) or not all(isinstance(pair, Mapping) for pair in pairs):
        raise BadRow("has no list of qa_pairs")
    answers = [text for pair in pairs for text in _answers(pair.get("short_answers"))]
    found = question._replace(answers=_unique(answers), task="asqa")
    documents = fields.left.get("docs")
    found = _with_passages(found, fields)
    return found if documents is None else found._replace(extra={**found.extra, "docs": documents})


def _eli5(fields: Fields) -> Question:
    """ALCE's ELI5: ``claims`` and the long ``answer`` stay in ``extra``; none is accepted alone."""
    return _with_passages(_question(fields)._replace(task="eli5"), fields)


def _pubmedqa(fields: Fields) -> Question:
    """Yes, no or maybe, with the abstract as passages."""
    return _labelled(_question(fields), fields.take(("final_decision",)), _DECISIONS, fields)


def _yes_no(fields: Fields) -> Question:
    """StrategyQA and BoolQ: the answer is a boolean, or the word."""
    question, answer = _question(fields), fields.take(ANSWERS)
    if isinstance(answer, bool):
        answer = "yes" if answer else "no"
    return _labelled(question, answer, _DECISIONS[:2], fields)


FORMATS: Mapping[str, Callable[[Fields], Question]] = {
    "qa": _plain,
    "arc": _arc,
    "asqa": _asqa,
    "bio": _bio,
    "eli5": _eli5,
    "pubhealth": _pubhealth,
    "pubmedqa": _pubmedqa,
    "yes-no": _yes_no,
    **{name: _plain_of(name) for name in ("popqa", "triviaqa", "nq", "2wikimultihopqa")},
}
_SIGNS = {
    "s_wiki_title": "popqa",
    "question_source": "triviaqa",
    "nq_annotated_gold": "nq",
    "evidences": "2wikimultihopqa",
}
"""Fields that only the rows of one data set have."""
_DECISIONS = ("yes", "no", "maybe")


def _labelled(question: Question, label: Any, labels: tuple[str, ...], fields: Fields) -> Question:
    answers = _answers(label)
    if not set(answers) <= set(labels):
        raise BadRow(f"has the answer {_shown(label)}, which is none of {', '.join(labels)}")
    choices = {name: name for name in labels}
    return _with_passages(question._replace(answers=_unique(answers), choices=choices), fields)


# Fields


def _question(fields: Fields, names: Iterable[str] = QUESTIONS) -> Question:
    text = fields.take(names)
    if text is None or text == "":
        raise BadRow("has no question")
    if not isinstance(text, str):
        raise BadRow(f"has {_kind(text)} as its question")
    if not text.strip():
        raise BadRow("has a blank question")
    return Question("", text.strip())


def _answers(given: Any) -> list[str]:
    """Accepted answers: a text, a number, a list of them, a list as JSON, or what TriviaQA and
    SQuAD write: ``{"value": .., "aliases": [..]}``, ``{"text": [..]}``."""
    if isinstance(given, Mapping):
        if not {"value", "aliases", "text"} & given.keys():
            raise BadRow("has an object as its answer, without value, aliases or text")
        return _answers([given.get("value"), given.get("aliases"), given.get("text")])
    found: list[str] = []
    for item in _listed(given):
        if isinstance(item, list):  # QAMPARI: aliases of each answer
            found += _answers(item)
        elif isinstance(item, str):
            found.append(item)
        elif isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item):
            raise BadRow(f"has {_kind(item)} as an answer")
        else:
            found.append(str(item))
    return found


def _listed(given: Any) -> list[Any]:
    """A value as a list without nulls. Text is a list where it begins like one: CSV has no other,
    and PopQA's own rows are so."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise BadRow(f"has {_shown(given)} as its answers, which is no JSON list") from error
    items = given if isinstance(given, list | tuple) else [given]
    return [item for item in items if item is not None]


def _options(given: Any) -> dict[str, str]:
    """Options by key, from a mapping, ``{"label": [..], "text": [..]}``, a list of ``{"label",
    "text"}`` or one of texts, which get the letters from A."""
    match given:
        case {"label": [*keys], "text": [*texts]} if len(keys) == len(texts):
            pairs = list(zip(keys, texts, strict=True))
        case {**options}:
            pairs = list(options.items())
        case [{}, *_] if all(isinstance(item, Mapping) for item in given):
            pairs = [(item.get("label"), item.get("text")) for item in given]
        case [*texts] if len(texts) <= 26:
            pairs = [(chr(ord("A") + place), text) for place, text in enumerate(texts)]
        case _:
            raise BadRow("has choices that are no options with keys and texts")
    if not all(isinstance(part, str) and part for pair in pairs for part in pair):
        raise BadRow("has choices that are no options with keys and texts")
    if len(dict(pairs)) < max(2, len(pairs)):
        raise BadRow("has fewer than two choices, or two of one key")
    return dict(pairs)


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


# Passages


def _with_passages(question: Question, fields: Fields) -> Question:
    """The question with its row's passages, and ``extra["relevant"]``, one boolean a passage,
    where the row says it of each."""
    given = fields.take(PASSAGES)
    if given is None:
        return question
    if isinstance(given, str):
        return question._replace(passages=(_passage(given, fields.take(("title",))),))
    if isinstance(given, Mapping):  # Hugging Face's HotpotQA: {"title": [..], "sentences": [..]}
        texts = given.get("sentences", given.get("content"))
        titles = given.get("title")
        if not (isinstance(titles, list) and isinstance(texts, list) and len(titles) == len(texts)):
            raise BadRow("has passages that are no list")
        given = [list(pair) for pair in zip(titles, texts, strict=True)]
    if not isinstance(given, list | tuple):
        raise BadRow(f"has {_kind(given)} as its passages")
    passages = tuple(map(_passage, given))
    relevant = _relevant(given, passages, fields)
    extra = question.extra if relevant is None else {**question.extra, "relevant": relevant}
    return question._replace(passages=passages, extra=extra)


def _passage(given: Any, title: Any = None) -> Document:
    """A passage as the graphs read it: its text, and ``title`` and ``source`` where known."""
    source = name = None
    match given:
        case str():
            text: Any = given
        case [str(heading), list(sentences)] if all(isinstance(part, str) for part in sentences):
            title, text = heading, " ".join(part.strip() for part in sentences)
        case Mapping():
            inner = given.get("metadata")
            known = {**(inner if isinstance(inner, Mapping) else {}), **given}
            text = next((known[key] for key in TEXTS if known.get(key) is not None), None)
            title = known.get("title", known.get("wikipedia_title"))
            source, name = known.get("source", known.get("url")), known.get("id")
            if title is None and isinstance(text, str) and text == known.get("contents"):
                first, _, rest = text.partition("\n")  # FlashRAG: the title is the first line
                title, text = (first.strip().strip('"'), rest) if rest else (None, text)
        case _:
            raise BadRow(f"has {_kind(given)} among its passages")
    if not isinstance(text, str):
        raise BadRow("has a passage without text")
    metadata = {
        key: value for key, value in (("title", title), ("source", source)) if value is not None
    }
    if not all(isinstance(value, str) for value in metadata.values()):
        raise BadRow("has a passage whose title or source is no text")
    return Document(text, metadata=metadata, id=None if name is None else str(name))


def _relevant(
    given: Iterable[Any], passages: Iterable[Document], fields: Fields
) -> tuple[bool, ...] | None:
    facts = fields.left.get("supporting_facts")
    if isinstance(facts, Mapping):
        facts = [[title] for title in _listed(facts.get("title"))]
    if isinstance(facts, list) and facts:
        titles = [fact[0] for fact in facts if isinstance(fact, list) and fact]
        return tuple(passage.metadata.get("title") in titles for passage in passages)
    rows = [item if isinstance(item, Mapping) else {} for item in given]
    flag = next((key for key in RELEVANT if all(isinstance(r.get(key), bool) for r in rows)), None)
    return None if flag is None or not rows else tuple(row[flag] for row in rows)


def _unanswerable(row: Mapping[str, Any]) -> bool:
    """Whether the row says that a refusal is right; in a table it does so by a word."""
    said = {name: str(row.get(name)).lower() for name in ("is_impossible", "unanswerable")}
    return "true" in said.values() or str(row.get("answerable")).lower() == "false"


# Checks


def _texts(value: Any) -> Iterable[str]:
    """All text within a value of JSON, keys as well."""
    left = [value]
    while left:
        match left.pop():
            case str() as text:
                yield text
            case Mapping() as fields:
                left += fields.keys()
                left += fields.values()
            case list() | tuple() as items:
                left += items


def _kind(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list"}
    if value is None:
        return "null"
    return names.get(type(value), "an object" if isinstance(value, Mapping) else "a value")


def _shown(value: object) -> str:
    return repr(one_line(value, 40))
