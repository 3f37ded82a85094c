"""Write the generator's rows with tokens by gold knowledge, where the critic is too weak:
``python -m smollm2_training.gold --data FILE --out FILE``.

Algorithm 3 gives a question one passage. Here it gets up to two that state an answer, and half of
the questions one that states none. So [Relevant] is the commoner judgement: after [Irrelevant] the
generator learns to guess, and a small one that cannot tell passages apart writes the commoner one.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
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
"""Most passages of a question that state an answer."""
SHARE = 0.5
"""Share of the questions that get a passage without an answer."""


def label_row(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the outputs of a row of ``instructions.jsonl``.

    With answers: the best passages that state one, at most :data:`MOST`, each with the answer as it
    stands there, and for a :data:`SHARE` of the questions the best that states none; all are fully
    useful, as a right answer is. Without: what needs no retrieval, of the sets that need none.
    """
    if "answers" not in row:
        if row["set"] in ("arc", "selfrag") and not row.get("retrieves"):
            yield f"{NO_RETRIEVAL}{quoted(row['output'])}{UTILITY[4]}"
        return
    relevant, irrelevant = list[str](), list[str]()
    for passage in map(as_document, row["documents"]):
        whole = f"{passage.metadata['title']}\n{passage.page_content}".strip()
        stated = [a for a in row["answers"] if mentions(a, whole)]
        answer = quoted(max(stated, key=len, default=row["output"]))
        critique = f"{RELEVANT}{answer}{FULLY_SUPPORTED}" if stated else f"{IRRELEVANT}{answer}"
        shown = f"{PARAGRAPH}{quoted(whole)}{END_PARAGRAPH}"
        (relevant if stated else irrelevant).append(f"{RETRIEVAL}{shown}{critique}{UTILITY[4]}")
    yield from relevant[:MOST]
    if Random(row["question"]).random() < SHARE:
        yield from irrelevant[:1]


def main() -> None:
    """Write the rows, and print how many there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows = [
        {"instruction": quoted(row["instruction"]), "output": output, "dataset_name": row["set"]}
        for _, row in read_rows(args.data)
        for output in label_row(row)
    ]
    write_rows(args.out, rows)
    print(
        f"{len(rows)} rows, {sum(RELEVANT in row['output'] for row in rows)} with a passage that "
        "states an answer"
    )


if __name__ == "__main__":
    main()
