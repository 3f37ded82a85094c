"""Questions on thirty real files and on two notes: ``python -m benchmarks.own_documents``.

The files are indexed as ``selfcorrect-rag index`` does it, and each question is asked through
Self-RAG with the reader. An answer is right if it contains what the file says. Ends in one line of
JSON. Look at the set-aside half at the end of a piece of work only.
"""

import argparse
import json
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.own_documents.files import write_texts
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.evaluation.statistics import bootstrap_mean
from selfcorrect_rag.prompts.reading import is_refusal
from selfcorrect_rag.reader.reader_llm import ReaderLLM
from selfcorrect_rag.search import Index, index_paths

QUESTIONS = Path(__file__).with_name("questions.jsonl")
PASSAGES = 5
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


def is_right(said: str, row: dict[str, Any]) -> bool:
    """Whether an answer contains an accepted one, or each item of a list."""

    def plain(text: str) -> str:
        return " ".join(text.lower().split())

    text = re.sub(r"^\W+|\W+$", "", plain(said))
    items: list[list[str]] = row.get("all_of") or []
    in_full = bool(items) and all(any(plain(form) in text for form in item) for item in items)
    return in_full or any(plain(answer) in text for answer in row["answers"])


def ask(llm: ReaderLLM, folder: Path, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ask each question: was its answer retrieved, right or refused, and in how many seconds."""
    with tempfile.TemporaryDirectory() as place:
        index = Index(Path(place) / "index")
        index_paths([folder], index)
        graph = create_self_rag(llm, index.as_retriever(PASSAGES), settings={"mode": "always"})
        asked = []
        for row in rows:
            begun = time.process_time()
            result = graph.invoke({"question": row["question"]})
            said, seconds = result["answer"], time.process_time() - begun
            passages = " ".join(document.page_content for document in result["passages"])
            refused = is_refusal(said)
            found = {"said": said, "seconds": seconds, "refused": refused}
            right = is_right(said, row) and not refused
            asked.append({**row, **found, "retrieved": is_right(passages, row), "right": right})
    return asked


def summarise(asked: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Shares, each with the ends of its 95 % bootstrap interval."""

    def share(values: Sequence[bool]) -> list[float | None]:
        found = bootstrap_mean([float(value) for value in values])
        return [round(found.value, 3), *(end and round(end, 3) for end in found.ends)]

    known = [row for row in asked if row["answers"]]
    return {
        "questions": len(asked),
        "right_of_answerable": share([row["right"] for row in known]),
        "retrieved_of_answerable": share([row["retrieved"] for row in known]),
        "refused_of_answerable": share([row["refused"] for row in known]),
        "refused_of_unanswerable": share([row["refused"] for row in asked if not row["answers"]]),
        "wrong_of_all": share([not row["right"] and not row["refused"] for row in asked]),
        "cpu_seconds_a_question": round(sum(row["seconds"] for row in asked) / len(asked), 3),
    }


def main() -> None:
    """Ask the questions on the notes, and those of the halves that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", action="append", choices=["open", "set_aside"])
    parser.add_argument("--answer-above", type=float)
    parser.add_argument("--rows", type=Path, help="where to write each question's row as JSONL")
    args = parser.parse_args()
    llm = ReaderLLM.load(
        **({} if args.answer_above is None else {"answer_above": args.answer_above})
    )
    rows = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as place:
        notes, files = Path(place, "notes"), Path(place, "files")
        notes.mkdir()
        files.mkdir()
        for name, text in NOTES.items():
            (notes / name).write_text(text, encoding="utf-8")
        plain = [
            {"question": q, "answers": [answer] if answer else []} for q, answer in PLAIN_QUESTIONS
        ]
        done = {"notes": ask(llm, notes, plain)}
        missing = write_texts(files)
        for half in args.half or ["open"]:
            some = [row for row in rows if row["half"] == half and row["file"] not in missing]
            done[half] = ask(llm, files, some)
    if args.rows:
        every = [row for asked in done.values() for row in asked]
        args.rows.write_text("".join(json.dumps(row) + "\n" for row in every), encoding="utf-8")
    sets = {name: summarise(asked) for name, asked in done.items()}
    print(json.dumps({"benchmark": "own_documents", "missing_files": missing, **sets}))


if __name__ == "__main__":
    main()
