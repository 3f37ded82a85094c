"""Write the generator's rows with tokens by gold knowledge, where the critic is too weak:
``python -m smollm2_training.gold --out FILE [--data FILE] [--further ROWS] [--retrieved]
[--written ROWS]``.

Algorithm 3 gives a question one passage. Here a question of ``--data`` gets up to two that state an
answer, and half of them one that states none. So [Relevant] is the commoner judgement: after
[Irrelevant] the generator learns to guess, and a small one that cannot tell passages apart writes
the commoner one. Where there is time to train on more, ``--further`` adds rows of the reader's
stream, with all its kinds of passages that do not answer, ``--retrieved`` every passage that was
retrieved for the questions of splits 0 and 1, and ``--written`` rows that an assistant wrote. In
these some outputs are wrong: of such an output only the tokens are learned.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from reader_training.mixture import all_rows, draw_rows
from reader_training.rows import (
    HELD_OUT,
    QUESTIONS,
    Row,
    drawn,
    lines,
    mentions,
    retrieved,
    retrieved_rows,
)
from selfcorrect_rag.journal import read_rows, write_rows
from selfcorrect_rag.prompts.parts import quoted
from selfcorrect_rag.reader.reader import Passage, Reader
from selfcorrect_rag.reflection import (
    CONTINUE,
    END_PARAGRAPH,
    FULLY_SUPPORTED,
    IRRELEVANT,
    NO_RETRIEVAL,
    NO_SUPPORT,
    PARAGRAPH,
    PARTIALLY_SUPPORTED,
    RELEVANT,
    RETRIEVAL,
    UTILITY,
)
from selfcorrect_rag.search.documents import split
from selfcorrect_rag.training.rows import as_document

MOST = 2
"""Most passages of a question that state an answer."""
SEED = 2
SHARE = 0.5
"""Share of the questions that get a passage without an answer, and of the stream's rows with an
answer that come again with a wrong one."""
BATCH = 256
"""Rows that the reader reads at once."""
WORDS, OVERLAP = 90, 20
"""Length of the passages that a note is cut into."""
WRITTEN = Path(__file__).with_name("written.jsonl")
SUPPORT = {"full": FULLY_SUPPORTED, "partial": PARTIALLY_SUPPORTED, "no": NO_SUPPORT}


def label_row(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the outputs of a row of ``instructions.jsonl``.

    With answers: the best passages that state one, at most :data:`MOST`, each with the answer as it
    stands there, and for a :data:`SHARE` of the questions the best that states none, with the
    accepted answer; all are fully useful, as a right answer is. Without: what needs no retrieval,
    of the sets that need none.
    """
    if "answers" not in row:
        if row["set"] in ("arc", "selfrag") and not row.get("retrieves"):
            yield f"{NO_RETRIEVAL}{quoted(row['output'])}{UTILITY[4]}"
        return
    stating, others = [], []
    for page in map(as_document, row["documents"]):
        title, text = page.metadata["title"], page.page_content
        if stated := [a for a in row["answers"] if mentions(a, f"{title}\n{text}")]:
            stating.append(right_output(title, text, max(stated, key=len)))
        else:
            others.append(f"{read(title, text)}{IRRELEVANT}{quoted(row['output'])}{UTILITY[4]}")
    yield from stating[:MOST]
    if Random(row["question"]).random() < SHARE:
        yield from others[:1]


def right_output(title: str, text: str, answer: str) -> str:
    """Return the output for a passage that states the answer."""
    return f"{read(title, text)}{RELEVANT}{quoted(answer)}{FULLY_SUPPORTED}{UTILITY[4]}"


def read(title: str, text: str) -> str:
    """Return the beginning of an output for a passage."""
    whole = quoted(f"{title}\n{text}".strip())
    return f"{RETRIEVAL}{PARAGRAPH}{whole}{END_PARAGRAPH}"


def judge_rows(
    rows: Iterable[Row], share: float, accepted: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a row with the answer for each that has one, and for this share of them one with
    the reader's best span that is wrong; for each other row the reader's best span, or for half of
    those on a question of ``accepted`` its answer, as in Algorithm 3: without such rows the
    generator writes gibberish behind [Irrelevant]."""
    reader, chance, stream = Reader.load(), Random(SEED), iter(rows)
    while some := list(islice(stream, BATCH)):
        readings = reader.read([(r.question, Passage(r.title, r.passage)) for r in some])
        for row, reading in zip(some, readings, strict=True):
            made = {"instruction": row.question, "dataset_name": row.source}
            # A window may have lost some of the answers.
            stated = [answer for answer in row.answers if mentions(answer, row.passage)]
            if stated:
                answer = max(stated, key=len)
                yield {**made, "output": right_output(row.title, row.passage, answer)}
            elif row.answers:
                continue
            elif accepted and row.question in accepted and chance.random() < SHARE:
                output = f"{IRRELEVANT}{quoted(accepted[row.question])}{UTILITY[4]}"
                yield {**made, "output": read(row.title, row.passage) + output}
                continue
            wrong = [s.text for s in reading.spans if not _is_near(s.text, row.answers)][:1]
            if wrong and (not row.answers or chance.random() < share):
                relevant, support = (RELEVANT, NO_SUPPORT) if row.answers else (IRRELEVANT, "")
                output = f"{relevant}{quoted(wrong[0])}{support}{UTILITY[1]}"
                yield {**made, "output": read(row.title, row.passage) + output, "wrong": True}


def _is_near(span: str, answers: Iterable[str]) -> bool:
    return any(mentions(answer, span) or mentions(span, answer) for answer in answers)


def written_rows(held_out: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``written.jsonl``, without those of notes that are set aside, or these.

    A line has an ``instruction``, ``segments``, each with words of the note ``title`` that it is
    written from, its sentence and its support, and ``utility``. Of the kind "flawed" the output is
    wrong, and ``irrelevant`` says that the passages do not answer. After a segment from the same
    passage one may go on with it, or retrieve it again. Most instructions of the kind "sentence"
    come with a sentence on another note too.
    """
    notes = {note["title"]: note["text"] for note in lines(QUESTIONS / "notes.jsonl")}
    rows = [row for row in lines(WRITTEN) if drawn(row["title"], HELD_OUT) == held_out]
    for row in rows:
        output, last, chance = "", "", Random(row["instruction"])
        for near, sentence, support in row["segments"]:
            if not near:
                output += f" {quoted(sentence)}" if output else f"{NO_RETRIEVAL}{quoted(sentence)}"
                continue
            passage = _passage(notes[row["title"]], near)
            if row.get("irrelevant"):
                output += f"{read(row['title'], passage)}{IRRELEVANT}{quoted(sentence)}"
            elif passage == last and support == "full" and chance.random() < SHARE:
                output += f"{CONTINUE}{quoted(sentence)}"
            else:
                output += f"{read(row['title'], passage)}{RELEVANT}{quoted(sentence)}"
                output += SUPPORT[support]
            last = passage
        made = {"instruction": row["instruction"], "output": output + UTILITY[row["utility"] - 1]}
        yield {**made, "dataset_name": row["kind"], "wrong": row["kind"] == "flawed"}
        other = chance.choice(rows)
        near, sentence, _ = other["segments"][0]
        if row["kind"] == "sentence" and near and other["title"] != row["title"]:
            output = read(other["title"], _passage(notes[other["title"]], near))
            output += f"{IRRELEVANT}{quoted(sentence)}{UTILITY[0]}"
            yield {**made, "output": output, "dataset_name": "other note", "wrong": True}


def _passage(note: str, near: str) -> str:
    """The passage of a note that has those words, or most of them."""
    words = near.split()
    return max(
        (" ".join(piece.split()) for piece in split(note, WORDS, OVERLAP)),
        key=lambda text: (" ".join(words) in text, sum(word in text for word in words)),
    )


def main() -> None:
    """Write the rows, and print how many there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="instructions.jsonl")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--further", type=int, default=0, help="rows of the reader's stream")
    parser.add_argument(
        "--retrieved", action="store_true", help="rows of PopQA and TriviaQA, splits 0 and 1"
    )
    parser.add_argument("--written", type=int, default=0, help="most rows that an assistant wrote")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = [
        {"instruction": row["instruction"], "output": output, "dataset_name": row["set"]}
        for _, row in (read_rows(args.data) if args.data else ())
        for output in label_row(row)
    ]
    if args.further:
        stream = (row for row, relevant, _ in draw_rows(all_rows(), SEED) if relevant is not None)
        rows += islice(judge_rows(stream, SHARE), args.further)
    if args.retrieved:
        accepted = {asked.question: asked.answers[0] for asked in retrieved(0, 1)}
        passages = (row for row in retrieved_rows(0, 1) if row.source != "retrieved: multihop")
        rows += judge_rows(passages, SHARE, accepted)
    written = list(written_rows())
    rows += Random(SEED).sample(written, min(args.written, len(written)))
    rows = [{**row, "instruction": quoted(row["instruction"])} for row in rows]
    write_rows(args.out, rows)
    counts = {"rows": len(rows), "wrong": sum(row.get("wrong", False) for row in rows)}
    counts |= {t: sum(t in row["output"] for row in rows) for t in (RELEVANT, IRRELEVANT, CONTINUE)}
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
