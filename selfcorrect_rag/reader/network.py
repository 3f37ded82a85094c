"""Run the embedded encoders on onnxruntime, and the embedder among them as LangChain embeddings."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from langchain_core.embeddings import Embeddings

from selfcorrect_rag.errors import ModelNotFound, require

SHIPPED = Path(__file__).parent / "weights"
READER, EMBEDDER, TOKENIZER = "reader.onnx", "embedder.onnx", "tokenizer.json"
WORDS = "words.safetensors"
"""Word embeddings, which both encoders share."""
BATCH_TOKENS, EMBEDDED_TOKENS = 256, 256
"""Most padded tokens of a forward pass: a core's cache holds them; and of a text, which is cut."""

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reads it when imported


class Row(NamedTuple):
    """Token ids of one sequence, and the segment (0 or 1) of each."""

    ids: list[int]
    types: list[int]


class Network:
    """An encoder in an ONNX file; threads may share one, and it works in a forked child.

    Batches run beside each other on threads that end with the call, ``OMP_NUM_THREADS`` or else as
    many as there are cores. The file at ``path`` takes ``input_ids``, ``attention_mask`` and, if
    the encoder has segments, ``token_type_ids``, int64 (rows, tokens). Its weights may be in files
    beside it. Raises `ModelNotFound` if one is missing or corrupt.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        runtime = require("onnxruntime", "demo")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session = runtime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its classes have no common base but this one
            reason = " ".join(str(error).split())[:200]
            told = "cannot be read; install selfcorrect-rag again or export the network again"
            raise ModelNotFound(f"{path} {told} ({reason})") from error
        self._inputs = [each.name for each in self._session.get_inputs()]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the network with its weights, in hexadecimal."""
        digest = hashlib.sha256()
        for path in (self.path, self.path.with_suffix(".safetensors"), self.path.parent / WORDS):
            if path.exists():
                digest.update(path.read_bytes())
        return digest.hexdigest()

    def run(self, rows: Sequence[Row]) -> list[list["np.ndarray[Any, Any]"]]:
        """Return the outputs of each row in the graph's order, cut to the row's tokens."""
        results: list[Any] = [None] * len(rows)

        def run_batch(batch: Sequence[int]) -> None:
            width = max(len(rows[i].ids) for i in batch)
            ids, types, mask = np.zeros((3, len(batch), width), dtype=np.int64)
            for line, i in enumerate(batch):
                length = len(rows[i].ids)
                ids[line, :length], types[line, :length] = rows[i].ids, rows[i].types
                mask[line, :length] = 1
            feed = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
            outputs = self._session.run(None, {name: feed[name] for name in self._inputs})
            for line, i in enumerate(batch):
                results[i] = [values[line] for values in outputs]

        given = os.environ.get("OMP_NUM_THREADS", "")
        threads = max(1, int(given)) if given.isdigit() else os.cpu_count() or 1
        batches = split_batches([len(row.ids) for row in rows], threads)
        if threads == 1 or len(batches) < 2:
            list(map(run_batch, batches))
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(run_batch, batches))
        return results


def split_batches(lengths: Sequence[int], threads: int = 1) -> list[list[int]]:
    """Group the indices of rows of like length, longest first, into at least ``threads`` batches of
    at most `BATCH_TOKENS` with little padding."""
    most = min(BATCH_TOKENS, max(1, -(-sum(lengths) // threads)))
    batches: list[list[int]] = []
    longest = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        is_full = bool(batches) and (len(batches[-1]) + 1) * longest > most
        if not batches or is_full or lengths[i] < 0.75 * longest - 16:
            batches.append([])
            longest = lengths[i]
        batches[-1].append(i)
    return batches


def load_tokenizer(folder: Path = SHIPPED, max_tokens: int | None = None) -> Any:
    """Load the ``tokenizers.Tokenizer`` in ``folder``; "[SEP]" in a text is plain text to it.

    Texts are cut to ``max_tokens``, special tokens included, if it is given. Raises `ModelNotFound`
    if the file is missing or corrupt.
    """
    tokenizers, path = require("tokenizers", "demo"), folder / TOKENIZER
    try:
        tokenizer = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # tokenizers raises plain Exception
        raise ModelNotFound(f"{path} cannot be read ({error})") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if max_tokens is not None:
        tokenizer.enable_truncation(max_tokens)
    tokenizer.encode_special_tokens = True
    return tokenizer


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
    return Network(SHIPPED / EMBEDDER), load_tokenizer(max_tokens=EMBEDDED_TOKENS)
