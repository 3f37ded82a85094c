"""A language model by its name: the user's own object, or one of langchain's providers."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from selfcorrect_rag.errors import MissingExtra, ModelNotFound
from selfcorrect_rag.models.from_name import NoLanguageModel, find_language_model
from selfcorrect_rag.models.checkpoints import check_on_hub

OWN = """
from langchain_core.language_models.fake import FakeListLLM

llm = FakeListLLM(responses=["yes"])
patient = llm.with_retry()
number = 3


def make():
    return FakeListLLM(responses=["made"])


def make_a_maker():
    return make
"""


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_models.py").write_text(OWN)
    (tmp_path / "broken_models.py").write_text("import nothing_of_the_kind\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_models", raising=False)


def providers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for langchain, which is not installed where tests run."""

    def init_chat_model(name: str, **options: Any) -> FakeListChatModel:
        if name != "acme:talker-1":
            raise ValueError(f"Unable to infer\nprovider of {name}")
        return FakeListChatModel(responses=[str(options)])

    chat_models = types.ModuleType("langchain.chat_models")
    chat_models.init_chat_model = init_chat_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "langchain", types.ModuleType("langchain"))
    monkeypatch.setitem(sys.modules, "langchain.chat_models", chat_models)


def test_ones_own_model_or_what_makes_it() -> None:
    assert find_language_model("own_models:llm").invoke("?") == "yes"
    assert find_language_model("own_models:patient").invoke("?") == "yes"
    made = find_language_model("own_models:make", temperature=0)
    assert isinstance(made, FakeListLLM)
    assert made.invoke("?") == "made"


def test_a_model_of_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    providers(monkeypatch)
    found = find_language_model("acme:talker-1", temperature=0.0)
    assert found.invoke("?").content == "{'temperature': 0.0}"


@pytest.mark.parametrize("name", ["acme:none", "own_models:absent", "nothing", "", ":", "a:"])
def test_a_name_that_leads_nowhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    providers(monkeypatch)
    with pytest.raises(
        NoLanguageModel, match="no importable module:attribute, and no provider opens it: "
    ) as error:
        find_language_model(name)
    assert "\n" not in str(error.value)


def test_what_is_no_model() -> None:
    with pytest.raises(NoLanguageModel, match="own_models:number is int, not a LangChain model"):
        find_language_model("own_models:number")
    with pytest.raises(NoLanguageModel, match="is function, not a LangChain model"):
        find_language_model("own_models:make_a_maker")
    with pytest.raises(NoLanguageModel, match="nothing_of_the_kind"):
        find_language_model("broken_models:llm")


def test_without_langchain_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("langchain", "langchain.chat_models"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"no importable .* pip install .*\[chat\]"):
        find_language_model("acme:talker-1")


def test_a_folder_that_is_not_there_is_asked_for_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="is no folder here") as raised:
        check_on_hub(tmp_path / "nowhere")
    assert "PosixPath" not in str(raised.value)
