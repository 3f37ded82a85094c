"""What prompts give and reflection tokens give, on names and wordings never trained on.

    python -m selfcorrect_rag.nano.evaluate_critic --model DIR [--cases 300]

The nano critic labels what a rule has labelled, by the paper's prompts. Then both answer the same
questions through Self-RAG, from one gold passage and four that mislead: the nano generator with its
own reflection tokens, and the critic asked by prompts. Ends in one line of JSON.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import correlation, fmean
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.critic_prompts import ASPECTS
from selfcorrect_rag.models.choices import Chooser
from selfcorrect_rag.models.drafts import form
from selfcorrect_rag.models.prompted_llm import PromptedReflectionLLM
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.models.transformers_chat import TransformersChat
from selfcorrect_rag.nano.cases import new_case
from selfcorrect_rag.nano.embedded import load_generator
from selfcorrect_rag.nano.judgements import WRITING, judgements
from selfcorrect_rag.nano.world import World
from selfcorrect_rag.self_rag import create_self_rag
from selfcorrect_rag.state import SelfRAGOutput

SENTENCES = 4
"""About how many sentences a passage has beside its lead."""
KNOBS = {"mode": "always", "depth": 1, "segment_tokens": 60}


def labels(critic: TransformersChat, cases: int) -> dict[str, dict[str, float]]:
    """The share of the rule's labels that the critic gives, by aspect and label."""
    world = World("critic", held_out=True)
    chooser = Chooser(critic, max_concurrency=1)
    given: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(cases):
        made = [j for j in judgements(world, SENTENCES, held_out=True) if j.aspect != WRITING]
        answers = chooser.choose([form([ASPECTS[j.aspect]], j.instance) for j in made])
        for judged, answer in zip(made, answers, strict=True):
            choice = answer.choices[0]
            right = choice is not None and choice.label == judged.label
            given[judged.aspect][judged.label].append(right)
    return {
        aspect: {label: round(fmean(right), 3) for label, right in by_label.items()}
        for aspect, by_label in given.items()
    }


def answers(critic: TransformersChat, cases: int) -> dict[str, float]:
    """How often each answers rightly, and how their critiques of the same passages agree."""
    world = World("prompted", held_out=True)
    tokens = load_generator()
    prompted = PromptedReflectionLLM(critic, joined=False, max_concurrency=1)
    right: dict[str, list[bool]] = defaultdict(list)
    isrel: list[tuple[float, float]] = []
    calls = []
    for _ in range(cases):
        case = new_case(world, SENTENCES, held_out=True)
        passages = [case.gold, *(case.distractor() for _ in range(4))]
        world.random.shuffle(passages)
        documents = [Document(" ".join(p.sentences), metadata={"title": p.title}) for p in passages]
        by_tokens = _result(tokens, case.question, documents)
        by_prompts = _result(prompted, case.question, documents)
        right["tokens"].append(case.target in by_tokens["answer"])
        right["prompts"].append(case.target in by_prompts["answer"])
        isrel += zip(_isrel(by_tokens), _isrel(by_prompts), strict=True)
        calls.append(by_prompts["usage"]["model_calls"])
    return {
        "right_by_tokens": round(fmean(right["tokens"]), 3),
        "right_by_prompts": round(fmean(right["prompts"]), 3),
        "isrel_agreement": round(fmean((a > 0.5) == (b > 0.5) for a, b in isrel), 3),
        "isrel_correlation": round(correlation(*zip(*isrel, strict=True)), 3),
        "calls_by_prompts": round(fmean(calls), 2),
    }


def _result(llm: ReflectionLLM, question: str, documents: Sequence[Document]) -> SelfRAGOutput:
    graph = create_self_rag(llm, lambda query: [])
    asked: Any = {"question": question, "documents": list(documents)}
    context: Any = KNOBS
    return graph.invoke(asked, context=context)  # type: ignore[return-value]


def _isrel(result: SelfRAGOutput) -> list[float]:
    """By passage, in [0, 1]; an absent one is 0."""
    by_passage = {c["passage"]: c["isrel"] or 0.0 for c in result["candidates"]}
    return [by_passage[i] for i in range(len(result["passages"]))]


def main() -> None:
    """Measure a critic."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="as train_critic made it")
    parser.add_argument("--cases", type=int, default=300)
    args = parser.parse_args()
    critic = TransformersChat.from_pretrained(args.model)
    found: dict[str, Any] = {"cases": args.cases, "labels": labels(critic, args.cases)}
    print(json.dumps({**found, **answers(critic, args.cases)}))


if __name__ == "__main__":
    main()
