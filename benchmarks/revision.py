"""Measure errors marked in answers and repaired: ``python -m benchmarks.revision``.

No language model: a rule, ``unstated_names``, judges, the embedded reader rewrites. Prints shares
with 95 % intervals and n. Of WiCE's claims (../shared/data), judged by people, with a mark:
``right_marked``: supported ones; ``unsupported_found``: others; ``foreign_found``,
``inside_found``: with a name or number of another claim, or another one of the page. Of answers of
three sentences, by rule from PopQA's questions on places of birth, the second with another's
place: it is ``repaired``, ``dropped``, ``left`` or else rewritten wrongly; both others are
``kept``.
"""

import json
import random
import re
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from langchain_core.documents import Document

from benchmarks import documents, share
from reader_training.rows import DATA, lines, mentions
from selfcorrect_rag.agents import UnsupportedSpan, revise_answer
from selfcorrect_rag.prompts.parts import passage_text
from selfcorrect_rag.prompts.reading import marks_in, sentence_spans
from selfcorrect_rag.reader.reader import Passage, Reader
from selfcorrect_rag.search import Index

FACT = re.compile(r"(?<=\s)(?:[A-Z][\w-]+|\d[\d,]*)\b")
READER, RANDOM, FOUND = Reader.load(), random.Random(0), defaultdict[str, list[bool]](list)
_NAME_OR_NUMBER = re.compile(r"\b(?:[^\W\d_]*[A-Z]\w*|\d[\d.,:]*\d|\d)")


def unstated_names(
    answer: str, passages: Sequence[Document], question: str = ""
) -> list[UnsupportedSpan]:
    """Return the names and numbers of ``answer`` that its passages do not state.

    Each sentence is compared with the question and the one passage that has most of its names and
    numbers, as pages about a wrong place would support it otherwise.
    """
    texts, asked = [_words(passage_text(passage)) for passage in passages], _words(question)
    marks = {i for mark in marks_in(answer, 0) for i in range(mark.bracket, mark.end)}
    spans = []
    for start, end in sentence_spans(answer):
        found = _NAME_OR_NUMBER.finditer(answer, start, end)
        facts = [(each, _words(each[0])) for each in found if each.start() not in marks]
        every = frozenset[str]().union(*(words for _, words in facts))
        known = asked | max(texts, key=lambda text: len(text & every), default=frozenset())
        for each, words in facts:
            is_name = each.start() > start or each[0][0].isdigit()
            if is_name and not words <= known:
                spans.append(UnsupportedSpan(start=each.start(), end=each.end(), text=each[0]))
    return spans


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold()))


def mark_claims() -> None:
    claims = list(lines(DATA / "reading" / "wice_dev.jsonl.gz"))
    for row in claims:
        claim, page = row["claim"], " ".join(row["evidence"])
        is_marked = bool(unstated_names(claim, [Document(page)]))
        if row["label"] == "not_supported":
            FOUND["unsupported_found"].append(is_marked)
        elif row["label"] == "supported":
            FOUND["right_marked"].append(is_marked)
            place = RANDOM.choice([*FACT.finditer(claim), None])
            other = RANDOM.choice(claims)["claim"]
            for name, text in (("foreign_found", other), ("inside_found", page)):
                words = [word for word in FACT.findall(text) if word not in claim]
                if place and words:
                    wrong = claim[: place.start()] + RANDOM.choice(words) + claim[place.end() :]
                    spans = unstated_names(wrong, [Document(page)])
                    FOUND[name].append(any(s["start"] == place.start() for s in spans))


def ask_reader(sentence: str, passages: Sequence[Document], question: str) -> str:
    spans = unstated_names(sentence, passages)
    if not spans:
        return sentence
    before, after = sentence[: spans[0]["start"]], sentence[spans[-1]["end"] :]
    texts = [Passage(page.metadata["title"], page.page_content) for page in passages]
    readings = READER.read([(f"{before}what{after.rstrip('.')}?", text) for text in texts])
    best = max((s for r in readings for s in r.spans), key=lambda s: s.confidence)
    return f"{before}{best.text}{after}" if best.confidence > 0.5 else ""


def repair_answers(folder: Path) -> None:
    rng, every = random.Random(0), lines(DATA / "popqa_dev_741.jsonl")
    rows = [row for row in every if row["prop"] == "place of birth"][:150]
    pages = [documents((p["title"], p["text"]) for p in r["paragraphs"]) for r in rows]
    index = Index(folder, "bm25")
    index.add(page for some in pages for page in some)
    node = revise_answer(unstated_names, index.as_retriever(k=3), ask_reader)
    for i in range(0, len(rows) - 2, 3):
        places, right = [row["answers"][0] for row in rows[i : i + 3]], rows[i + 1]["answers"]
        places[1] = rng.choice([a for r in rows if (a := r["answers"][0]) not in right])
        names = [row["s_wiki_title"].split(" (")[0] for row in rows[i : i + 3]]
        said = [f"{n} was born in {place}." for n, place in zip(names, places, strict=True)]
        given = {"question": "", "answer": " ".join(said), "passages": [*pages[i], *pages[i + 2]]}
        now = node.invoke(given)["answer"]
        between = now.removeprefix(said[0]).removesuffix(said[2])
        FOUND["kept"].append(said[0] in now and said[2] in now)
        FOUND["left"].append(said[1] in now)
        FOUND["repaired"].append(names[1] in now and any(mentions(a, between) for a in right))
        FOUND["dropped"].append(names[1] not in now)


if __name__ == "__main__":
    mark_claims()
    with tempfile.TemporaryDirectory() as place:
        repair_answers(Path(place) / "index")
    print(json.dumps({name: [*share(hits), len(hits)] for name, hits in FOUND.items()}))
