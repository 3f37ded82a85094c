"""The nano critic that ships: the paper's prompts, answered by a real model."""

from collections import defaultdict
from statistics import fmean
from typing import Any

import pytest
from langchain_core.documents import Document

from nano_training.models import critic_path, load_critic
from nano_training.questions import WorldQuestion, new_question
from nano_training.teacher import Labelled, judgements
from nano_training.world import World
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models.chat.classification import ChatClassifier
from selfcorrect_rag.models.chat.prompted_llm import PromptedReflectionLLM, critique_classification
from selfcorrect_rag.models.chat.transformers_chat import TransformersChat
from selfcorrect_rag.models.critic import TransformersCritic, critic_input
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS

CASES = 12
FLOOR = {"retrieval": 0.8, "multi_retrieval": 0.7, "relevance": 0.7, "groundness": 0.6}
"""Agreement with the rule that no lucky draw of so few cases falls under; the card has figures."""


@pytest.fixture(scope="module")
def critic() -> TransformersChat:
    return load_critic()


@pytest.fixture(scope="module")
def judged() -> list[Labelled]:
    world = World("critic test", held_out=True)
    made = [one for _ in range(CASES) for one in judgements(world, 3, held_out=True)]
    return [one for one in made if one.prompt in FLOOR]


@pytest.fixture(scope="module")
def case() -> WorldQuestion:
    return new_question(World("asked of the critic"), 3)


def agreement(judged: list[Labelled], given: list[str | None]) -> dict[str, float]:
    right = defaultdict(list)
    for one, label in zip(judged, given, strict=True):
        right[one.prompt].append(label == one.label)
    return {prompt: fmean(of_prompt) for prompt, of_prompt in right.items()}


def test_it_answers_the_papers_prompts_as_a_chat_model(
    critic: TransformersChat, judged: list[Labelled]
) -> None:
    classifier = ChatClassifier(critic, max_concurrency=1)
    answers = classifier.classify(
        [critique_classification([CRITIQUE_PROMPTS[one.prompt]], one.instance) for one in judged]
    )
    choices = [answer.predictions[0] for answer in answers]
    assert classifier.mode == "logprobs"
    assert classifier.counts.absent == 0
    assert not any(prediction.is_hard for prediction in choices if prediction)
    found = agreement(judged, [prediction.label if prediction else None for prediction in choices])
    assert all(found[prompt] >= floor for prompt, floor in FLOOR.items()), found


def test_it_labels_as_a_fine_tuned_critic(judged: list[Labelled]) -> None:
    labels = {
        a: {t: la for la, t in prompt.tokens_by_label.items()}
        for a, prompt in CRITIQUE_PROMPTS.items()
    }
    asked = [critic_input(CRITIQUE_PROMPTS[one.prompt], one.instance) for one in judged]
    tokens = TransformersCritic.from_pretrained(critic_path()).judge(asked)
    found = agreement(
        judged, [labels[one.prompt][token] for one, token in zip(judged, tokens, strict=True)]
    )
    assert all(found[prompt] >= floor for prompt, floor in FLOOR.items()), found


def test_self_rag_runs_on_it_with_soft_scores(
    critic: TransformersChat, case: WorldQuestion
) -> None:
    llm = PromptedReflectionLLM(critic, joined=False, max_concurrency=1)
    passages = [case.gold, case.stranger()]
    documents = [Document(" ".join(p.sentences), metadata={"title": p.title}) for p in passages]
    graph = create_self_rag(llm, lambda query: documents)
    context: Any = {"depth": 1, "segment_tokens": 60, "mode": "always"}
    result = graph.invoke({"question": case.question}, context=context)
    isrel = {c["passage"]: c["critique"]["ISREL"] for c in result["candidates"]}
    assert not any(c.get("hard") for c in result["candidates"])
    assert 0 < isrel[1] < isrel[0] < 1
    assert result["answer"].strip()
    assert llm.counts.absent == 0


def test_it_is_small() -> None:
    size = sum(file.stat().st_size for file in critic_path().iterdir())
    assert size <= 9.5e6
