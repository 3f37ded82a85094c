"""The reader: the embedded model that answers from passages, in their own words.

Its names are imported at their first use, because they need the ``demo`` extra.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from selfcorrect_rag.errors import require

if TYPE_CHECKING:
    from selfcorrect_rag.reader.embeddings import ReaderEmbeddings
    from selfcorrect_rag.reader.reader import Reader
    from selfcorrect_rag.reader.reader_evaluator import ReaderEvaluator
    from selfcorrect_rag.reader.reader_llm import ReaderLLM

__all__ = ["Reader", "ReaderEmbeddings", "ReaderEvaluator", "ReaderLLM"]

_MODULES = {
    "Reader": "reader",
    "ReaderEmbeddings": "embeddings",
    "ReaderEvaluator": "reader_evaluator",
    "ReaderLLM": "reader_llm",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for needed in ("numpy", "onnxruntime", "tokenizers"):
        require(needed, "demo")
    globals()[name] = value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
