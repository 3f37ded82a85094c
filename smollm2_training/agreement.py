"""How well a generator judges the outputs of rows that were set aside:
``python -m smollm2_training.agreement --model FOLDER``.

Of each reflection token it is asked the next token behind all that comes before, among those of its
group. Rows are those of ``written.jsonl`` on notes that are set aside, and the passages retrieved
for split 2 of PopQA and TriviaQA, with the answer or the embedded reader's best span that is wrong.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from reader_training.evaluate import interval
from reader_training.rows import retrieved_rows
from selfcorrect_rag.models.checkpoints import load_language_model
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.reflection import (
    CONTINUE,
    FULLY_SUPPORTED,
    GROUP_OF,
    NO_RETRIEVAL,
    RELEVANT,
    RETRIEVAL,
    TOKENS,
    UTILITY,
    VALUES,
)
from selfcorrect_rag.training.evaluator import auc
from selfcorrect_rag.training.generator import GeneratorRow, generator_examples
from smollm2_training.gold import judge_rows, written_rows

BEST = {
    "Retrieve": {RETRIEVAL, CONTINUE},
    "ISREL": {RELEVANT},
    "ISSUP": {FULLY_SUPPORTED},
    "ISUSE": {UTILITY[4]},
}
LONGEST = 1024
"""Tokens to which a row is shortened."""


def judgements(
    model: Any, tokenizer: ControlledTokenizer, row: GeneratorRow
) -> Iterator[tuple[tuple[int, ...], str, dict[str, float]]]:
    """Yield for each learned reflection token of a row the ids before it, the token, and the
    probabilities of its group there."""
    for example in generator_examples([row], tokenizer, LONGEST).rows:
        ids = torch.tensor([[*example["input_ids"]]])
        with torch.inference_mode():
            logits = model(ids).logits[0].float()
        for place, label in enumerate(example["labels"]):
            if token := tokenizer.reflection_tokens.get(label):
                group = TOKENS[GROUP_OF[token]]
                own = logits[place - 1, [tokenizer.control_ids[t] for t in group]].softmax(-1)
                given = dict(zip(group, own.tolist(), strict=True))
                yield tuple(example["input_ids"][:place]), token, given


def value(group: str, probabilities: dict[str, float]) -> float:
    """The group's score; of Retrieve the probability that a passage is needed or used."""
    worth = VALUES.get(group) or {t: float(t != NO_RETRIEVAL) for t in probabilities}
    return sum(worth[token] * p for token, p in probabilities.items())


def report(found: Iterable[tuple[str, dict[str, float]]], group: str) -> dict[str, Any]:
    """Agreement with the labels, the commonest label's share, and the AUC of the score for the best
    labels. Whether a passage that was just read is retrieved again does not count."""
    best, pairs = BEST[group], list(found)
    said = [(max(p, key=p.__getitem__), token) for token, p in pairs]
    graded = [(value(group, p), float(token in best)) for token, p in pairs]
    return {
        "rows": len(pairs),
        "agreement": interval(float(one == token or {one, token} <= best) for one, token in said),
        "commonest": round(max(Counter(token for _, token in said).values()) / len(pairs), 3),
        "auc": round(auc(graded), 3) if len({is_best for _, is_best in graded}) == 2 else None,
    }


def main() -> None:
    """Print a line for each set and group; the rows that an assistant wrote are one set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    args = parser.parse_args()
    model, words = load_language_model(args.model, "float32")
    tokenizer = ControlledTokenizer(words)
    trained = {row["instruction"] for row in written_rows()}
    written = (row for row in written_rows(held_out=True) if row["instruction"] not in trained)
    asked = [row for row in retrieved_rows(2) if row.source != "retrieved: multihop"]
    sets = [("written", row) for row in written]
    sets += [(row["dataset_name"], row) for row in judge_rows(asked, 1.0)]
    # A passage comes with a right and a wrong output: what stands before both counts once.
    found: dict[tuple[str, str], dict[tuple[int, ...], Any]] = defaultdict(dict)
    for name, row in sets:
        for before, token, given in judgements(
            model.eval(), tokenizer, GeneratorRow.model_validate(row)
        ):
            found[name, GROUP_OF[token]][before] = token, given
    for (name, group), some in sorted(found.items()):
        print(json.dumps({"set": name, "group": group, **report(some.values(), group)}))


if __name__ == "__main__":
    main()
