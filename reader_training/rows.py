"""Questions with passages: those that answer them, those that were retrieved, and the rows set
aside.

Sets that people wrote are in ../shared/data. Kept out of training altogether: split 3 of the sets
with retrieved passages, which only measures, and split 2, which calibrates; the development
questions of PopQA, HotpotQA, MuSiQue and Bamboogle; and the questions on the documents of
`benchmarks/own_documents`.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from selfcorrect_rag.reader.reader import compare_title

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""The folder of real data, beside the checkout."""
QUESTIONS = Path(__file__).parent / "questions"
"""The folder of questions written for this training."""
READING = ("covidqa", "fairytaleqa", "qed")
"""Sets of ``data/reading`` with answers."""
HELD_OUT = 0.08
"""Share of the documents of each set of ``data/reading`` that is set aside."""
NQ_HELD_OUT = 0.2
"""Share of the questions of NQ-open that is set aside."""


class Row(NamedTuple):
    """A question and a passage."""

    question: str
    title: str
    passage: str
    answers: tuple[str, ...]
    """Each a substring of the passage; empty: the passage does not answer."""
    source: str
    """The set."""


class Retrieved(NamedTuple):
    """A question with the passages, title and text, that a dense retriever found in all of
    Wikipedia, best first."""

    question: str
    answers: tuple[str, ...]
    passages: list[tuple[str, str]]
    source: str
    """popqa, triviaqa, or multihop, where an answer in one passage may be a chance."""

    def stated(self, title: str, text: str) -> tuple[str, ...] | None:
        """Return the answers that a passage states; None if it has one, perhaps by chance.

        PopQA's answers are countries and professions, which pages of namesakes have too.
        """
        found = tuple(answer for answer in self.answers if mentions(answer, text))
        is_chance = self.source == "multihop" or (
            self.source == "popqa" and compare_title(self.question, title)[1] > 0
        )
        return None if found and is_chance else found


class Split(NamedTuple):
    """Rows to train on, and rows that are set aside."""

    train: list[Row]
    held_out: list[Row]


def real_rows() -> Split:
    """Return all real questions with a passage; the first answer is the shortest form.

    Raises:
        FileNotFoundError: the folder of real data is not there.
    """
    split = Split([], [])
    for row in natural_questions():
        split[drawn(row.question, NQ_HELD_OUT)].append(row)
    # QED has questions of NQ-open: none may be on one side here and on the other there.
    trained, kept = ({_plain(row.question) for row in side} for side in split)
    for name in READING:
        for found in lines(DATA / "reading" / f"{name}.jsonl.gz"):
            answers = [tidy(answer) for answer in found["answers"]]
            answers = sorted(answers, key=len) if name == "qed" else answers
            passage = tidy(found["passage"])
            row = Row(found["question"], found["title"], passage, tuple(answers), name)
            if not all(answer in row.passage for answer in row.answers):
                continue
            held_out = drawn(row.title, HELD_OUT)
            if _plain(row.question) not in (trained if held_out else kept):
                split[held_out].append(row)
    return split


def split_of(question: str) -> int:
    """Return the split of a question with retrieved passages: 0 and 1 train, 2 calibrates, and 3
    measures and nothing else."""
    return int(hashlib.md5(question.lower().encode()).hexdigest(), 16) // 2 % 4


def retrieved(*splits: int) -> list[Retrieved]:
    """Return the questions of these splits that are not for yes or no."""
    found = []
    for name in ("retrieved5_dev", "multihop_retrieved_dev"):
        for row in lines(DATA / f"{name}.jsonl.gz"):
            answers = tuple(dict.fromkeys(answer.strip() for answer in row["answers"]))
            if split_of(row["question"]) in splits and not {"yes", "no"} & set(answers):
                passages = [(each["title"], tidy(each["text"])) for each in row["passages"]]
                source = row.get("set", "multihop")
                found.append(Retrieved(row["question"], answers, passages, source))
    return found


def retrieved_rows(*splits: int) -> list[Row]:
    """Return each passage retrieved for a question of these splits, if it surely answers or surely
    does not."""
    return [
        Row(asked.question, title, text, stated, f"retrieved: {asked.source}")
        for asked in retrieved(*splits)
        for title, text in asked.passages
        if (stated := asked.stated(title, text)) is not None
    ]


def mentions(answer: str, text: str) -> list[tuple[int, int]]:
    """Return where an answer stands in a text as whole words; one of three letters at most, such as
    "US", only as it is written."""
    answer = answer.strip(" .,;:")
    pattern = rf"(?<!\w){re.escape(answer)}(?!\w)"
    flags = re.IGNORECASE if len(answer) > 3 else re.NOFLAG
    return [found.span() for found in re.finditer(pattern, text, flags)] if answer else []


def natural_questions() -> Iterator[Row]:
    """Return NQ-open's questions whose gold passage states the answer word for word."""
    for found in lines(DATA / "nq_open_oracle_2655.jsonl.gz"):
        gold = found["ctxs"][0]
        passage = tidy(gold["text"])
        answers = sorted((a for a in map(tidy, found["answers"]) if a in passage), key=len)
        if answers:
            yield Row(found["question"], gold["title"], passage, tuple(answers), "nq")


def drawn(text: str, share: float) -> bool:
    """Whether a text is among this share of all texts, by its hash."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) < share * 16**8


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Iterate over the objects of a file of JSON lines, compressed or not."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    yield from map(json.loads, text.decode().splitlines())


def tidy(text: str) -> str:
    """Remove repeated white space, and the spaces of a treebank's tokens."""
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r" (?=[,.;:!?)\]%]|'s\b|n't\b|'\w\w?\b)", "", text)
    text = re.sub(r"(?<=[(\[$]) ", "", text)
    return re.sub(r"`` ?| ?''", '"', text).replace(" -- ", " – ").strip()


def _plain(question: str) -> str:
    return " ".join(re.findall(r"\w+", question.lower()))


def encyclopedia() -> list[tuple[str, str]]:
    """Return further passages, of Wikipedia: title and text."""
    pages = json.loads((DATA / "2wikimultihopqa_corpus_6119.json").read_text())
    return [(page["title"], tidy(page["text"])) for page in pages]


def pages() -> list[tuple[str, str]]:
    """Return the passages of PopQA, HotpotQA and MuSiQue, right ones and others."""
    found = [
        (page["title"], tidy(page["text"]))
        for row in lines(DATA / "popqa_dev_741.jsonl")
        for page in row["paragraphs"]
    ]
    corpus = json.loads((DATA / "hotpotqa_train100_corpus.json").read_text())
    found += [(title, tidy("".join(text))) for title, text in corpus.items()]
    found += [
        (page["title"], tidy(page["paragraph_text"]))
        for row in _musique()
        for page in row["paragraphs"]
    ]
    return found


def _musique() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((DATA / "musique_train100.json").read_text())
    return rows
