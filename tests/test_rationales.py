"""Rationales written by hand in the paper's style: documents used and dismissed, final answers."""

import pytest

from selfcorrect_rag.conclusions import final_answer
from selfcorrect_rag.rationales import read_documents

TITLES = ["Eliot Park", "Middlemarch", "Middlemarch (TV series)", "George Eliot", "T. S. Eliot"]

TISHEM = """\
The documents that are useful to answer the question are: Documents 4 and 5. Document 4 states \
that Catherine Tishem was from Breda, and her husband Wouter Gruter co-signed the Compromise of \
Nobles in 1566, and they moved to the Dutch Calvinist exile community of Norwich. This implies \
that Catherine Tishem was not born in Norwich. Document 5 provides more information about \
Catherine Tishem's life, stating that she was an erudite woman from Antwerp who educated her son, \
Jan Gruter, while in exile in England. This implies that Catherine Tishem was born in Antwerp. The \
other documents do not provide any information about Catherine Tishem's birthplace, so they are \
not useful for answering this question. Based on the above information, the answer is Norwich."""
"""The paper's own (Table 12)."""


@pytest.mark.parametrize(
    ("rationale", "useful", "dismissed"),
    [
        (TISHEM, [4, 5], []),
        (
            "After reviewing the provided document, I found that only documents 2, 4 contain "
            "relevant information to answer the question.",
            [2, 4],
            [],
        ),
        (
            "Document [2] states that Middlemarch is by George Eliot. Document [1] is not relevant "
            "to the question, and Document [3] does not mention the author.",
            [2],
            [1, 3],
        ),
        ("Documents 1, 3, and 5 are not useful; Document 2 is.", [2], [1, 3, 5]),
        ("While Documents [1] and [3] are irrelevant, Document [2] names the author.", [2], [1, 3]),
        (
            "Documents [2], [4] support this, whereas Documents 3-5 are about others.",
            [2, 4, 3, 5],
            [],
        ),
        ("Document 1, Document 3, and Document 5 do not provide any information.", [], [1, 3, 5]),
        ("Document 2 does not explicitly mention the year, but it names the author.", [2], []),
        ("Document [3] mentions Middlemarch, but it is not relevant to the question.", [], [3]),
        ("Document 3 is about a television series. However, it is not relevant here.", [], [3]),
        ("Document 2 states that she was not related to T. S. Eliot.", [2], []),
        ("Unlike Document 5, Document 4 tells us who she was.", [4], [5]),
        ("Document 2 says so, while the other documents are not relevant.", [2], []),
        ("Document 2 says so, while both others are not relevant.", [2], []),
        ("Neither Document 1 nor Document 3 names an author.", [], [1, 3]),
        ("Document 2 is useful. Document 2 does not say when it was written.", [2], []),
        ("Document 2 is useful. On reflection, Document 2 is not relevant at all.", [], [2]),
        ("Document 2 tells of a novel. Document 2 does not say who wrote it.", [], [2]),
        ("Not only Document 2 but also Document 4 states this.", [2, 4], []),
        ("Middlemarch is by George Eliot [2][4].", [2, 4], []),
        ("None of the documents is relevant. From my own knowledge, it is George Eliot.", [], []),
        (
            "Useful documents:\n- **Document [2]** (Title: Middlemarch): names the author\n\n"
            "Irrelevant documents:\n* Document [1]: a park\n* Document [3]: a series\n\n"
            "Document [4] confirms it.",
            [2, 4],
            [1, 3],
        ),
        ("1. Document [1]: Not relevant.\n2. Document [2]: The author is named.", [2], [1]),
        (
            'The document titled "Middlemarch" names her; the passage "T. S. Eliot" does not help.',
            [2],
            [5],
        ),
        ("According to Document #4 and Doc. 2, she did. Can be ignored: Document 1.", [4, 2], [1]),
    ],
)
def test_useful_documents_are_told_from_dismissed_ones(
    rationale: str, useful: list[int], dismissed: list[int]
) -> None:
    reading = read_documents(rationale, TITLES)
    assert reading.useful == useful
    assert sorted(reading.dismissed) == dismissed
    assert reading.missing == []


def test_documents_that_do_not_exist_are_told() -> None:
    reading = read_documents("Document [2] and Document [9] say so, and document 0.", TITLES)
    assert (reading.useful, reading.missing) == ([2], [9, 0])


def test_a_title_that_two_documents_bear_names_neither() -> None:
    assert read_documents('The document "Emma" says so.', ["Emma", "Emma"]).useful == []
    assert read_documents('The document "Emma" says so.', ["Emma", "Emmy"]).useful == [1]


def test_a_title_that_is_merely_spoken_of_names_no_document() -> None:
    assert read_documents('The question is who wrote "Middlemarch".', TITLES).useful == []


def test_years_and_counts_are_no_documents() -> None:
    text = "In Document 2, 3 children are named. Documents 1990 and 30% of them, [1872], say more."
    assert read_documents(text, TITLES)[:2] == ([2], [])


def test_what_a_document_is_quoted_with_is_no_verdict() -> None:
    text = 'Document 2 says "Document 4 is not relevant, ignore Document 2" and names the author.'
    assert read_documents(text, TITLES)[:2] == ([2], [])


def test_marks_of_ours_in_a_rationale_name_nothing() -> None:
    assert read_documents("\x022\x03 is useful.", TITLES).useful == []


@pytest.mark.parametrize(
    "unit", ["Document 1, ", "[1] ", '"', "Documents 1-999 ", "not ", "the answer "]
)
def test_long_rationales_are_read_as_short_ones_are(unit: str) -> None:
    """A pattern that went over them again and again would not come to an end."""
    assert read_documents(unit * 5000, TITLES) == read_documents(unit * 3, TITLES)
    assert final_answer(unit * 5000) in unit * 5000


@pytest.mark.parametrize(
    ("rationale", "answer"),
    [
        (TISHEM, "Norwich"),
        ("Based on the provided contents, the answer is: George Eliot.", "George Eliot"),
        ("Document 2 says so.\n\nAnswer: George Eliot", "George Eliot"),
        ("**Final Answer:** *George Eliot*.", "*George Eliot*"),
        ("Therefore, the correct answer is George Eliot. She was English.", "George Eliot"),
        ('The answer to the question "Who is she?" is "George Eliot".', "George Eliot"),
        ("The answer is J. R. R. Tolkien. He was English.", "J. R. R. Tolkien"),
        ("The answer is Martin Luther King Jr.", "Martin Luther King Jr."),
        ("It follows that the answer is World War I. It began in 1914.", "World War I"),
        ("The correct answers are:\n\n1. George Eliot\n2. Mary Ann Evans.\n\nBoth are right.",
         "George Eliot, Mary Ann Evans"),
        ("Answer:\nGeorge Eliot.", "George Eliot"),
        ("At first the answer is T. S. Eliot. But the answer is George Eliot.", "George Eliot"),
        ("The answer is George Eliot. The answer is found in Document [2].", "George Eliot"),
        ("The answer is not given. George Eliot wrote it.", "George Eliot wrote it."),
        ("Document 2 names her. In conclusion, J. R. R. Tolkien did not write it.",
         "In conclusion, J. R. R. Tolkien did not write it."),
        ("George Eliot", "George Eliot"),
        ("Document 2 answers the question: it names George Eliot.",
         "Document 2 answers the question: it names George Eliot."),
        ("", ""),
    ],
)  # fmt: skip
def test_final_answers(rationale: str, answer: str) -> None:
    assert final_answer(rationale) == answer
