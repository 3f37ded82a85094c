"""ALCE's citation recall and precision of a run of `selfcorrect-rag eval`.

python examples/check_citations.py runs/first cross-encoder/nli-deberta-v3-base

Recall is the share of sentences that the texts they cite entail together; precision the share of
citations that entail their sentence alone or are needed by the others (Gao et al., 2023, section
4.3, where the entailment model is a T5-XXL). Failed and refused answers count as 0. Needs
transformers.
"""

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from selfcorrect_rag.evaluation.tasks import Outcome, outcome_from
from selfcorrect_rag.journal import Journal
from selfcorrect_rag.prompts.reading import sentences

Entails = Callable[[str, str], bool]


def check(outcome: Outcome, entails: Entails) -> tuple[float, float]:
    """Recall and precision of the citations of one answer."""
    texts = {c["number"]: f"{c.get('title') or ''}\n{c['text']}" for c in outcome.citations}
    said = "" if outcome.error or outcome.refused else outcome.cited_answer
    # Marks behind a full stop belong to the sentence before them.
    moved = re.sub(r"([.!?])((?:[ \t]*\[\d+\])+)", r"\2\1", said)
    found = [sentence for line in moved.splitlines() for sentence in sentences(line)]
    recalled = citations = precise = 0
    for sentence in found:
        numbers = dict.fromkeys(map(int, re.findall(r"\[(\d+)\]", sentence)))
        cited = [texts[number] for number in numbers if number in texts]
        claim = re.sub(r" ?\[\d+\]", "", sentence).strip()
        citations += len(numbers)
        if cited and entails("\n".join(cited), claim):
            recalled += 1
            precise += sum(is_precise(claim, cited, place, entails) for place in range(len(cited)))
    return recalled / max(1, len(found)), precise / max(1, citations)


def is_precise(claim: str, cited: Sequence[str], place: int, entails: Entails) -> bool:
    others = [*cited[:place], *cited[place + 1 :]]
    return not others or entails(cited[place], claim) or not entails("\n".join(others), claim)


def main(folder: str, entails: Entails) -> None:
    by_method: dict[str, list[tuple[float, float]]] = {}
    for row in Journal(Path(folder) / "rows.jsonl").rows.values():
        outcome = outcome_from(row)
        by_method.setdefault(outcome.method, []).append(check(outcome, entails))
    for method, scores in by_method.items():
        recall, precision = (sum(each) / len(scores) for each in zip(*scores, strict=True))
        print(f"{method}: recall {recall:.3f}, precision {precision:.3f}, n = {len(scores)}")


if __name__ == "__main__":
    from transformers import pipeline

    classify = pipeline("text-classification", sys.argv[2], truncation=True)

    def entails(premise: str, claim: str) -> bool:
        found: Any = classify({"text": premise, "text_pair": claim})  # a dict for a dict
        return bool(found["label"].lower() == "entailment")

    main(sys.argv[1], entails)
