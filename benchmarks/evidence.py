"""Measure self-correction with the embedded reader: ``python -m benchmarks.evidence``.

Every method answers questions that no training of this project saw, over an index of all passages
and over one without the passages that answer (CRAG's figure 3 removes a share of them). Takes
../shared/data and about an hour; the same command resumes it. Writes the figures of
docs/evidence.md's main tables as JSON, and ends in one line of JSON.
"""

import argparse
import hashlib
import json
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from benchmarks.own_documents.__main__ import QUESTIONS as OWN
from benchmarks.own_documents.files import write_texts
from reader_training.evaluate import for_calibration
from reader_training.rows import (
    DATA,
    encyclopedia,
    lines,
    natural_questions,
    pages,
    real_rows,
    tidy,
)
from selfcorrect_rag.evaluation.methods import open_method, read_specs
from selfcorrect_rag.evaluation.metrics import contains_answer
from selfcorrect_rag.evaluation.report import score_run
from selfcorrect_rag.evaluation.runner import run_methods
from selfcorrect_rag.evaluation.statistics import bootstrap_mean, compare_all
from selfcorrect_rag.evaluation.tasks import Question, Run
from selfcorrect_rag.search import Index, load
from selfcorrect_rag.search.index import passage_id
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts

METHODS = (
    *("no_retrieval", "rag_first=rag:passages=1", "rag", "ralm=instruct_rag:mode=ralm"),
    "likelihood=self_rag:weight_isrel=0,weight_issup=0,weight_isuse=0",
    *("self_rag", "crag", "self_crag", "instruct_rag"),
)
PAIRS = (
    ("self_crag", "self_rag"),
    ("self_rag", "rag"),
    ("self_rag", "rag_first"),
    ("self_rag", "likelihood"),
    ("crag", "rag"),
    ("crag", "rag_first"),
    ("instruct_rag", "ralm"),
)
"""The papers' order: the first of each pair is better."""
PASSAGES = 5
REMOVED = 0.4
"""Share of the questions whose passages are removed in the second table."""
SENTENCE_END = 40
"""Characters by which a sentence of a file is recognised."""


class Asked(NamedTuple):
    """A question, and whether a passage is one that answers it."""

    question: Question
    is_gold: Callable[[Document], bool]


def question_hash(question: str) -> str:
    """Hash a question's words without case and punctuation: SHA-256 in hex."""
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", question).casefold())
    return hashlib.sha256((" ".join(words) or question).encode(errors="replace")).hexdigest()


def read_sets(most: int | None = None) -> dict[str, list[Asked]]:
    """Read the four sets; of each at most ``most`` questions, drawn by their words."""
    sets = {"popqa": _popqa(), "nq": _nq(), "hotpotqa": _hotpotqa(), "files": _own_files()}
    chosen = {}
    for name, asked in sets.items():
        ranked = sorted(asked, key=lambda each: question_hash(each.question.question))[:most]
        ids = {each.question.id for each in ranked}
        chosen[name] = [each for each in asked if each.question.id in ids]
    return chosen


def _popqa() -> list[Asked]:
    return [
        Asked(
            Question(f"popqa-{row['id']}", row["question"], tuple(row["answers"])),
            _has_title({page["title"] for page in row["paragraphs"]}),
        )
        for row in lines(DATA / "popqa_dev_741.jsonl")
    ]


def _nq() -> list[Asked]:
    kept = [row for row in real_rows().held_out if row.source == "nq"]
    found = []
    for number, row in enumerate(for_calibration(kept, kept=False)):
        page = row.title, row.passage
        question = Question(f"nq-{number}", row.question, row.answers)
        found.append(Asked(question, partial(_is_page, page)))
    return found


def _is_page(page: tuple[str, str], document: Document) -> bool:
    return (document.metadata["title"], document.page_content) == page


def _hotpotqa() -> list[Asked]:
    rows = json.loads((DATA / "hotpotqa_train100.json").read_text(encoding="utf-8"))
    return [
        Asked(
            Question(f"hotpotqa-{row['_id']}", row["question"], (row["answer"],)),
            _has_title({title for title, _ in row["supporting_facts"]}),
        )
        for row in rows
        if row["answer"] not in ("yes", "no")
    ]


def _own_files() -> list[Asked]:
    found = []
    for row in lines(OWN):
        answers = tuple(row["answers"])
        question = Question(row["id"], row["question"], answers, unanswerable=not answers)
        found.append(Asked(question, _is_from(row["file"], answers, tidy(row["sentence"]))))
    return found


def _has_title(titles: set[str]) -> Callable[[Document], bool]:
    return lambda passage: passage.metadata["title"] in titles


def _is_from(name: str, answers: Sequence[str], sentence: str) -> Callable[[Document], bool]:
    """Whether a passage of the file has the answer and one end of the sentence that says so."""

    def is_gold(passage: Document) -> bool:
        text = tidy(passage.page_content)
        there = any(end in text for end in (sentence[:SENTENCE_END], sentence[-SENTENCE_END:]))
        same = Path(passage.metadata["source"]).stem == name
        return same and there and contains_answer(text, answers)

    return is_gold


def make_index(folder: Path, passages: Callable[[], Iterator[Document]]) -> Path:
    """Make an index once; one under its own name is whole."""
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        Index(part).add(passages())
        part.rename(folder)
    return folder


def make_indexes(name: str, asked: Sequence[Asked], work: Path) -> tuple[Path, Path]:
    """The index of all passages of a set's corpus, and the one without those that answer."""

    def passages() -> Iterator[Document]:
        if name == "files":
            folder = work / "files"
            folder.mkdir(parents=True, exist_ok=True)
            write_texts(folder)
            yield from load([folder], print)
            return
        pooled = [(row.title, row.passage) for row in natural_questions()]
        for title, text in dict.fromkeys([*pooled, *pages(), *encyclopedia()]):
            yield Document(text, metadata={"title": title})

    def others() -> Iterator[Document]:
        gold = {passage_id(d) for d in passages() if any(each.is_gold(d) for each in asked)}
        yield from (document for document in passages() if passage_id(document) not in gold)

    corpus = "files" if name == "files" else "pages"
    without = work / "indexes" / f"{name}-without-gold-of-{len(asked)}"
    return make_index(work / "indexes" / corpus, passages), make_index(without, others)


def run_set(name: str, asked: Sequence[Asked], work: Path, config: Mapping[str, Any]) -> Any:
    """Run all methods on a set over both indexes; return the figures of both tables."""
    indexes = make_indexes(name, asked, work)
    questions, runs = [each.question for each in asked], []
    for kind, index in zip(("whole", "without"), indexes, strict=True):
        parts_of_set = {"index": index, "web": str(indexes[0]), "passages": PASSAGES}
        given = ServingConfig(**config, **parts_of_set)
        print(f"{name}, {kind}", file=sys.stderr)
        with Parts(given) as parts:
            methods = [open_method(spec, parts) for spec in read_specs(METHODS)]
            out = work / "runs" / f"{name}-{kind}"
            runs.append(run_methods(questions, methods, out, concurrency=4))
    answerable = {question.id for question in questions if not question.unanswerable}
    whole, without = (_restrict(run, answerable) for run in runs)
    return {
        "questions": len(questions),
        "answerable": len(answerable),
        "hashes": [question_hash(question.question)[:16] for question in questions],
        "whole": figures(whole),
        "removed": figures(remove_gold(whole, without, REMOVED)),
    }


def _restrict(run: Run, ids: set[str]) -> Run:
    return run._replace(
        questions=[question for question in run.questions if question.id in ids],
        outcomes=[outcome for outcome in run.outcomes if outcome.id in ids],
    )


def remove_gold(whole: Run, without: Run, share: float) -> Run:
    """The outcomes if the passages that answer this share of the questions were removed."""
    ranked = sorted(whole.questions, key=lambda each: question_hash(f"of {each.question}"))
    gone = {question.id for question in ranked[: round(share * len(ranked))]}
    there = {(outcome.method, outcome.id): outcome for outcome in without.outcomes}
    outcomes = [there[o.method, o.id] if o.id in gone else o for o in whole.outcomes]
    return whole._replace(outcomes=outcomes)


def figures(run: Run) -> dict[str, Any]:
    """Each method's mean match with its interval, its calls and seconds, and the papers' order."""
    scored = score_run(run, "match")
    methods = {}
    for name, rows in scored.items():
        mean = bootstrap_mean([value for value in rows.values() if value is not None])
        outcomes = run.of(name)
        methods[name] = {
            "value": mean.value,
            "interval": mean.ends,
            "calls": round(sum(o.model_calls for o in outcomes) / len(outcomes), 2),
            "seconds": round(sum(o.seconds for o in outcomes) / len(outcomes), 3),
        }
    return {"methods": methods, "pairs": [pair._asdict() for pair in compare_all(scored, PAIRS)]}


def main() -> None:
    """Run what is missing, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=300, help="maximum questions of a set")
    parser.add_argument("--sets", nargs="+", default=["popqa", "nq", "hotpotqa", "files"])
    parser.add_argument("--work", type=Path, default=Path("build/evidence"))
    parser.add_argument("--model", help="a checkpoint with reflection tokens, or a chat model")
    parser.add_argument("--engine", help="what runs it")
    args = parser.parse_args()
    # The papers' models do not refuse either.
    config = {"model": args.model, "engine": args.engine} if args.model else {"answer_above": 0.0}
    work = args.work.resolve()
    made = {
        name: run_set(name, asked, work, config)
        for name, asked in read_sets(args.most).items()
        if name in args.sets
    }
    (work / "evidence.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    match = {
        name: {
            method: round(each["value"], 3) for method, each in found["whole"]["methods"].items()
        }
        for name, found in made.items()
    }
    figures_file = str(work / "evidence.json")
    print(json.dumps({"benchmark": "evidence", "match": match, "figures": figures_file}))


if __name__ == "__main__":
    main()
