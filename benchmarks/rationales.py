"""How well rationales and closed sets are read, on answers that people labelled.

    python -m benchmarks.rationales [FILE ...]

Without files, all of tests/data/rationales. A line of a file is a rationale with ``titles``,
``useful``, ``dismissed``, ``answer`` (wordings, any of which will do) and ``refusal``; or a closed
answer, ``text`` with ``options`` and ``answer``. Ends in one line of JSON; each figure is a share,
with the borders of its 95 % Wilson interval and the number it is a share of:

readings          rationales whose useful and dismissed documents are both read exactly
useful_readings   rationales whose useful documents are read exactly
documents         documents that are read as useful, dismissed or neither, as labelled
answers           final answers, without case, outer punctuation, quotes and markup; where the
                  label is that none is given, answers that say so
closed_answers    options of closed sets

With --wrong, the rows that were misread come first, one a line.
"""

import argparse
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from selfcorrect_rag.prompts.closed_set import closed_answer
from selfcorrect_rag.prompts.rationale.conclusions import final_answer
from selfcorrect_rag.prompts.rationale.documents import read_documents
from selfcorrect_rag.prompts.refusals import is_refusal

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "rationales"

Row = dict[str, Any]
Right = Iterator[tuple[str, bool, object]]
"""What is measured, whether it was right, and what was read."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path, help=f"by default all of {FOLDER}")
    parser.add_argument("--wrong", action="store_true", help="the rows that were misread, too")
    args = parser.parse_args()
    files = args.files or sorted(FOLDER.glob("*.jsonl"))
    if not files:
        print(f"skipped: no files were named, and {FOLDER} has none")
        return
    rows = [row for file in files for row in rows_of(file)]
    if args.wrong:
        for row in rows:
            for name, is_right, read in judged(row):
                if not is_right and name != "documents":
                    print(json.dumps([name, read, row], ensure_ascii=False))
    print(json.dumps({"benchmark": "rationales", "files": len(files), **figures(rows)}))


def rows_of(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]


def figures(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Shares of right readings by name, as the head of this file lists them."""
    right: dict[str, list[bool]] = {}
    for row in rows:
        for name, is_right, _ in judged(row):
            right.setdefault(name, []).append(is_right)
    return {name: _share(of) for name, of in right.items()}


def judged(row: Row) -> Right:
    if "options" in row:
        said = closed_answer(row["text"], row["options"])
        yield "closed_answers", said == row["answer"], said
        return
    reading = read_documents(row["rationale"], row["titles"])
    useful, dismissed = sorted(reading.useful), sorted(reading.dismissed)
    yield "readings", [useful, dismissed] == [row["useful"], row["dismissed"]], [useful, dismissed]
    yield "useful_readings", useful == row["useful"], useful
    for number in range(1, len(row["titles"]) + 1):
        verdicts = [number in useful, number in dismissed]
        labels = [number in row["useful"], number in row["dismissed"]]
        yield "documents", verdicts == labels, number
    answer = final_answer(row["rationale"], row["titles"])
    if row["refusal"]:
        yield "answers", is_refusal(answer), answer
    else:
        yield "answers", _plain(answer) in map(_plain, row["answer"]), answer


def _plain(answer: str) -> str:
    text = re.sub(r"[*_`\"“”'‘’$]+", "", answer).casefold()
    return re.sub(r"^\W+|[^\w)%]+$", "", " ".join(text.split()))


def _share(right: list[bool]) -> dict[str, float]:
    n, z = len(right), 1.959964
    share = sum(right) / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    spread = z * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5 / (1 + z * z / n)
    low, high = max(0.0, middle - spread), min(1.0, middle + spread)
    return {"share": round(share, 4), "low": round(low, 4), "high": round(high, 4), "of": n}


if __name__ == "__main__":
    main()
