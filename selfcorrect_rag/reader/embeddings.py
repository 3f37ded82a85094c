"""The embedded default for dense retrieval: all-MiniLM-L6-v2 as LangChain embeddings."""

from functools import cache
from typing import Any

from langchain_core.embeddings import Embeddings

from selfcorrect_rag.reader.network import EMBEDDER, SHIPPED, Network, Row, load_tokenizer

MAX_TOKENS = 256
"""Maximum length of a text in tokens, special tokens included; the rest is cut off."""


class ReaderEmbeddings(Embeddings):
    """Embeddings of 384 dimensions and unit length; similar texts have a high dot product.

    They run on onnxruntime on the CPU. The weights are all-MiniLM-L6-v2's in eight bits
    (Apache-2.0); a text's embedding has a cosine of 0.999 with that of the float32 weights. They
    are loaded at first use, once for all instances.

    Raises:
        ModelNotFound: at first use: the installed weights are corrupt.
    """

    name = "all-MiniLM-L6-v2 int8"
    """The name of the embeddings in an index: another one means other vectors."""

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        network, tokenizer = _load()
        # Half a surrogate pair is an error to the tokenizer.
        valid = (text.encode(errors="replace").decode() for text in texts)
        encodings = [tokenizer.encode(text) for text in valid]  # encode_batch has a thread pool
        outputs = network.run([Row(each.ids, each.type_ids) for each in encodings])
        return [values.tolist() for (values,) in outputs]


@cache
def _load() -> tuple[Network, Any]:
    return Network(SHIPPED / EMBEDDER), load_tokenizer(max_tokens=MAX_TOKENS)
