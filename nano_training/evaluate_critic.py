"""Figures of the nano critic, and of prompts against reflection tokens, on held-out names.

    python -m nano_training.evaluate_critic [--model DIR] [--cases 300] [--labels]

The nano critic labels what a rule has labelled, as a fine-tuned critic, and of a few as a chat
model by the paper's longer prompts. Then both answer the same questions through Self-RAG, from one
gold passage and four that mislead: the nano generator with its own reflection tokens, and the
critic asked by prompts. Ends in one line of JSON. With ``--labels`` it is asked as a fine-tuned
critic alone.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import correlation, fmean
from typing import Any

from langchain_core.documents import Document

from nano_training.models import critic_path
from nano_training.questions import new_question
from nano_training.teacher import WRITING, Labelled, judgements
from nano_training.world import World
from selfcorrect_rag.models.chat.classification import ChatClassifier
from selfcorrect_rag.models.chat.prompted_llm import PromptedReflectionLLM, critique_classification
from selfcorrect_rag.models.chat.transformers_chat import TransformersChat
from selfcorrect_rag.models.critic import TransformersCritic, critic_input
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.nano import load_generator
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
from selfcorrect_rag.self_rag import create_self_rag
from selfcorrect_rag.state.self_rag import SelfRAGOutput

SENTENCES = 4
"""About how many sentences a passage has beside its lead."""
CHAT = 6
"""One in so many is asked of the chat model too, whose prompts are long."""
KNOBS = {"mode": "always", "depth": 1, "segment_tokens": 60}


def judged(cases: int) -> list[Labelled]:
    """The rule's labels for ``cases`` questions of held-out names and wordings."""
    world = World("critic", held_out=True)
    made = [j for _ in range(cases) for j in judgements(world, SENTENCES, held_out=True)]
    return [one for one in made if one.prompt != WRITING]


def as_critic(folder: Path, made: Sequence[Labelled]) -> list[str | None]:
    """The labels of a fine-tuned critic, asked as Algorithm 3 asks it."""
    asked = [critic_input(CRITIQUE_PROMPTS[one.prompt], one.instance) for one in made]
    tokens = TransformersCritic.from_pretrained(folder).judge(asked)
    names = {
        a: {t: label for label, t in x.tokens_by_label.items()} for a, x in CRITIQUE_PROMPTS.items()
    }
    return [names[one.prompt][token] for one, token in zip(made, tokens, strict=True)]


def as_chat_model(critic: TransformersChat, made: Sequence[Labelled]) -> list[str | None]:
    """Its labels as a chat model, asked in the words of tables 8 to 12."""
    classifier = ChatClassifier(critic, max_concurrency=1)
    answers = classifier.classify(
        [critique_classification([CRITIQUE_PROMPTS[one.prompt]], one.instance) for one in made]
    )
    return [prediction.label if prediction else None for (prediction, *_), *_ in answers]


def agreement(made: Sequence[Labelled], given: Sequence[str | None]) -> dict[str, dict[str, float]]:
    """The share of the rule's labels that were given, by prompt, all together and by label."""
    right: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for one, label in zip(made, given, strict=True):
        for name in ("all", one.label):
            right[one.prompt][name].append(label == one.label)
    return {
        prompt: {label: round(fmean(of_label), 3) for label, of_label in by_label.items()}
        for prompt, by_label in right.items()
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
        case = new_question(world, SENTENCES, held_out=True)
        documents = case.documents()
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
    by_passage = {c["passage"]: c["critique"]["ISREL"] or 0.0 for c in result["candidates"]}
    return [by_passage[i] for i in range(len(result["passages"]))]


def main() -> None:
    """Measure a critic."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, default=critic_path(), help="the nano critic, or yours"
    )
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--labels", action="store_true", help="only as a fine-tuned critic")
    args = parser.parse_args()
    made = judged(args.cases)
    labels = agreement(made, as_critic(args.model, made))
    found: dict[str, Any] = {"cases": args.cases, "as_critic": labels}
    print(json.dumps(found), flush=True)
    if args.labels:
        return
    critic, few = TransformersChat.from_pretrained(args.model), made[: len(made) // CHAT]
    found["as_chat_model"] = agreement(few, as_chat_model(critic, few))
    print(json.dumps({**found, **answers(critic, args.cases)}))


if __name__ == "__main__":
    main()
