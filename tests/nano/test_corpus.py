"""The demo corpus: files that parse, passages of the right size, answers that can be found."""

import json
import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

CORPUS = Path(__file__).resolve().parents[2] / "selfcorrect_rag" / "nano" / "corpus"

# fmt: off
SMALL_WORDS = {
    "a", "an", "and", "are", "at", "did", "do", "does", "for", "from", "how", "in", "into",
    "is", "it", "its", "many", "much", "named", "of", "on", "that", "the", "to", "used",
    "was", "were", "what", "when", "where", "which", "who", "whose", "with", "year",
}
# fmt: on


def load(name: str) -> list[dict]:
    return [json.loads(line) for line in (CORPUS / name).read_text(encoding="utf-8").splitlines()]


PASSAGES = load("passages.jsonl")
QUESTIONS = load("questions.jsonl")
BY_TITLE = {passage["title"]: passage for passage in PASSAGES}
WEB = {page["title"]: page["text"] for page in load("web.jsonl")}
FACTS = [row for row in QUESTIONS if row["kind"] == "fact"]
MISLEADING = [row for row in QUESTIONS if row["kind"] == "misleading"]


def stands_in(phrase: str, text: str) -> bool:
    """Whether the phrase stands in the text as whole words, whatever the case."""
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE) is not None


def content_words(question: str) -> list[str]:
    words = re.findall(r"[^\W_]+", re.sub(r"'s\b", "", question))
    return [word for word in words if word.lower() not in SMALL_WORDS]


def subject(question: str) -> list[str]:
    """What a question is about: its capitalised words and numbers, or else all content words."""
    words = content_words(question)
    return [word for word in words if word[0].isupper() or word[0].isdigit()] or words


def holders(question: str, answers: list[str]) -> list[str]:
    """Titles of the passages with an accepted answer and every word of the question's subject."""
    found = []
    for passage in PASSAGES:
        whole = f"{passage['title']}\n{passage['text']}"
        answered = any(stands_in(answer, passage["text"]) for answer in answers)
        if answered and all(stands_in(word, whole) for word in subject(question)):
            found.append(passage["title"])
    return found


def test_sizes():
    assert 260 <= len(PASSAGES) <= 320
    assert 120 <= len(QUESTIONS) <= 160
    kinds = Counter(row["kind"] for row in QUESTIONS)
    assert set(kinds) == {"fact", "no_retrieval", "misleading"}
    assert kinds["fact"] >= 100
    assert kinds["no_retrieval"] >= 20
    assert kinds["misleading"] >= 20


def test_shapes():
    for passage in PASSAGES:
        assert set(passage) == {"title", "text"}
    for row in QUESTIONS:
        assert set(row) - {"web_answers"} == {"question", "answers", "title", "kind"}
        assert isinstance(row["answers"], list)
        assert all(answer.strip() == answer != "" for answer in row["answers"])
    assert len(BY_TITLE) == len(PASSAGES), "a title stands twice"
    assert len({passage["text"] for passage in PASSAGES}) == len(PASSAGES)
    asked = {row["question"].casefold() for row in QUESTIONS}
    assert len(asked) == len(QUESTIONS), "a question stands twice"


@pytest.mark.parametrize("passage", PASSAGES, ids=lambda passage: passage["title"])
def test_passage(passage):
    text = passage["text"]
    assert 35 <= len(text.split()) <= 120
    assert text == " ".join(text.split())
    assert text.endswith(".")
    assert text[0].isupper() or text[0].isdigit()


def test_plain_text():
    strings = [value for passage in PASSAGES for value in passage.values()]
    strings += [string for row in QUESTIONS for string in (row["question"], *row["answers"])]
    for string in strings:
        assert unicodedata.is_normalized("NFC", string)
        assert not re.search(r"[\[\]<>{}|\\`#*_]", string), f"a control token or markup? {string}"
        odd = [c for c in string if not c.isascii() and not unicodedata.category(c).startswith("L")]
        assert not odd, f"{odd} in {string}"


@pytest.mark.parametrize("row", FACTS, ids=lambda row: row["question"])
def test_fact(row):
    """Each answer stands verbatim in the gold passage, and only there beside the subject."""
    gold = BY_TITLE[row["title"]]
    assert row["answers"]
    for answer in row["answers"]:
        assert answer in gold["text"]
        assert stands_in(answer, gold["text"])
    assert subject(row["question"])
    assert holders(row["question"], row["answers"]) == [row["title"]]


@pytest.mark.parametrize("row", MISLEADING, ids=lambda row: row["question"])
def test_misleading(row):
    """Looks close to some passage, is answered by none."""
    assert row["title"] is None
    assert row["answers"] == []
    words = content_words(row["question"])
    assert any(stands_in(word, passage["text"]) for word in words for passage in PASSAGES)
    assert holders(row["question"], row["web_answers"]) == []


def test_no_retrieval():
    for row in QUESTIONS:
        if row["kind"] != "no_retrieval":
            continue
        assert row["title"] is None
        said = re.fullmatch(r"(?:Repeat|Say|Repeat after me): (.+)\.", row["question"])
        if said:
            assert row["answers"] == [said[1]]
        sums = re.search(r"(\d+) ([+-]|times) (\d+)", row["question"])
        if sums:
            left, right = int(sums[1]), int(sums[3])
            right_answer = {"+": left + right, "-": left - right, "times": left * right}[sums[2]]
            assert row["answers"] == [str(right_answer)]


@pytest.mark.parametrize("row", MISLEADING, ids=lambda row: row["question"])
def test_the_corpus_that_plays_the_web_answers_what_the_other_does_not(row):
    words = content_words(row["question"])
    assert row["web_answers"]
    for answer in row["web_answers"]:
        holding = [title for title, text in WEB.items() if stands_in(answer, text)]
        assert any(stands_in(word, title + " " + WEB[title]) for title in holding for word in words)


def test_pages_of_the_web_are_plain_text_and_others_than_the_passages():
    assert not {p["text"] for p in PASSAGES} & set(WEB.values())
    for title, text in WEB.items():
        assert 30 <= len(text.split()) <= 90, title
        assert not re.search(r"[\[\]<>{}|\\`#*_]", title + text)
