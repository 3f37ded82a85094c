"""Texts of chat models, and how long their prompts may be."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage
from pydantic import Field

from selfcorrect_rag.errors import ModelFailed
from selfcorrect_rag.models.chat_model import (
    exceeds,
    prompt_limit,
    split_reasoning,
    was_cut,
    written_text,
)
from tests.providers import saying


@pytest.mark.parametrize(
    ("text", "answer", "reasoning"),
    [
        ("Opened in 1931 [1].", "Opened in 1931 [1].", ""),
        ("<think>\nDocument [2]? No.\n</think>\n\n1931 [1].", "1931 [1].", "Document [2]? No."),
        ("Document [2]? No.\n</think>\n\n1931 [1].", "1931 [1].", "Document [2]? No."),
        ("[THINK]So[/THINK]Yes", "Yes", "So"),
        ("<think>a</think>b<think>c</think>d", "bd", "a\nc"),
        ("<think>Cut while it thinks [1]", "", "Cut while it thinks [1]"),
        ("<think>a <think> b</think>c", "c", "a <think> b"),
        ("It opens with <think> and goes on.", "It opens with <think> and goes on.", ""),
    ],
)
def test_reasoning_is_split_from_the_answer(text: str, answer: str, reasoning: str) -> None:
    assert split_reasoning(text) == (answer, reasoning)
    assert written_text(text) == written_text(AIMessage(text)) == answer


@given(st.lists(st.sampled_from(["<think>", "</think>", "[1] ", "no ", "\n"]), max_size=12))
def test_no_thought_after_an_opening_tag_is_left(parts: list[str]) -> None:
    thought = "<think>[2] maybe</think>"
    answer, reasoning = split_reasoning(thought + "".join(parts))
    assert "[2]" not in answer
    assert "[2] maybe" in reasoning


def test_blocks_of_a_message() -> None:
    blocks: list[Any] = [
        {"type": "reasoning", "reasoning": "Document [2]?", "text": "Document [2]?"},
        {"type": "thinking", "thinking": "No."},
        {"type": "text", "text": "Opened in 1931 [1]."},
        "So it was.",
    ]
    assert written_text(AIMessage(blocks)) == "Opened in 1931 [1].\nSo it was."
    assert written_text("a\ud800") == "a\ufffd"


@pytest.mark.parametrize(
    ("metadata", "cut"),
    [
        ({"finish_reason": "MAX_TOKENS"}, True),
        ({"stop_reason": "max_tokens"}, True),
        ({"incomplete_details": {"reason": "max_output_tokens"}}, True),
        ({"finish_reason": "stop", "incomplete_details": None}, False),
    ],
)
def test_an_answer_cut_at_its_limit(metadata: dict[str, Any], cut: bool) -> None:
    assert was_cut(AIMessage("x", response_metadata=metadata)) is cut


def test_how_long_a_prompt_may_be() -> None:
    class Counting(FakeListChatModel):
        profile: Any = Field(default={"max_input_tokens": 50})

        def get_token_ids(self, text: str) -> list[int]:
            return [0] * len(text.split())

    model = Counting(responses=[""])
    assert prompt_limit(model, 10) == 50
    assert prompt_limit(model, 10, context_tokens=100) == 90
    assert prompt_limit(model, 80, context_tokens=100) == 50, "half is left to the prompt"
    assert prompt_limit(saying(""), 10) is None
    assert [exceeds(model, "word " * n, 50) for n in (50, 51)] == [False, True]
    assert not exceeds(saying(""), "a" * 150, 50), "three characters a token"
    assert exceeds(saying(""), "a" * 151, 50)

    class Offline(FakeListChatModel):
        def get_token_ids(self, text: str) -> list[int]:
            raise ConnectionError("no vocabulary at http://ada:secret@host")

    with pytest.raises(ModelFailed, match=r"no vocabulary at http://\*\*\*@host"):
        exceeds(Offline(responses=[""]), "a" * 151, 50)
