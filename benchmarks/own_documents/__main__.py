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

from benchmarks import share
from benchmarks.own_documents.files import write_texts
from reader_training.rows import lines
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.prompts.reading import is_refusal
from selfcorrect_rag.reader.reader_llm import ReaderLLM
from selfcorrect_rag.search import Index, index_paths
from selfcorrect_rag.thresholds import ANSWER_ABOVE

QUESTIONS = Path(__file__).with_name("questions.jsonl")
NOTES = Path(__file__).with_name("notes")
"""Two notes; notes.jsonl has questions on them, some of which they do not answer."""
PASSAGES = 5
SHARES = ("right", "retrieved", "refused")


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
        index = Index(Path(place, "index"))
        index_paths([folder], index)
        graph = create_self_rag(llm, index.as_retriever(PASSAGES), settings={"mode": "always"})
        asked = []
        for row in rows:
            begun = time.process_time()
            result = graph.invoke({"question": row["question"]})
            said, seconds = result["answer"], time.process_time() - begun
            passages = " ".join(document.page_content for document in result["passages"])
            refused = is_refusal(said)
            found = {"said": said, "seconds": seconds, "retrieved": is_right(passages, row)}
            right = is_right(said, row) and not refused
            asked.append({**row, **found, "refused": refused, "right": right})
        return asked


def summarise(asked: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return shares, each with the ends of its 95 % bootstrap interval."""
    known = [row for row in asked if row["answers"]]
    shares = {f"{name}_of_answerable": share(r[name] for r in known) for name in SHARES}
    shares["refused_of_unanswerable"] = share(r["refused"] for r in asked if not r["answers"])
    shares["wrong_of_all"] = share(not (row["right"] or row["refused"]) for row in asked)
    seconds = sum(row["seconds"] for row in asked) / len(asked)
    return {"questions": len(asked), **shares, "cpu_seconds_a_question": round(seconds, 3)}


def main() -> None:
    """Ask the questions on the notes, and those of the halves that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", action="append", choices=["open", "set_aside"])
    parser.add_argument("--answer-above", type=float, default=ANSWER_ABOVE)
    parser.add_argument("--rows", type=Path, help="where to write each question's row as JSONL")
    args = parser.parse_args()
    halves = ("notes", *(args.half or ["open"]))
    llm = ReaderLLM.load(answer_above=args.answer_above)
    with tempfile.TemporaryDirectory() as folder:
        missing = write_texts(Path(folder))
        rows = [r for r in lines(QUESTIONS) if r["file"] not in missing and r["half"] in halves]
        on_notes = list(lines(NOTES.with_suffix(".jsonl")))
        asked = ask(llm, NOTES, on_notes) + ask(llm, Path(folder), rows)
    if args.rows:
        args.rows.write_text("".join(json.dumps(row) + "\n" for row in asked), encoding="utf-8")
    figures = {half: summarise([row for row in asked if row["half"] == half]) for half in halves}
    print(json.dumps({"benchmark": "own_documents", "missing_files": missing, **figures}))


if __name__ == "__main__":
    main()
