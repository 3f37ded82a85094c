"""A model by the name that a person gives."""

import sys
from types import ModuleType
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from selfcorrect_rag.models.opening import NoChatModel, find_chat_model
from tests.training import teacher


def test_an_object_or_what_makes_one() -> None:
    assert find_chat_model("tests.training.teacher:quick") is teacher.quick
    made = find_chat_model("tests.training.teacher:slow", temperature=0.3)
    assert isinstance(made, teacher.Teacher)
    assert made.seconds > 0
    assert isinstance(find_chat_model("tests.training.teacher:Teacher"), teacher.Teacher)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """langchain, as far as it is needed."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def init_chat_model(name: str, **options: Any) -> FakeListChatModel:
        asked.append((name, options))
        if "broken" in name:
            raise RuntimeError("no key:\nset it")
        return FakeListChatModel(responses=["Yes"])

    package, module = ModuleType("langchain"), ModuleType("langchain.chat_models")
    module.init_chat_model = init_chat_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "langchain", package)
    monkeypatch.setitem(sys.modules, "langchain.chat_models", module)
    return asked


def test_a_providers_model(provider: list[tuple[str, dict[str, Any]]]) -> None:
    """Also where a module of the provider's name is there, which has no such attribute."""
    for name in ("nobody:large-1", "json:large-1"):
        assert isinstance(find_chat_model(name, temperature=1.0), FakeListChatModel)
        assert provider.pop() == (name, {"temperature": 1.0})
    with pytest.raises(NoChatModel, match=r"^nobody:broken: no key: set it$"):
        find_chat_model("nobody:broken")


def test_without_langchain_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain", None)
    with pytest.raises(NoChatModel, match="pip install langchain"):
        find_chat_model("nobody:large-1")
    with pytest.raises(NoChatModel, match="is function, not a LangChain model"):
        find_chat_model("tests.test_model_opening:maker_of_makers")


def maker_of_makers() -> Any:
    return maker_of_makers
