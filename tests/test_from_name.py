"""Models by name, and the fingerprints that tell models apart where results are cached."""

import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from selfcorrect_rag.errors import BadArgument, MissingExtra
from selfcorrect_rag.models import ChatEvaluator, PromptedReflectionLLM, from_name
from selfcorrect_rag.models.identity import identity
from tests.providers import chat, saying
from tests.scripted import ScriptedLLM, segment

llm = FakeListLLM(responses=["yes"])
patient, number = llm.with_retry(), 3


def make() -> Any:
    return FakeListLLM(responses=["made"])


@pytest.fixture
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Own models that cannot be imported, and a stand-in for langchain's providers."""
    (tmp_path / "broken_models.py").write_text("import nothing_of_the_kind\n")
    monkeypatch.syspath_prepend(tmp_path)

    def init_chat_model(name: str, **options: Any) -> Any:
        if name != "acme:talker-1":
            raise ValueError(f"Unable to infer\nprovider of {name}")
        return chat(str(options))

    stand_in = types.SimpleNamespace(init_chat_model=init_chat_model)
    monkeypatch.setitem(sys.modules, "langchain.chat_models", stand_in)


@pytest.mark.usefixtures("_own")
def test_a_model_by_name() -> None:
    for name, said in (("llm", "yes"), ("patient", "yes"), ("make", "made")):
        assert from_name.find_language_model(f"{__name__}:{name}").invoke("?") == said
    found = from_name.find_language_model("acme:talker-1", temperature=0.0)
    assert found.invoke("?").content == "{'temperature': 0.0}"


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("acme:none", "cannot open .*: .*not a module:attribute either"),
        (f"{__name__}:absent", "cannot open .*: .*not a module:attribute either"),
        (f"{__name__}:number", "test_from_name:number must be a LangChain model, got int"),
        ("broken_models:llm", "nothing_of_the_kind"),
    ],
)
def test_a_name_that_leads_nowhere(name: str, message: str) -> None:
    with pytest.raises(from_name.NoLanguageModel, match=message) as error:
        from_name.find_language_model(name)
    assert "\n" not in str(error.value)


def test_without_langchain_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("langchain", "langchain.chat_models"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[agents\]"):
        from_name.find_language_model("acme:talker-1")


def test_arguments_of_factories() -> None:
    model, reflecting = saying("yes"), ScriptedLLM(write=lambda text: segment("yes"))
    assert from_name.as_reflection_llm(reflecting) is reflecting
    assert isinstance(from_name.as_reflection_llm(model.with_retry()), PromptedReflectionLLM)
    assert isinstance(from_name.as_evaluator(model), ChatEvaluator)
    prompt = ChatPromptTemplate.from_messages([("human", "{q}")])
    behind = model.bind(stop=["a"]).with_fallbacks([reflecting.with_retry()])
    with pytest.raises(BadArgument, match="rewriter must be a LangChain chat model"):
        from_name.as_language_model(prompt, "rewriter")
    with pytest.raises(BadArgument, match="would lose its reflection tokens"):
        from_name.as_reflection_llm(behind)
    with pytest.raises(BadArgument, match="evaluator must be a RetrievalEvaluator"):
        from_name.as_evaluator(reflecting)


KNOWN: Mapping[str, Callable[[], Any]] = {
    "chat": lambda: chat("yes"),
    "another chat": lambda: chat("no"),
    "served": lambda: ChatOpenAI(model="a", api_key=SecretStr("k")),  # it holds a client
    "another served": lambda: ChatOpenAI(model="b", api_key=SecretStr("k")),
    "LLM": lambda: FakeListLLM(responses=["yes"]),
    "bound": lambda: chat("yes").bind(stop=["a"]),
    "bound otherwise": lambda: chat("yes").bind(stop=["b"]),
    "prompted": lambda: PromptedReflectionLLM(chat("yes")),
    "prompted otherwise": lambda: PromptedReflectionLLM(chat("yes"), candidates=3),
    "prompted with a critic": lambda: PromptedReflectionLLM(chat("yes"), critic=chat("no")),
    "chat evaluator": lambda: ChatEvaluator(chat("yes")),
    "chat evaluator with another prompt": lambda: ChatEvaluator(chat("yes"), prompt="direct"),
}
UNKNOWN: Mapping[str, Callable[[], Any]] = {
    "function": lambda: RunnableLambda(lambda messages: "yes"),
    "bound to a function": lambda: chat("yes").bind(tools=[lambda query: query]),
    "prompted": lambda: PromptedReflectionLLM(saying("yes")),
    "chat evaluator": lambda: ChatEvaluator(saying("yes")),
}


def test_a_fingerprint_is_that_of_all_equal_models_and_of_no_other() -> None:
    first, again = ([identity(made()) for made in KNOWN.values()] for _ in range(2))
    assert first == again
    assert len(set(first)) == len(first)


@pytest.mark.parametrize("made", UNKNOWN.values(), ids=UNKNOWN)
def test_an_object_that_cannot_be_described_equals_only_itself(made: Callable[[], Any]) -> None:
    seen = {identity(made()) for _ in range(50)}  # each is gone by then: addresses come back
    assert len(seen) == 50
    one = made()
    assert identity(one) == identity(one)
