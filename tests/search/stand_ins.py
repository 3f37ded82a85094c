"""Embeddings without a model, importable by name, and small files of every kind."""

import random
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

Call = Callable[..., Any]


class WordHash(Embeddings):
    """A text is the sum of its words, each a random direction: texts that share words are close.

    Counts of words would be simpler, but they are full of ties, and on ties Chroma's graph falls
    apart: it then finds only some of the passages, whatever k is.
    """

    def __init__(self) -> None:
        self.embedded = 0

    def embed_query(self, text: str) -> list[float]:
        words = map(_direction, text.lower().split())
        return [sum(values) for values in zip(_direction("every text"), *words, strict=True)]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.embedded += len(texts)
        return [self.embed_query(text) for text in texts]


def texts(found: Iterable[Document]) -> list[str]:
    return [document.page_content for document in found]


@cache
def _direction(word: str) -> list[float]:
    generator = random.Random(word)
    return [generator.gauss() for _ in range(64)]


def pdf(*pages: str, title: str = "") -> bytes:
    """A PDF with one line of text a page, written by hand."""
    count = len(pages)
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(count))
    bodies = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, page in enumerate(pages):
        lines = "".join(f"({line}) Tj T* " for line in page.split("\n"))
        stream = f"BT /F1 12 Tf 72 720 Td 14 TL {lines}ET" if page else ""
        bodies.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * i} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        bodies.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    bodies.append(f"<< /Title ({title}) >>")
    out, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(bodies, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    size = len(bodies) + 1
    return (
        f"{out}xref\n0 {size}\n0000000000 65535 f \n{table}"
        f"trailer << /Size {size} /Root 1 0 R /Info {len(bodies)} 0 R >>\n"
        f"startxref\n{len(out)}\n%%EOF"
    ).encode("latin-1")
