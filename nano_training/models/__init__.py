"""Models that demonstrate training and do not ship: the nano critic and a tiny T5 evaluator."""

from pathlib import Path
from typing import Any

from selfcorrect_rag.models.chat.transformers_chat import TransformersChat


def critic_path() -> Path:
    """The folder of the nano critic, as ``TransformersCritic.from_pretrained`` takes it."""
    return Path(__file__).parent / "critic"


def load_critic(**options: Any) -> TransformersChat:
    """The nano critic as a chat model, for the paper's prompts (tables 8 to 12).

    ``options`` are those of ``TransformersChat.from_pretrained``.
    """
    return TransformersChat.from_pretrained(critic_path(), **options)


def tiny_t5_path() -> Path:
    """The folder of the tiny T5, as ``T5Evaluator.from_pretrained`` takes it."""
    return Path(__file__).parent / "evaluator"
