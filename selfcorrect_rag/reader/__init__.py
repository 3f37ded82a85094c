"""The reader: the embedded model that answers from passages, in their own words.

Its names are imported at their first use, since they need torch.
"""

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
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("onnxruntime" if name == "ReaderEmbeddings" else "torch", "demo")
    module = require(f"{__name__}.{_MODULES[name]}", "demo")
    globals()[name] = value = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
