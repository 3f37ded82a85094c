"""Questions on real files and on two notes: ``python -m benchmarks.own_documents``.

The files are indexed as ``selfcorrect-rag index`` does it, each question is asked through Self-RAG
with the reader, and an answer is right if it contains what the file says. Prints one line of JSON
for each half, the notes first. Look at the set-aside half at the end of a piece of work only.
"""

import argparse
import json
import random
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reader_training.kept_out import write_texts
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.prompts.refusals import is_refusal
from selfcorrect_rag.reader.reader_llm import ReaderLLM
from selfcorrect_rag.search import Index, index_paths

QUESTIONS = Path(__file__).with_name("questions.jsonl")
PASSAGES = 5
"""Passages retrieved for a question."""
NOTES = {
    "staging.md": (
        "The staging server runs on port 8443. Deployments happen every Tuesday at 10:00. Ask "
        "Priya Natarajan for access. The database is PostgreSQL 15 on db2.internal, and its "
        "backups are kept for 30 days."
    ),
    "canteen.md": (
        "The canteen is on the third floor. It opens at 11:30 and closes at 14:00. A vegetarian "
        "meal costs 4.50 euros, and coffee is free for visitors."
    ),
}
PLAIN_QUESTIONS = (
    ("Which port does the staging server run on?", "8443"),
    ("When do deployments happen?", "Tuesday"),
    ("Who do I ask for access to the staging server?", "Priya Natarajan"),
    ("Which database do we use?", "PostgreSQL"),
    ("Where does the database run?", "db2.internal"),
    ("How long are backups kept?", "30 days"),
    ("Which floor is the canteen on?", "third"),
    ("When does the canteen open?", "11:30"),
    ("How much does a vegetarian meal cost?", "4.50"),
    ("Who gets free coffee?", "visitors"),
    ("Who is the head of marketing?", ""),
    ("What is the wifi password?", ""),
)
"""Questions on the notes and what an answer contains; empty: the notes do not say."""


def plain(text: str) -> str:
    """Lower case with single spaces."""
    return " ".join(text.lower().split())


def is_right(said: str, row: dict[str, Any]) -> bool:
    """Whether an answer contains an accepted one, or each item of a list."""
    text = re.sub(r"^\W+|\W+$", "", plain(said))
    if any(plain(answer) in text for answer in row["answers"]):
        return True
    items: list[list[str]] = row.get("all_of") or []
    return bool(items) and all(any(plain(form) in text for form in item) for item in items)


def ask(llm: ReaderLLM, folder: Path, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each question's answer, whether it was retrieved, right or refused, and its seconds."""
    with tempfile.TemporaryDirectory() as place, Index(place) as index:
        index_paths([folder], index)
        graph = create_self_rag(llm, index.as_retriever(PASSAGES), settings={"mode": "always"})
        asked = []
        for row in rows:
            begun = time.process_time()
            result = graph.invoke({"question": row["question"]})
            said = result["answer"]
            passages = " ".join(document.page_content for document in result["passages"])
            asked.append(
                {
                    **row,
                    "said": said,
                    "seconds": time.process_time() - begun,
                    "retrieved": is_right(passages, row),
                    "refused": is_refusal(said),
                    "right": is_right(said, row) and not is_refusal(said),
                    "cited": [c["title"] for c in result["citations"]],
                }
            )
    return asked


def summary(name: str, asked: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Shares with 95 % intervals by bootstrap over questions."""
    answerable = [row for row in asked if row["answers"]]
    unanswerable = [row for row in asked if not row["answers"]]
    wrong = [not row["right"] and not row["refused"] for row in asked]
    return {
        "set": name,
        "questions": len(asked),
        "right_of_answerable": share([row["right"] for row in answerable]),
        "retrieved_of_answerable": share([row["retrieved"] for row in answerable]),
        "refused_of_answerable": share([row["refused"] for row in answerable]),
        "refused_of_unanswerable": share([row["refused"] for row in unanswerable]),
        "wrong_of_all": share(wrong),
        "cpu_seconds_a_question": round(sum(row["seconds"] for row in asked) / len(asked), 3),
    }


def share(values: Sequence[bool]) -> list[float]:
    """The mean, and the ends of its interval."""
    drawn, count = random.Random(0), len(values)
    means = sorted(sum(drawn.choices(values, k=count)) / count for _ in range(1000))
    return [round(number, 3) for number in (sum(values) / count, means[25], means[974])]


def main() -> None:
    """Ask the questions of the halves that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", action="append", choices=["open", "set_aside"])
    parser.add_argument("--reader", type=Path, help="By default the shipped one.")
    parser.add_argument("--answer-above", type=float)
    parser.add_argument("--rows", type=Path, help="Where to write each question's row as JSONL.")
    args = parser.parse_args()
    options = {} if args.answer_above is None else {"answer_above": args.answer_above}
    llm = ReaderLLM.load(args.reader, **options) if args.reader else ReaderLLM.load(**options)
    rows = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    done: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        notes = Path(place) / "notes"
        notes.mkdir()
        for name, text in NOTES.items():
            (notes / name).write_text(text, encoding="utf-8")
        plain_rows = [
            {"question": question, "answers": [answer] if answer else []}
            for question, answer in PLAIN_QUESTIONS
        ]
        done += ask(llm, notes, plain_rows)
        print(json.dumps(summary("notes", done)), flush=True)
        files = Path(place) / "files"
        files.mkdir()
        missing = write_texts(files)
        for half in args.half or ["open"]:
            some = [row for row in rows if row["half"] == half and row["file"] not in missing]
            asked = ask(llm, files, some)
            print(json.dumps({**summary(half, asked), "missing_files": missing}), flush=True)
            done += asked
    if args.rows:
        args.rows.write_text("".join(json.dumps(row) + "\n" for row in done), encoding="utf-8")


if __name__ == "__main__":
    main()
