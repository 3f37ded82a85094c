"""What tells models apart where results are kept: alike ones are one, others never."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from nano_training.models import tiny_t5_path

from selfcorrect_rag.models import (
    ChatEvaluator,
    PromptedReflectionLLM,
    T5Evaluator,
    TransformersReflectionLLM,
)
from selfcorrect_rag.models.identity import identity
from selfcorrect_rag.reader import Reader, ReaderEvaluator, ReaderLLM
from tests.conftest import byte_level_tokenizer, random_model
from tests.crag_runs import WordEvaluator
from tests.providers import saying
from tests.scripted import ScriptedReflectionLLM, segment
from tests.tiny_evaluators import bert, bert_tokenizer, make, t5, t5_tokenizer


def chat(text: str = "yes") -> FakeListChatModel:
    return FakeListChatModel(responses=[text])


def language_model(change: float = 0.0, **options: Any) -> TransformersReflectionLLM:
    tokenizer = byte_level_tokenizer()
    model = random_model(len(tokenizer))
    with torch.no_grad():
        model.lm_head.weight += change
    return TransformersReflectionLLM.from_model(model, tokenizer, **options)


def evaluator(change: float = 0.0, **options: Any) -> T5Evaluator:
    model = t5()
    with torch.no_grad():
        model.classification_head.out_proj.weight += change
    return T5Evaluator.from_model(model, t5_tokenizer(), **options)


class Slotted:
    """A function that nothing can refer to weakly."""

    __slots__ = ()

    def __call__(self, messages: Any) -> str:
        return "yes"


def ask(messages: Any) -> str:
    return "yes"


TOLD: Mapping[str, Callable[[], Any]] = {
    "chat": chat,
    "another chat": lambda: chat("no"),
    "LLM": lambda: FakeListLLM(responses=["yes"]),
    "bound": lambda: chat().bind(stop=["a"]),
    "bound otherwise": lambda: chat().bind(stop=["b"]),
    "bound to a function": lambda: chat().bind(tools=[ask]),
    "bound twice": lambda: chat().bind(stop=["a"]).bind(logprobs=True),
    "retries": lambda: chat().with_retry(),
    "retries of another": lambda: chat("no").with_retry(),
    "fallbacks": lambda: chat().with_fallbacks([chat("no")]),
    "fallbacks turned": lambda: chat("no").with_fallbacks([chat()]),
    "chain": lambda: ChatPromptTemplate.from_messages([("human", "{q}")]) | chat(),
    "another chain": lambda: ChatPromptTemplate.from_messages([("human", "Q: {q}")]) | chat(),
    "function": lambda: RunnableLambda(ask),
    "prompted": lambda: PromptedReflectionLLM(chat()),
    "prompted otherwise": lambda: PromptedReflectionLLM(chat(), candidates=3),
    "prompted with another": lambda: PromptedReflectionLLM(chat("no")),
    "prompted with a critic": lambda: PromptedReflectionLLM(chat(), critic=chat("no")),
    "prompted with retries": lambda: PromptedReflectionLLM(chat().with_retry()),
    "prompted with a function": lambda: PromptedReflectionLLM(RunnableLambda(ask)),
    "language model": language_model,
    "other weights": lambda: language_model(0.01),
    "other limit": lambda: language_model(max_tokens=7),
    "evaluator": evaluator,
    "evaluator of other weights": lambda: evaluator(0.01),
    "evaluator with another separator": lambda: evaluator(separator=" // "),
    "evaluator cut short": lambda: evaluator(max_tokens=64),
    "cross-encoder": lambda: T5Evaluator.from_model(bert(), bert_tokenizer()),
    "reader as an evaluator": lambda: ReaderEvaluator(Reader.load()),
    "reader": ReaderLLM.load,
    "reader that answers more": lambda: ReaderLLM.load(answer_above=0.1),
    "tiny T5": lambda: T5Evaluator.from_pretrained(tiny_t5_path()),
    "chat evaluator": lambda: ChatEvaluator(chat()),
    "another chat evaluator": lambda: ChatEvaluator(chat("no")),
    "chat evaluator with another prompt": lambda: ChatEvaluator(chat(), prompt="direct"),
    "chat evaluator one by one": lambda: ChatEvaluator(chat(), passages_per_call=1),
    "chat evaluator with retries": lambda: ChatEvaluator(chat().with_retry()),
}
"""Models that tell what they are, each another than all others."""

UNTOLD: Mapping[str, Callable[[], Any]] = {
    "function": lambda: RunnableLambda(lambda messages: "yes"),
    "chat": lambda: saying("yes"),
    "retries": lambda: saying("yes").with_retry(),
    "bound to a function": lambda: chat().bind(tools=[lambda query: query]),
    "reflection": lambda: ScriptedReflectionLLM(write=lambda prompt: segment("yes")),
    "prompted": lambda: PromptedReflectionLLM(saying("yes")),
    "evaluator": WordEvaluator,
    "chat evaluator": lambda: ChatEvaluator(saying("yes")),
    "object without weak references": lambda: RunnableLambda(Slotted()),
}
"""Those that do not."""


def test_what_tells_itself_is_alike_when_it_is_made_again_and_unlike_all_else() -> None:
    first = {name: identity(made()) for name, made in TOLD.items()}
    assert {name: identity(made()) for name, made in TOLD.items()} == first
    assert len(set(first.values())) == len(first)


@pytest.mark.parametrize("made", UNTOLD.values(), ids=UNTOLD)
def test_what_does_not_is_itself_alone(made: Callable[[], Any]) -> None:
    # Those before it are gone: an address would come back.
    seen = {identity(made()) for _ in range(50)}
    assert len(seen) == 50
    one = made()
    assert identity(one) == identity(one)


def test_an_identity_is_the_same_in_another_process() -> None:
    names = ["bound twice", "fallbacks", "chain", "prompted with a critic", "evaluator"]
    script = f"""
from tests.test_identity import TOLD, identity
print([identity(TOLD[name]()) for name in {names}])
"""
    root = Path(__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == str([identity(TOLD[name]()) for name in names])


def test_weights_that_are_moved_are_the_same(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        t5().save_pretrained(tmp_path / folder)
        t5_tokenizer().save_pretrained(tmp_path / folder)
    one, other = (T5Evaluator.from_pretrained(tmp_path / f, device="cpu") for f in ("one", "other"))
    assert identity(one) == identity(other) == identity(make())
