"""Write the generator's rows with tokens by gold knowledge, where the critic is too weak:
``python -m smollm2_training.gold --data FILE --out FILE [--further ROWS]``.

Algorithm 3 gives a question one passage. Here it gets up to two that state an answer, and half of
the questions one that states none. So [Relevant] is the commoner judgement: after [Irrelevant] the
generator learns to guess, and a small one that cannot tell passages apart writes the commoner one.
Where there is time to train on more, ``--further`` adds rows of the reader's stream, with all its
kinds of passages that do not answer.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from reader_training.mixture import all_rows, draw_rows
from reader_training.rows import Row, mentions, retrieved
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
SEED = 2
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
    made = [
        write_output(page.metadata["title"], page.page_content, row["answers"], row["output"])
        for page in map(as_document, row["documents"])
    ]
    yield from [output for output in made if RELEVANT in output][:MOST]
    if Random(row["question"]).random() < SHARE:
        yield from [output for output in made if IRRELEVANT in output][:1]


def write_output(title: str, text: str, answers: Sequence[str], accepted: str) -> str:
    """Return the output for a passage: relevant, with the answer as it stands there, if it states
    one of ``answers``; else irrelevant, with the accepted one."""
    whole = f"{title}\n{text}".strip()
    stated = [a for a in answers if mentions(a, whole)]
    answer = quoted(max(stated, key=len, default=accepted))
    critique = f"{RELEVANT}{answer}{FULLY_SUPPORTED}" if stated else f"{IRRELEVANT}{answer}"
    return f"{RETRIEVAL}{PARAGRAPH}{quoted(whole)}{END_PARAGRAPH}{critique}{UTILITY[4]}"


def further_rows(rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    """Yield endless rows of the reader's stream, without the questions of which no accepted answer
    is known, such as those that were changed to ask about something near by."""
    accepted = {asked.question: asked.answers[0] for asked in retrieved(0, 1)}
    accepted |= {row.question: row.answers[0] for row in rows if row.answers}
    for row, relevant, _ in draw_rows(rows, SEED):
        if relevant is not None and row.question in accepted:
            answer = accepted[row.question]
            output = write_output(row.title, row.passage, row.answers, answer)
            yield {"instruction": row.question, "output": output, "dataset_name": row.source}


def main() -> None:
    """Write the rows, and print how many there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--further", type=int, default=0, help="rows of the reader's stream")
    args = parser.parse_args()
    rows = [
        {"instruction": row["instruction"], "output": output, "dataset_name": row["set"]}
        for _, row in read_rows(args.data)
        for output in label_row(row)
    ]
    if args.further:
        rows += islice(further_rows(all_rows()), args.further)
    rows = [{**row, "instruction": quoted(row["instruction"])} for row in rows]
    write_rows(args.out, rows)
    print(
        f"{len(rows)} rows, {sum(RELEVANT in row['output'] for row in rows)} with a passage that "
        "states an answer"
    )


if __name__ == "__main__":
    main()
