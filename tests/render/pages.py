"""A page as the tests read it, and results full of hostile text."""

from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "base"}
INLINE = {"a", "bdi", "q", "strong", "sup"}
HOSTILE = (
    "</p></li></title></style><script>alert(1)</script><img src=x onerror=alert(1)>"
    "\"' onmouseover=alert(1) ${title} {0} %s &lt; \u202egnp.exe\u2066\u200b\x00\x1b[31m \U000e0041"
)
SOURCES = (
    "javascript:alert(1)",
    "JaVaScRiPt://example.org/%0aalert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "file:///etc/passwd",
    "//example.org/x",
    "https://user@example.org/",
    "https://example.org/\u202egnp",
    'https://example.org/"onclick=alert(1)',
    "https://",
    "http://[::1",
)


class Page(HTMLParser):
    """Elements in order, with what must be balanced checked on the way."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.texts += [] if tag in INLINE else [" "]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def of(self, tag: str, name: str | None = None) -> list[dict[str, str | None]]:
        """The attributes of every ``tag``, of one class where it is given."""
        return [
            given
            for found, given in self.elements
            if found == tag and (name is None or name in (given.get("class") or "").split())
        ]

    @property
    def links(self) -> list[str]:
        return [given["href"] or "" for given in self.of("a")]

    @property
    def ids(self) -> list[str]:
        return [given["id"] for _, given in self.elements if given.get("id")]  # type: ignore[misc]


def result_of(text: str, source: str) -> dict[str, Any]:
    """A result with ``text`` wherever text can stand, in the JSON of ``ask``."""
    documents = [
        {"id": text, "text": f"{i} {text}", "metadata": {"title": text, "source": source}}
        for i in range(2)
    ]
    candidate = {
        "step": "retrieve",
        "text": text,
        "critique": {"ISREL": 0.4, "ISSUP": None, "ISUSE": -0.4, text: 0.1},
        "sequence_probability": 0.5,
        "score": 1.0,
        "terms": [{"name": text, "weight": 1.0, "value": 0.5}],
        "path_score": 1.0,
        "path_rule": text,
        "path_terms": [0.5, 0.5],
        "next": "retrieve",
        "judgements": {text: {text: 0.5}},
    }
    places = [(0, 0, None), (0, 0, None), (1, 0, 0), (1, 0, 0), (1, 1, 1), (1, 1, 1)]
    steps = ["read_question", "retrieve", "grade_documents", "rewrite_query", "web_search"]
    return {
        "route": [{"step": step, "failed": text} for step in steps],
        "question": text,
        "answer": text,
        "cited_answer": f"{text} [1]",
        "citations": [
            {
                "number": 1,
                "passage": 0,
                "title": text,
                "source": source,
                "text": text,
                "quote": f"Quote: {text}",
            }
        ],
        "candidates": [
            {
                **candidate,
                "depth": depth,
                "beam": beam,
                "parent": parent,
                "passage": i % 2,
                "dropped": text if i % 2 else None,
                "chosen": i in (0, 2),
            }
            for i, (depth, beam, parent) in enumerate(places)
        ],
        "passages": documents,
        "retrieval": {"retrieve": True, "probability": None, "threshold": 0.2, "mode": text},
        "options": {text: 1.0},
        "grades": [{"document": i, "title": text, "score": -0.5 + i} for i in range(2)],
        "action": "ambiguous",
        "strips": [{"document": 0, "text": text, "score": 0.5, "kept": True}],
        "web_query": text,
        "web_source": text,
        "web_failure": text,
        "web_results": documents,
        "web_strips": [{"document": 1, "text": text, "score": -1.0, "kept": False}],
        "knowledge": documents,
        "notes": [text],
        "usage": {"model_calls": 1, text: 3},
        "costs": {text: {"model_calls": 1, "seconds": 0.5}},
        "made": {
            **dict.fromkeys(("graph", "model", "index", "date"), text),
            **{key: {text: text} for key in ("settings", "config", "versions")},
        },
        "__interrupt__": [{"value": {text: text}}],
    }


def rationale_of(text: str, source: str) -> dict[str, Any]:
    """The same for InstructRAG."""
    whole = result_of(text, source)
    kept = ("route", "question", "answer", "citations", "passages", "notes")
    return {
        **{key: whole[key] for key in kept},
        "rationale": f"{text} Document [1] and document 2 and [7].",
        "numbering": [1, 0],
        "useful_documents": [1],
        "dismissed_documents": [0],
        "demonstrations": [{"question": text, "rationale": text}, {"answers": [text]}],
        "mode": text,
    }
