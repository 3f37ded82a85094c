"""Citation recall and precision after ALCE: the formula written down once more, and its traps."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from selfcorrect_rag.evaluation import citations
from selfcorrect_rag.evaluation.rows import Outcome, Question
from tests.evaluation.generated import entails, long_rows, vary

ROWS = long_rows()
Q = Question("1", "?")


def split(text: str) -> list[str]:
    return [s for s in re.split(r"(?<=\.)\s+", text) if s]


def document(passage: Any) -> str:
    return "Title: %s\n%s" % (passage["title"], passage["text"])  # noqa: UP031


def bare(sentence: str) -> str:
    return re.sub(r"\s*\[\d+\]", "", sentence).strip()


def joined(docs: list[Any]) -> str:
    return "\n".join(document(doc) for doc in docs)


def alce(outcome: Outcome) -> tuple[float, float] | None:
    """Recall and precision of ALCE's ``compute_autoais(citation=True, at_most_citations=3)``."""
    sents = split(outcome.cited_answer.strip().split("\n")[0])
    if not sents:
        return None
    entailed = precise = total = 0
    for sent in sents:
        ref = [int(r) - 1 for r in re.findall(r"\[(\d+)", sent)]
        flag = False
        if ref and not any(r >= len(outcome.passages) for r in ref):
            ref = ref[:3]
            total += len(ref)
            flag = entails(joined([outcome.passages[r] for r in ref]), bare(sent))
        entailed += flag
        if flag and len(ref) > 1:
            for r in ref:
                if entails(document(outcome.passages[r]), bare(sent)):
                    precise += 1
                    continue
                rest = ref.copy()
                rest.remove(r)
                precise += not entails(joined([outcome.passages[i] for i in rest]), bare(sent))
        elif flag:
            precise += 1
    return entailed / len(sents), precise / total if total else 0.0


def strict(outcome: Outcome) -> tuple[float, float]:
    """The paper's section 4.3 over all lines and all citations."""
    if outcome.error or outcome.refused or not outcome.cited_answer:
        return 0.0, 0.0
    sents = [s for line in outcome.cited_answer.split("\n") for s in split(line)]
    recalled, good, total = 0, 0, 0
    for sent in sents:
        numbers = list(dict.fromkeys(map(int, re.findall(r"\[(\d+)", sent))))
        total += len(numbers)
        docs = {n: outcome.passages[n - 1] for n in numbers if 1 <= n <= len(outcome.passages)}
        if not (docs and entails(joined(list(docs.values())), bare(sent))):
            continue
        recalled += 1
        for n in docs:
            rest = [doc for other, doc in docs.items() if other != n]
            irrelevant = not entails(document(docs[n]), bare(sent))
            superfluous = bool(rest) and entails(joined(rest), bare(sent))
            good += not (irrelevant and superfluous)
    return recalled / len(sents), good / total if total else 0.0


def test_parity_of_the_official_forms() -> None:
    expected = [alce(outcome) for _, outcome in ROWS]
    recall = [citations.official_citation_recall(q, o, entails) for q, o in ROWS]
    precision = [citations.official_citation_precision(q, o, entails) for q, o in ROWS]
    assert recall == [None if found is None else found[0] for found in expected]
    assert precision == [None if found is None else found[1] for found in expected]
    assert vary(recall, 5)
    assert vary(precision, 8)


def test_parity_of_the_strict_forms() -> None:
    expected = [strict(outcome) for _, outcome in ROWS]
    recall = [citations.citation_recall(q, o, entails) for q, o in ROWS]
    precision = [citations.citation_precision(q, o, entails) for q, o in ROWS]
    assert recall == [found[0] for found in expected]
    assert precision == [found[1] for found in expected]
    assert vary(recall, 5)
    assert vary(precision, 8)


def cited(text: str, *passages: str, **more: Any) -> Outcome:
    outcome = Outcome("1", "rag", "answer", cited_answer=text)
    return outcome._replace(passages=tuple({"title": "T", "text": p} for p in passages))._replace(
        **more
    )


BOTH = (citations.official_citation_precision, citations.citation_precision)


@pytest.mark.parametrize("precision", BOTH)
@pytest.mark.parametrize(
    ("passages", "expected"),
    [
        (("amber", "birch"), 1.0),  # neither entails alone, neither is superfluous
        (("amber birch", "cedar"), 0.5),  # the second is irrelevant alone and superfluous
        (("amber birch", "birch amber"), 1.0),  # superfluous, but relevant alone
        (("amber birch", "amber"), 0.5),
        (("amber", "cedar"), 0.0),  # not recalled
    ],
)
def test_a_citation_counts_unless_irrelevant_alone_and_superfluous(
    precision: Callable[..., float], passages: tuple[str, str], expected: float
) -> None:
    assert precision(Q, cited("Amber birch [1][2].", *passages), entails) == expected


def test_skipped_empty_outputs_flatter_refusals_only_officially() -> None:
    empty = Outcome("1", "rag", "")
    assert citations.official_citation_recall(Q, empty, entails) is None
    assert citations.official_citation_precision(Q, empty, entails) is None
    assert citations.citation_recall(Q, empty, entails) == 0
    assert citations.citation_precision(Q, empty, entails) == 0


@pytest.mark.parametrize("change", [{"refused": True}, {"error": "down"}])
def test_refused_and_failed_runs_cite_nothing(change: dict[str, Any]) -> None:
    good = cited("Amber [1].", "amber")
    assert citations.citation_recall(Q, good, entails) == 1
    assert citations.citation_recall(Q, good._replace(**change), entails) == 0
    assert citations.citation_precision(Q, good._replace(**change), entails) == 0


def test_only_the_first_line_is_read_officially() -> None:
    two = cited("Amber [1].\nBirch [1].", "amber")
    assert citations.official_citation_recall(Q, two, entails) == 1
    assert citations.citation_recall(Q, two, entails) == 0.5


def test_a_citation_without_a_document() -> None:
    wrong = cited("Amber [1][7].", "amber")
    assert citations.official_citation_recall(Q, wrong, entails) == 0
    assert citations.citation_recall(Q, wrong, entails) == 1
    assert citations.citation_precision(Q, wrong, entails) == 0.5
    zero = cited("Birch [0].", "amber", "birch")
    assert citations.official_citation_recall(Q, zero, entails) == 1
    assert citations.citation_recall(Q, zero, entails) == 0


def test_citations_after_the_third_are_not_read_officially() -> None:
    four = cited("Amber birch [1][2][3][4].", "cedar", "delta", "amber", "birch")
    assert citations.official_citation_recall(Q, four, entails) == 0
    assert citations.citation_recall(Q, four, entails) == 1


def test_repeated_citations_count_once_strictly() -> None:
    twice = cited("Amber [1][1][2].", "amber", "cedar")
    assert citations.official_citation_precision(Q, twice, entails) == 2 / 3
    assert citations.citation_precision(Q, twice, entails) == 0.5


def test_marks_behind_the_full_stop_are_of_the_sentence_before_them() -> None:
    after = cited("Item amber. [1] Item birch. [2]", "amber", "birch")
    assert citations.official_citation_recall(Q, after, entails) < 1
    assert citations.citation_recall(Q, after, entails) == 1
    assert citations.citation_precision(Q, after, entails) == 1


def test_a_graphs_numbers_are_those_of_its_citations_not_of_its_passages() -> None:
    graph = cited(
        "Amber [1].",
        "birch",
        "amber",
        citations=({"number": 1, "passage": 1, "title": "T", "text": "amber"},),
    )
    assert citations.citation_recall(Q, graph, entails) == 1
    assert citations.official_citation_recall(Q, graph, entails) == 1


def test_the_model_reads_titles_and_bare_sentences() -> None:
    asked: list[tuple[str, str]] = []

    def ask(premise: str, hypothesis: str) -> bool:
        asked.append((premise, hypothesis))
        return True

    citations.citation_recall(Q, cited("Amber [1][2].", "one", "two"), ask)
    assert asked[0] == ("Title: T\none\nTitle: T\ntwo", "Amber.")
