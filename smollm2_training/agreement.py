"""How well a generator judges the outputs of rows that were set aside:
``python -m smollm2_training.agreement --model FOLDER``.

Of each reflection token it is asked the next token behind all that comes before, among those of its
group. Rows are those of ``written.jsonl`` on notes that are set aside, and the passages retrieved
for split 2 of PopQA and TriviaQA, with the answer or the embedded reader's best span that is wrong.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from reader_training.evaluate import interval
from reader_training.rows import retrieved_rows
from selfcorrect_rag.models.checkpoints import load_language_model
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.reflection import GROUP_OF, NO_RETRIEVAL, TOKENS, VALUES
from selfcorrect_rag.training.evaluator import auc
from selfcorrect_rag.training.generator import GeneratorRow, generator_examples
from smollm2_training.gold import judge_rows, written_rows

LONGEST = 1024
"""Tokens to which a row is shortened."""


def judgements(
    model: Any, tokenizer: ControlledTokenizer, row: GeneratorRow
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each learned reflection token of a row, and the probabilities of its group there."""
    for example in generator_examples([row], tokenizer, LONGEST).rows:
        ids = torch.tensor([[*example["input_ids"]]])
        with torch.inference_mode():
            logits = model(ids).logits[0].float()
        for place, label in enumerate(example["labels"]):
            if token := tokenizer.reflection_tokens.get(label):
                group = TOKENS[GROUP_OF[token]]
                own = logits[place - 1, [tokenizer.control_ids[t] for t in group]].softmax(-1)
                yield token, dict(zip(group, own.tolist(), strict=True))


def value(group: str, probabilities: dict[str, float]) -> float:
    """The group's score; of Retrieve the probability that a passage is needed or used."""
    worth = VALUES.get(group) or {t: float(t != NO_RETRIEVAL) for t in probabilities}
    return sum(worth[token] * p for token, p in probabilities.items())


def report(found: list[tuple[str, dict[str, float]]], group: str) -> dict[str, Any]:
    """Agreement with the labels, the commonest label's share, and the AUC of the score for the best
    label; of Retrieve for those that use a passage."""
    said = [max(p, key=p.__getitem__) == token for token, p in found]
    labels = Counter(token for token, _ in found)
    graded = [(value(group, p), float(value(group, {t: 1.0}) == 1)) for t, p in found]
    return {
        "rows": len(found),
        "agreement": interval(map(float, said)),
        "commonest": round(max(labels.values()) / len(found), 3),
        "auc": round(auc(graded), 3) if len({best for _, best in graded}) == 2 else None,
    }


def main() -> None:
    """Print a line for each set and group."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    args = parser.parse_args()
    model, words = load_language_model(args.model, "float32")
    tokenizer = ControlledTokenizer(words)
    asked = [row for row in retrieved_rows(2) if row.source != "retrieved: multihop"]
    rows = [*written_rows(held_out=True), *judge_rows(asked, 1.0)]
    found = defaultdict(list)
    for row in map(GeneratorRow.model_validate, rows):
        for token, probabilities in judgements(model.eval(), tokenizer, row):
            found[row.dataset_name, GROUP_OF[token]].append((token, probabilities))
    for (name, group), some in sorted(found.items()):
        print(json.dumps({"set": name, "group": group, **report(some, group)}))


if __name__ == "__main__":
    main()
