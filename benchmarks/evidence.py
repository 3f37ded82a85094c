"""Measure self-correction with the embedded reader: ``python -m benchmarks.evidence``.

Every method answers the same questions from the same five passages. PopQA's long tail, TriviaQA
and questions of two hops come with passages that a dense retriever found in all of Wikipedia; only
their split 3 is read, of which nothing is trained or tuned. The other sets are searched in an index
of this package, and also with the passages that answer removed (CRAG's figure 3). Takes
../shared/data and an hour or two; the same command resumes it, and ``--sets`` runs it in parts.
Writes the figures of docs/evidence.md as JSON (docs/evidence_tables.py prints its tables), and ends
in one line of JSON.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from benchmarks import documents, share
from benchmarks.own_documents.files import QUESTIONS as OWN
from benchmarks.own_documents.files import write_texts
from reader_training import rows
from reader_training.evaluate import expected_error, for_calibration
from reader_training.export import RememberingNetwork
from reader_training.rows import DATA, lines, tidy
from selfcorrect_rag.evaluation.methods import (
    Spec,
    open_method,
    read_specs,
    read_sweep,
    resolve_spec,
)
from selfcorrect_rag.evaluation.metrics import contains_answer
from selfcorrect_rag.evaluation.report import score_run
from selfcorrect_rag.evaluation.reweigh import reweigh_run
from selfcorrect_rag.evaluation.runner import run_methods
from selfcorrect_rag.evaluation.statistics import compare_all
from selfcorrect_rag.evaluation.tasks import Outcome, Question, Run
from selfcorrect_rag.intake import title_of
from selfcorrect_rag.reader.network import READER, SHIPPED, load_tokenizer
from selfcorrect_rag.reader.reader import Reader, ReaderCalibration
from selfcorrect_rag.reflection import VALUES
from selfcorrect_rag.search import Index, load
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts
from selfcorrect_rag.training.evaluator import auc

METHODS = (
    *("no_retrieval", "rag_first=rag:passages=1", "rag", "ralm=instruct_rag:prompt_mode=ralm"),
    "likelihood=self_rag:weight_isrel=0,weight_issup=0,weight_isuse=0",
    *("self_rag", "crag", "self_crag", "instruct_rag"),
)
NAMES = {method.split("=")[0]: method for method in METHODS}
# The papers' order: the first of each pair is better.
PAIRS = (
    *(("self_crag", "self_rag"), ("self_rag", "rag"), ("self_rag", "rag_first")),
    *(("self_rag", "likelihood"), ("crag", "rag"), ("crag", "rag_first"), ("instruct_rag", "ralm")),
)
# The weights of a language model's reflection tokens (Self-RAG's figure 3).
SWEEPS = [f"self_rag:weight_{group}=0,0.5,1,2" for group in ("isrel", "issup", "isuse")]
PASSAGES = 5
SPLIT = 3  # the fourth of the questions with real retrieval that is for figures alone
REMOVED = 0.4  # share of the questions whose passages are removed in the second table
DEEP = 12  # passages retrieved, so that five are left without those that answer
TIMED = 10  # questions of a set that are asked one at a time, for the seconds
RESAMPLES = 1000  # of an AUC's interval
SENTENCE_END = 40  # characters by which a sentence of a file is recognised


class Asked(NamedTuple):
    """A question, and whether a passage is one that answers it, which the second table removes."""

    question: Question
    is_gold: Callable[[Document], bool]


def question_hash(question: str) -> str:
    """Hash a question's words without case and punctuation: SHA-256 in hex."""
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", question).casefold())
    return hashlib.sha256((" ".join(words) or question).encode(errors="replace")).hexdigest()


def read_sets(most: int | None = None) -> dict[str, list[Asked]]:
    """Read the six sets; of each at most ``most`` questions, drawn by their words."""
    sets = {name: _retrieved(name) for name in ("popqa", "triviaqa", "multihop")}
    sets |= {"nq": _nq(), "hotpotqa": _hotpotqa(), "files": _own_files()}
    for name, asked in sets.items():
        ranked = sorted(asked, key=lambda each: question_hash(each.question.question))[:most]
        ids = {each.question.id for each in ranked}
        sets[name] = [each for each in asked if each.question.id in ids]
    return sets


def _retrieved_rows(name: str) -> list[dict[str, Any]]:
    file = "multihop_retrieved_dev" if name == "multihop" else "retrieved5_dev"
    return [row for row in lines(DATA / f"{file}.jsonl.gz") if row.get("set", name) == name]


def _retrieved(name: str) -> list[Asked]:
    """Read the questions of split 3, each with the five best passages that were found for it."""
    found = []
    for number, row in enumerate(_retrieved_rows(name)):
        if rows.split_of(row["question"]) == SPLIT:
            passages = documents((p["title"], p["text"]) for p in row["passages"][:PASSAGES])
            given = row["question"], tuple(row["answers"]), tuple(passages)
            found.append(Asked(Question(f"{name}-{number}", *given), lambda passage: False))
    return found


def _nq() -> list[Asked]:
    kept = [row for row in rows.real_rows().held_out if row.source == "nq"]

    def is_page(row: rows.Row, page: Document) -> bool:
        return (page.metadata["title"], page.page_content) == (row.title, row.passage)

    return [
        Asked(Question(f"nq-{number}", row.question, row.answers), partial(is_page, row))
        for number, row in enumerate(for_calibration(kept, kept=False))
    ]


def _hotpotqa() -> list[Asked]:
    def has_title(titles: set[str], passage: Document) -> bool:
        return passage.metadata["title"] in titles

    return [
        Asked(
            Question(f"hotpotqa-{row['_id']}", row["question"], (row["answer"],)),
            partial(has_title, {title for title, _ in row["supporting_facts"]}),
        )
        for row in json.loads((DATA / "hotpotqa_train100.json").read_text(encoding="utf-8"))
        if row["answer"] not in ("yes", "no")
    ]


def _own_files() -> list[Asked]:
    with tempfile.TemporaryDirectory() as folder:
        missing = write_texts(Path(folder))
    found = []
    for row in (row for row in lines(OWN) if row["file"] not in missing):
        answers = tuple(row["answers"])
        question = Question(row["id"], row["question"], answers, unanswerable=not answers)
        found.append(Asked(question, partial(_states, row)))
    return found


def _states(row: Mapping[str, Any], passage: Document) -> bool:
    """Whether a passage of the file has the answer and one end of the sentence that says so."""
    text, sentence = tidy(passage.page_content), tidy(row["sentence"])
    there = any(end in text for end in (sentence[:SENTENCE_END], sentence[-SENTENCE_END:]))
    same = Path(passage.metadata["source"]).stem == row["file"]
    return same and there and contains_answer(text, row["answers"])


def make_index(name: str, work: Path) -> Index:
    """Make the index of a set's corpus once; one under its own name is whole."""
    corpus = name if name in ("files", "multihop") else "pages"
    folder = work / "indexes" / corpus
    if folder.exists():
        return Index(folder)
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    if corpus == "files":
        (work / "files").mkdir(parents=True, exist_ok=True)
        write_texts(work / "files")
        Index(part).add(load([work / "files"], print))
    else:
        if corpus == "multihop":
            found = [(p["title"], p["text"]) for r in _retrieved_rows(name) for p in r["passages"]]
        else:
            found = [*((r.title, r.passage) for r in rows.natural_questions()), *rows.pages()]
        Index(part).add(documents(dict.fromkeys([*found, *rows.encyclopedia()])))
    part.rename(folder)
    return Index(folder)


def retrieve(asked: Sequence[Asked], index: Index) -> tuple[list[Question], list[Question]]:
    """Return all questions with the best passages, and a share of them without those that answer.

    Each question loses the passages that answer it, and gets the next ones in their place.
    """
    ranked = sorted(asked, key=lambda each: question_hash(f"of {each.question.question}"))
    gone = {each.question.id for each in ranked[: round(REMOVED * len(ranked))]}
    whole, without = [], []
    for question, is_gold in asked:
        found = index.search(question.question, DEEP)
        whole.append(question._replace(passages=tuple(found[:PASSAGES])))
        if question.id in gone:
            rest = islice((each for each in found if not is_gold(each)), PASSAGES)
            without.append(question._replace(passages=tuple(rest)))
    return whole, without


def choose_specs(methods: Sequence[str], *, is_model: bool) -> list[Spec]:
    """Return the variants to run; a language model's candidates of Self-RAG are weighed again by
    likelihood and by sweeps, since to write them again takes long."""
    if not is_model or "self_rag" not in methods:
        return read_specs(methods)
    specs = read_specs(methods, [read_sweep(sweep)[1] for sweep in SWEEPS])
    return [s._replace(reweighs="self_rag") if s.name == "likelihood" else s for s in specs]


def run_set(
    name: str,
    asked: Sequence[Asked],
    work: Path,
    config: Mapping[str, Any],
    methods: Sequence[str],
    folder: Path = SHIPPED,
) -> Any:
    """Run methods on a set, as :data:`METHODS` writes them, and return its figures."""
    questions, without, web = [each.question for each in asked], list[Question](), "none"
    if name not in ("popqa", "triviaqa"):
        index = make_index(name, work)
        web = str(index.path)
        if name != "multihop":
            questions, without = retrieve(asked, index)
    # Methods and thresholds share what is read; seconds are measured without it.
    reader = Reader(
        RememberingNetwork(folder / READER), ReaderCalibration.load(folder), load_tokenizer(folder)
    )
    # The papers' models do not refuse either.
    never = {} if "model" in config else {"answer_above": 0.0}
    weights = Path(config.get("model", "")) / "model.safetensors"
    made_by = {**config, "reader": reader.network.digest}
    if weights.is_file():  # a folder with answers of other weights is refused
        with weights.open("rb") as file:
            made_by["weights"] = hashlib.file_digest(file, "sha256").hexdigest()
    specs = choose_specs(methods, is_model="model" in config)

    def run(kind: str, some: Sequence[Question], by: Reader, given: Mapping[str, Any]) -> Run:
        def show_progress(outcome: Outcome, left: int) -> None:
            if left % 200 == 0:
                print(f"{name}, {kind}: {left} left", file=sys.stderr, flush=True)

        # The index is not opened, since the questions have their passages; it is not the demo's.
        with Parts(ServingConfig(**config, **given, web=web, index=work)) as parts:
            parts.retriever, parts.reader = (lambda query: []), by
            opened = [open_method(spec, parts) for spec in specs if not spec.reweighs]
            out, many = work / "runs" / f"{name}-{kind}", 1 if kind == "timed" else 4
            done = run_methods(
                some, opened, out, settings=made_by, concurrency=many, on_done=show_progress
            )
            weighed = [resolve_spec(spec, parts) for spec in specs]
            return done if kind == "timed" else reweigh_run(done, weighed)

    def holds_answer(each: Asked, passage: Document) -> bool:
        if name == "files":  # the sentence that says it
            return each.is_gold(passage)
        text = f"{title_of(passage)}. {passage.page_content}"
        return contains_answer(text, each.question.answers)

    whole = run("whole", questions, reader, never)
    holds = {
        question.id: [holds_answer(each, passage) for passage in question.passages or ()]
        for each, question in zip(asked, questions, strict=True)
    }
    removed = run("without", without, reader, never) if without else None
    shipped = whole if "model" in config else run("shipped", questions, reader, {})
    timed = run("timed", questions[:TIMED], Reader.load(folder), never)
    answered = {question.id for question in questions if question.answers}
    known = _restrict(whole, answered)
    return {
        "questions": len(questions),
        "with_answers": len(answered),
        "answerable": share(any(some) for key, some in holds.items() if key in answered),
        "hashes": [question_hash(question.question)[:16] for question in questions],
        "whole": figures(known),
        "removed": figures(_restrict(replace(whole, removed), answered)) if removed else None,
        "shipped": shipped_figures(shipped, holds),
        "confidence": confidence_figures(known) if "self_rag" in known.methods else None,
        "isrel": isrel_figures(known, holds) if "self_rag" in known.methods else None,
        "segments": segment_figures(known) if "self_rag" in known.methods else None,
        "evaluator": evaluator_figures(known, holds) if "crag" in known.methods else None,
        "seconds": {
            method: round(sum(o.seconds for o in timed.of(method)) / len(timed.questions), 3)
            for method in timed.methods
        },
    }


def _restrict(run: Run, ids: set[str]) -> Run:
    questions = [question for question in run.questions if question.id in ids]
    return run._replace(questions=questions, outcomes=[o for o in run.outcomes if o.id in ids])


def replace(whole: Run, some: Run) -> Run:
    """Return a run with the outcomes of another one in place of its own, for its questions."""
    other = {(outcome.method, outcome.id): outcome for outcome in some.outcomes}
    return whole._replace(outcomes=[other.get((o.method, o.id), o) for o in whole.outcomes])


def figures(run: Run) -> dict[str, Any]:
    """Return each method's mean match with its interval, its calls, and the papers' order."""
    scored, methods = score_run(run, "match"), {}
    for name, by_question in scored.items():
        calls = [outcome.model_calls for outcome in run.of(name)]
        match = share(value for value in by_question.values() if value is not None)
        methods[name] = {"match": match, "calls": round(sum(calls) / len(calls), 2)}
    return {"methods": methods, "pairs": [pair._asdict() for pair in compare_all(scored, PAIRS)]}


def shipped_figures(run: Run, holds: Mapping[str, Sequence[bool]]) -> dict[str, Any]:
    """Return each method's shares of right, wrong and refused of all questions, and how many it
    refuses of those of which no passage holds an answer."""
    answers = {question.id: question.answers for question in run.questions}
    found: dict[str, dict[str, Any]] = {}
    for method in run.methods:
        marks: dict[str, list[bool]] = {"right": [], "wrong": [], "refused": []}
        unheld = []
        for o in run.of(method):
            is_refused = o.refused or bool(o.error)
            is_right = not is_refused and contains_answer(o.answer, answers[o.id])
            marks["refused"].append(is_refused)
            marks["right"].append(is_right)
            marks["wrong"].append(not (is_refused or is_right))
            if not any(holds[o.id]):
                unheld.append(is_refused)
        shares = {**marks, "refused_unheld": unheld}
        found[method] = {key: share(values) for key, values in shares.items() if values}
        found[method]["unheld"] = len(unheld)
    return found


def confidence_figures(run: Run) -> dict[str, Any]:
    """Return Self-RAG's mean confidence in its answer, the share that is right, and how far they
    are apart in ten bins (expected calibration error)."""
    answers = {question.id: question.answers for question in run.questions}
    marks = [
        (float(candidate["sequence_probability"]), contains_answer(o.answer, answers[o.id]))
        for o in run.of("self_rag")
        for candidate in o.candidates
        if candidate["chosen"] and candidate["sequence_probability"] is not None
    ]
    sure, right = (share(column) for column in zip(*marks, strict=True))
    error = round(expected_error(marks), 3)
    return {"answers": len(marks), "confidence": sure, "right": right, "error": error}


def evaluator_figures(run: Run, holds: Mapping[str, Sequence[bool]]) -> dict[str, Any]:
    """Return the AUC of CRAG's grades and of a title rule, for whether a passage holds an answer.

    The rule: a passage is relevant if the question names its title.
    """
    questions, graded = {question.id: question for question in run.questions}, []
    for outcome in run.of("crag"):
        question = questions[outcome.id]
        passages = question.passages or ()
        if len(outcome.grades) == len(passages):
            named = (contains_answer(question.question, [title_of(page)]) for page in passages)
            titles = map(float, named)
            graded.append(list(zip(outcome.grades, titles, holds[outcome.id], strict=True)))
    names = ("grades", "title_rule", "difference")
    return {"questions": len(graded), **dict(zip(names, auc_figures(graded), strict=True))}


def isrel_figures(run: Run, holds: Mapping[str, Sequence[bool]]) -> dict[str, Any]:
    """Return the AUC of Self-RAG's ISREL, for whether a passage holds an answer; None if all do, or
    none."""
    judged = (
        [
            (candidate["critique"]["ISREL"], holds[outcome.id][candidate["passage"]])
            for candidate in outcome.candidates
            if candidate["depth"] == 0 and candidate["critique"].get("ISREL") is not None
        ]
        for outcome in run.of("self_rag")
    )
    graded = [marks for marks in judged if marks]
    both = len({held for marks in graded for _, held in marks}) == 2
    return {"questions": len(graded), "isrel": auc_figures(graded)[0] if both else None}


def segment_figures(run: Run) -> dict[str, Any]:
    """Return how well each term of Self-RAG's score, and the whole score, tells the right first
    segments from the wrong ones: AUCs, and the likelihood's minus the whole score's."""
    answers = {question.id: question.answers for question in run.questions}
    graded = [
        [
            (
                candidate["sequence_probability"],
                *(candidate["critique"].get(group) or 0.0 for group in VALUES),
                candidate["score"],
                float(contains_answer(candidate["text"], answers[outcome.id])),
            )
            for candidate in outcome.candidates
            if candidate["depth"] == 0
        ]
        for outcome in run.of("self_rag")
    ]
    names = ("p(y)", *VALUES, "score", "difference")
    return dict(zip(names, auc_figures(graded), strict=True))


def auc_figures(graded: Sequence[Sequence[tuple[float, ...]]]) -> list[list[float]]:
    """Return the AUC of each score, and the first minus the last, with intervals by bootstrap over
    questions. ``graded`` has the scores of each question's passages, and whether each is one that
    holds an answer."""
    import numpy as np

    def measure(picked: Sequence[int]) -> list[float]:
        *scores, held = zip(*(marks for i in picked for marks in graded[i]), strict=True)
        if len({*held}) < 2:  # a resample that the interval leaves out
            return [np.nan] * (len(scores) + 1)
        found = [auc([*zip(score, held, strict=True)]) for score in scores]
        return [*found, found[0] - found[-1]]

    draws = np.random.default_rng(0).integers(len(graded), size=(RESAMPLES, len(graded))).tolist()
    ends = np.nanpercentile([measure(picked) for picked in draws], [2.5, 97.5], axis=0)
    rounded: list[list[float]] = np.vstack([measure(range(len(graded))), ends]).T.round(3).tolist()
    return rounded


def main() -> None:
    """Run what is missing, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=300, help="maximum questions of a set")
    parser.add_argument("--sets", nargs="+", help="by default all six")
    parser.add_argument("--work", type=Path, default=Path("build/evidence"))
    parser.add_argument(
        "--methods", nargs="+", default=NAMES, help="of these names, or NAME=METHOD:KEY=VALUE,..."
    )
    parser.add_argument("--reader", type=Path, default=SHIPPED, help="folder of a reader's weights")
    parser.add_argument("--model", help="a checkpoint with reflection tokens, or a chat model")
    parser.add_argument("--engine", help="what runs it")
    args = parser.parse_args()
    methods = [NAMES.get(method, method) for method in args.methods]
    config = {"model": args.model, "engine": args.engine} if args.model else {}
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    file = work / "evidence.json"
    made: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {"sets": {}}
    for name, asked in read_sets(args.most).items():
        if args.sets is None or name in args.sets:
            made["sets"][name] = run_set(name, asked, work, config, methods, args.reader)
            made["sets"][name]["about"] = {
                "date": time.strftime("%Y-%m-%d"),
                "machine": f"{os.cpu_count()} cores, {platform.machine()}",
                "reader": Reader.load(args.reader).network.digest[:16],
                "langgraph": version("langgraph"),
            }
            file.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({"benchmark": "evidence", "sets": list(made["sets"]), "figures": str(file)}))


if __name__ == "__main__":
    main()
