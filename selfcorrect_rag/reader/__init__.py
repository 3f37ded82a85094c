"""The reader: the embedded model that answers from passages, in their own words.

Its names are imported at their first use, because they need the ``demo`` extra.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from selfcorrect_rag.errors import require

if TYPE_CHECKING:
    from selfcorrect_rag.reader.network import ReaderEmbeddings
    from selfcorrect_rag.reader.reader import Reader
    from selfcorrect_rag.reader.reader_llm import ReaderEvaluator, ReaderLLM

__all__ = ["Reader", "ReaderEmbeddings", "ReaderEvaluator", "ReaderLLM"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for needed in ("numpy", "onnxruntime", "tokenizers"):
        require(needed, "demo")
    modules = zip(__all__, ("reader", "network", "reader_llm", "reader_llm"), strict=True)
    return getattr(import_module(f"{__name__}.{dict(modules)[name]}"), name)
