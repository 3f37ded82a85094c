"""Write the generator's rows with tokens by gold knowledge, where the critic is too weak:
``python -m smollm2_training.gold --data FILE --out FILE``.

Algorithm 3 gives a question one passage. Here it gets up to four rows: the two best passages that
state an answer, and the two best that do not, so that the generator sees both for one question.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reader_training.rows import mentions
from selfcorrect_rag.journal import read_rows, write_rows
from selfcorrect_rag.prompts.parts import quoted
from selfcorrect_rag.reflection import (
    END_PARAGRAPH,
    FULLY_SUPPORTED,
    IRRELEVANT,
    NO_RETRIEVAL,
    PARAGRAPH,
    RELEVANT,
    RETRIEVAL,
    UTILITY,
)
from selfcorrect_rag.training.rows import as_document

MOST = 2
"""Passages of each kind for a question."""


def label_row(row: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the generator's rows of a row of ``instructions.jsonl``.

    With answers: one for each of the best passages that state one, which is written as it stands
    there, and for each of the best that state none, whose answer can only be guessed, so that it
    has no loss; all are fully useful, as a right answer is. Without: what needs no retrieval, of
    the sets that need none.
    """
    given = {"instruction": quoted(row["instruction"]), "dataset_name": row["set"]}
    if "answers" not in row:
        if row["set"] in ("arc", "selfrag") and not row.get("retrieves"):
            yield {**given, "output": f"{NO_RETRIEVAL}{quoted(row['output'])}{UTILITY[4]}"}
        return
    seen = Counter[bool]()
    for passage in map(as_document, row["documents"]):
        whole = f"{passage.metadata['title']}\n{passage.page_content}".strip()
        stated = [a for a in row["answers"] if mentions(a, whole)]
        seen[bool(stated)] += 1
        if seen[bool(stated)] > MOST:
            continue
        answer = quoted(max(stated, key=len, default=row["output"]))
        critique = f"{RELEVANT}{answer}{FULLY_SUPPORTED}" if stated else f"{IRRELEVANT}{answer}"
        shown = f"{PARAGRAPH}{quoted(whole)}{END_PARAGRAPH}"
        output = f"{RETRIEVAL}{shown}{critique}{UTILITY[4]}"
        yield {**given, "output": output, "guessed": "" if stated else answer}


def main() -> None:
    """Write the rows, and print how many there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows = [made for _, row in read_rows(args.data) for made in label_row(row)]
    write_rows(args.out, rows)
    print(
        f"{len(rows)} rows, {sum(RELEVANT in row['output'] for row in rows)} with a passage that "
        "states an answer"
    )


if __name__ == "__main__":
    main()
