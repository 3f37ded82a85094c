"""The embedded default for dense retrieval: all-MiniLM-L6-v2 as LangChain embeddings."""

import threading
from functools import cached_property
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings

from selfcorrect_rag.reader.network import EMBEDDER, SHIPPED, Network, Row, load_tokenizer

MAX_TOKENS = 256
"""Maximum length of a text in tokens, special tokens included; the rest is cut off."""


class ReaderEmbeddings(Embeddings):
    """Embeddings of 384 dimensions and unit length; similar texts have a high dot product.

    They run on onnxruntime on the CPU. The weights are all-MiniLM-L6-v2's in eight bits
    (Apache-2.0); a text's embedding has a cosine of 0.999 with that of the float32 weights. They
    are loaded at first use. Threads may share one instance.

    Args:
        folder: Holds embedder.onnx, its weights and tokenizer.json; by default the shipped ones.

    Raises:
        ModelNotFound: at first use: the folder holds no embedder, or a corrupt one.
    """

    def __init__(self, folder: str | Path = SHIPPED) -> None:
        self.folder = Path(folder)
        self._lock = threading.Lock()
        self._loaded: tuple[Network, Any] | None = None

    @cached_property
    def name(self) -> str:
        """The name of the embeddings in an index: another one means other vectors."""
        if self.folder == SHIPPED:
            return "all-MiniLM-L6-v2 int8"
        return f"{EMBEDDER} sha256:{self._load()[0].digest[:16]}"

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if not texts:
            return []
        network, tokenizer = self._load()
        # Half a surrogate pair is an error to the tokenizer.
        valid = (text.encode(errors="replace").decode() for text in texts)
        encodings = [tokenizer.encode(text) for text in valid]  # encode_batch has a thread pool
        outputs = network.run([Row(each.ids, each.type_ids) for each in encodings])
        return [values.tolist() for (values,) in outputs]

    def _load(self) -> tuple[Network, Any]:
        with self._lock:
            if self._loaded is None:
                tokenizer = load_tokenizer(self.folder, MAX_TOKENS)
                self._loaded = Network(self.folder / EMBEDDER), tokenizer
            return self._loaded
