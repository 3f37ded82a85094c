"""How well a generator judges the outputs of rows that were set aside:
``python -m smollm2_training.agreement --model FOLDER``.

Of each reflection token it is asked the next token among those of its group, behind the row's text
and its own critique so far. Rows are those of ``written.jsonl`` on notes that are set aside, and
the passages retrieved for split 2 of PopQA and TriviaQA, with the answer or the embedded reader's
best span that is wrong.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.evidence import auc_figures
from reader_training.evaluate import interval
from reader_training.rows import retrieved_rows
from selfcorrect_rag.models.checkpoints import load_language_model
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.reflection import (
    CONTINUE,
    GROUP_OF,
    NO_RETRIEVAL,
    RETRIEVAL,
    TOKENS,
    VALUES,
    scores_of,
)
from selfcorrect_rag.training.generator import GeneratorRow, generator_examples
from smollm2_training.gold import judge_rows, written_rows

BEST = {group: {max(values, key=values.__getitem__)} for group, values in VALUES.items()}
BEST |= {"Retrieve": {RETRIEVAL, CONTINUE}}
"""The tokens of each group whose AUC is measured; which of two it is does not count."""
LONGEST = 1024
"""Tokens to which a row is shortened."""
Judged = tuple[str, dict[str, float]]
"""A reflection token of a row, and the probabilities of its group there."""


def judgements(
    model: Any, tokenizer: ControlledTokenizer, row: GeneratorRow
) -> Iterator[tuple[tuple[int, ...], Judged]]:
    """Yield each learned reflection token of a row behind the ids before it. The model reads its
    own critique there, as at inference: the labels would give the later ones away."""
    for example in generator_examples([row], tokenizer, LONGEST).rows:
        ids = [*example["input_ids"]]
        logits = _logits(model, ids)
        for place, label in enumerate(example["labels"]):
            if token := tokenizer.reflection_tokens.get(label):
                group = TOKENS[GROUP_OF[token]]
                own = logits[place - 1, [tokenizer.control_ids[t] for t in group]].softmax(-1)
                given = dict(zip(group, own.tolist(), strict=True))
                yield tuple(example["input_ids"][:place]), (token, given)
                said = tokenizer.control_ids[max(given, key=given.__getitem__)]
                if GROUP_OF[token] in VALUES and said != label:
                    ids[place] = said
                    logits = _logits(model, ids)


def _logits(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([ids])).logits[0].float()
    return logits


def report(rows: Sequence[Sequence[Judged]], group: str) -> dict[str, Any]:
    """Agreement with the labels, the commonest label's share, and the AUC of the score for the best
    labels with its interval by bootstrap over rows; of Retrieve of the need for a passage."""
    best, pairs = BEST[group], [pair for row in rows for pair in row]
    said = [(max(p, key=p.__getitem__), token) for token, p in pairs]

    def score(given: dict[str, float]) -> float:
        found = scores_of({group: given}).get(group)
        return 1 - given[NO_RETRIEVAL] if found is None else found

    graded = [[(score(p), float(token in best)) for token, p in row] for row in rows]
    both = len({is_best for row in graded for _, is_best in row}) == 2
    return {
        "tokens": len(pairs),
        "agreement": interval(float(one == token or {one, token} <= best) for one, token in said),
        "commonest": round(max(Counter(token for _, token in said).values()) / len(pairs), 3),
        "auc": auc_figures(graded)[0] if both else None,
    }


def main() -> None:
    """Print a line for each set and group; the rows that an assistant wrote are one set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--most", type=int, help="passages of split 2")
    args = parser.parse_args()
    model, words = load_language_model(args.model, "float32")
    tokenizer = ControlledTokenizer(words)
    trained = {row["instruction"] for row in written_rows()}
    sets = [
        ("written", row) for row in written_rows(held_out=True) if row["instruction"] not in trained
    ]
    asked = [row for row in retrieved_rows(2) if row.source != "retrieved: multihop"]
    sets += [(row["dataset_name"], row) for row in judge_rows(asked[: args.most], 1.0)]
    found, seen = defaultdict(list), set[tuple[int, ...]]()
    for name, row in sets:
        of_row = defaultdict(list)
        for before, judged in judgements(model, tokenizer, GeneratorRow.model_validate(row)):
            # A passage comes with a right and a wrong output: what stands before both counts once.
            if before not in seen:
                seen.add(before)
                of_row[GROUP_OF[judged[0]]].append(judged)
        for group, some in of_row.items():
            found[name, group].append(some)
    for (name, group), rows in sorted(found.items()):
        print(json.dumps({"set": name, "group": group, **report(rows, group)}))


if __name__ == "__main__":
    main()
