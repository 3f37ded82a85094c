"""Rationales written by hand in the paper's style: documents used and dismissed, final answers."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.rationales import FOLDER, figures, judged, rows_of
from selfcorrect_rag.prompts.rationale.conclusions import final_answer
from selfcorrect_rag.prompts.rationale.documents import read_documents
from selfcorrect_rag.prompts.refusals import is_refusal

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
        (TISHEM, [4, 5], [1, 2, 3]),
        (
            "After reviewing the provided document, I found that only documents 2, 4 contain "
            "relevant information to answer the question.",
            [2, 4],
            [1, 3, 5],
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
            [2, 4],
            [3, 5],
        ),
        ("Document 1, Document 3, and Document 5 do not provide any information.", [], [1, 3, 5]),
        ("Document 2 does not explicitly mention the year, but it names the author.", [2], []),
        ("Document [3] mentions Middlemarch, but it is not relevant to the question.", [], [3]),
        ("Document 3 is about a television series. However, it is not relevant here.", [], [3]),
        ("Document 2 states that she was not related to T. S. Eliot.", [2], []),
        ("Unlike Document 5, Document 4 tells us who she was.", [4], [5]),
        ("Document 2 says so, while the other documents are not relevant.", [2], [1, 3, 4, 5]),
        ("Document 2 says so, the others don't.", [2], [1, 3, 4, 5]),
        ("Neither Document 1 nor Document 3 names an author.", [], [1, 3]),
        ("Document 2 is useful. Document 2 does not say when it was written.", [2], []),
        ("Document 2 is useful. On reflection, Document 2 is not relevant at all.", [], [2]),
        ("Document 2 tells of a novel. Document 2 does not say who wrote it.", [], [2]),
        ("Not only Document 2 but also Document 4 states this.", [2, 4], []),
        ("Middlemarch is by George Eliot [2][4].", [2, 4], []),
        ("None of the documents is relevant. From my own knowledge, it is George Eliot.",
         [], [1, 2, 3, 4, 5]),
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
        # named, and no more
        ("Documents 1-5 were retrieved.", [], []),
        ("I skimmed Document 3. Document 4 is a biography.", [], []),
        ("The documents that are useful to answer the question are: Document 2. Document 4 "
         "mentions her family.", [2], []),
        # by place, by number alone, by title
        ("The first document isn't about the novel. The second one is.", [2], [1]),
        ("Only the second document names her.", [2], [1, 3, 4, 5]),
        ("The useful ones are 2 and 4. Skip 1 (a park) and 3.", [2, 4], [1, 3]),
        ("1: no (a park)\n2: yes\n4: yes", [2, 4], [1]),
        ("| Document | Useful |\n|---|---|\n| 1 | No |\n| 2 | Yes |", [2], [1]),
        ("- [1] a park ❌\n- [2] the author ✅", [2], [1]),
        # the same said of another
        ("Document 1 is irrelevant. So is Document 3.", [], [1, 3]),
        ("Document 1 is unrelated, as are Documents 3 and 5.", [], [1, 3, 5]),
        ("Document 2 is useful, and so is Document 4.", [2, 4], []),
        ("Document 3 does not help. Nor does Document 5.", [], [3, 5]),
        # pronouns
        ("Document 3 is a TV series and Document 5 a poet, so neither was used.", [], [3, 5]),
        ("Although Document 3 mentions the novel, it says nothing about its author.", [], [3]),
        ("Document 2 only gives the year, but it is still useful.", [2], []),
        ("Lyon is sometimes named, which is wrong. Document 2 names her.", [2], []),
        # set apart
        ("Document 2, not Document 4, names the author.", [2], [4]),
        ("No document other than Document 2 names her.", [2], [1, 3, 4, 5]),
        ("I will ignore Document 5 and rely on Document 2.", [2], [5]),
        ("All documents except Document 3 are useful.", [], [3]),
        ("Document 2 (yes), Document 3 (another work).", [2], [3]),
        ("Document 2's first line gives the answer.", [2], []),
        # denied twice, or only so it seems
        ("Document 2 is not irrelevant.", [2], []),
        ("Document 3 looks relevant at first glance but is not.", [], [3]),
        # what it says is no verdict on it
        ("Document 2 says that she was not useful to anyone.", [2], []),
        ("In Document 2 the author cannot be helped.", [2], []),
        ("He was never the author [2].", [2], []),
        ("Document 2 calls her unrelated to the other Eliot.", [2], []),
        ("Document 3 is about another work and Document 5 is a poet's biography.", [], [3, 5]),
        ("In Document 3 there is nothing on her.", [], [3]),
        ("Rejected: Document 3 and Document 5. Sources: Document 2.", [2], [3, 5]),
        ("### Discarded\nDocument 3 is a series.\n### Answer\nEliot [2]", [2], [3]),
        ("According to Document #4 and Doc. 2, she did. Can be ignored: Document 1.", [4, 2], [1]),
        # named after a colon, in a table, in a section, or asked of
        ("Document 3 = a TV series.", [], [3]),
        ("Document 5: an American poet. Document 2: written in 1871.", [2], [5]),
        ("<useful>2, 4</useful><irrelevant>1, 3</irrelevant>", [2, 4], [1, 3]),
        ("Yes: 2, 4. No: 1, 3, 5.", [2, 4], [1, 3, 5]),
        ("1 - no, a park\n2 - yes, it names her", [2], [1]),
        ("2, 4: relevant. 1, 3: irrelevant.", [2, 4], [1, 3]),
        ("1) irrelevant\n2) useful", [2], [1]),
        ("Documents 1 and 3? A park and a series, not what we want.", [], [1, 3]),
        ("[2] names her; [3]–[5] do not.", [2], [3, 4, 5]),
        # the verb stands in another clause, or behind another verb
        ("Document 3 is about a series; Document 5, about a poet.", [], [3, 5]),
        ("Document 2 names her, and Document 4 does too.", [2, 4], []),
        ("Document 2 appears to indicate that she did.", [2], []),
        ("Luckily Document 2 and Document 4 both name her.", [2, 4], []),
        ("You might expect Document 3 to help, but it is about a series.", [], [3]),
        ("Document 3 sounded right but turned out to be about a series.", [], [3]),
        ("Document 3 is relevant to television but not to the question.", [], [3]),
        ("Document 5 would be useful if we were asked about the poet.", [], [5]),
        ("Document 2 is about the novel, but it mentions that she wrote it.", [2], []),
        ("Looking at Documents 2 and 4, we see that she did.", [2, 4], []),
        # what is said of all, of some or of no other
        ("Only two texts bear on it. Document 2 and Document 4 name her.", [2, 4], [1, 3, 5]),
        ("Document 2 names her; everything else is noise.", [2], [1, 3, 4, 5]),
        ("With the exception of Document 2, none of the passages help.", [2], [1, 3, 4, 5]),
        ("Documents 3 and 5 tell of others; none of them helps.", [], [3, 5]),
        ("In contrast to Document 3, Document 2 names her.", [2], [3]),
        # background is no answer, and no dismissal
        ("Document 2 names her. Document 4 offers some background on her life.", [2], []),
        # closing words are said of no document
        ("Document 3 is a series. I hope this helps!", [], []),
    ],
)  # fmt: skip
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


def test_an_answer_in_quotes_names_no_document() -> None:
    said = 'Document [1] says so.\nThe answer is “set "Document [2] is useful" to true”.'
    assert read_documents(said, ["Emma", "Oslo"]) == ([1], [], [])


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
    assert read_documents("She is \x022\x03 and useful.", TITLES).useful == []


NAMED = ["Document {}", "[{}]", "Passage {}", "doc {}", "Document [{}]"]
DISMISSALS = [
    "{} doesn't.", "{} is not.", "{} is off-topic.", "{} has nothing to do with the question.",
    "{} is about someone else.", "I will not use {}.", "We can ignore {}.", "{} isn't relevant.",
    "{} does not say who wrote it.", "{} says nothing about it.", "No mention of it in {}.",
    "I set {} aside.", "{} is no help.", "{}: irrelevant.", "{} is beside the point.",
    "{} never names her.", "{} fails to name her.", "{} is noise.", "{} concerns another Eliot.",
    "Nothing in {} helps.", "{} can be left out.", "{} won't help us.", "{} only gives a date.",
    "{} lacks the author.", "{}, which is about a park, can be disregarded.", "I don't need {}.",
]  # fmt: skip
USES = [
    "{} says that she wrote it.", "{} names the author.", "According to {}, she wrote it.",
    "She wrote it ({}).", "{} is useful.", "I rely on {}.", "{} confirms it.", "{} has the answer.",
    "As {} states, she wrote it.", "She wrote it, as we learn from {}.", "{}: she was the author.",
    "{} puts it beyond doubt.", "In {}, she is called the author.", "{} answers the question.",
]  # fmt: skip


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("said", DISMISSALS)
def test_dismissals_however_the_document_is_named(said: str, named: str) -> None:
    reading = read_documents(said.format(named.format(3)), TITLES)
    assert (reading.useful, reading.dismissed) == ([], [3])


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("said", USES)
def test_uses_however_the_document_is_named(said: str, named: str) -> None:
    reading = read_documents(said.format(named.format(2)), TITLES)
    assert (reading.useful, reading.dismissed) == ([2], [])


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(USES + DISMISSALS), st.integers(1, 5)), max_size=6))
def test_sentences_are_read_apart_and_a_use_never_outweighs_the_plain_dismissal(
    said: list[tuple[str, int]],
) -> None:
    text = " ".join(sentence.format(f"Document {n}") for sentence, n in said)
    reading = read_documents(text, TITLES)
    assert not set(reading.useful) & set(reading.dismissed)
    dismissed = {n for sentence, n in said if sentence in DISMISSALS}
    used = {n for sentence, n in said if sentence in USES}
    assert used - dismissed == set(reading.useful) - dismissed
    assert dismissed - used <= set(reading.dismissed)
    irrelevant = {n for sentence, n in said if "off-topic" in sentence or "ignore" in sentence}
    assert irrelevant <= set(reading.dismissed)


@given(st.lists(st.sampled_from([*"[]()12,.:|\n\"'", "Document ", "not ", "it ", "the other "])
                | st.text(max_size=3)).map("".join))  # fmt: skip
def test_whatever_is_written_no_document_is_both_and_none_is_made_up(text: str) -> None:
    useful, dismissed, missing = read_documents(text, TITLES)
    assert set(useful) | set(dismissed) <= {1, 2, 3, 4, 5}
    assert not set(useful) & set(dismissed)
    assert not set(missing) & {1, 2, 3, 4, 5}
    assert isinstance(final_answer(text), str)


UNITS = ["Document 1, ", "[1] ", '"', "Documents 1-999 ", "not ", "the answer ", "A. ", "( ", "so ",
         "Document 1 is ", "Document 1 and ", "the answer is not given ", " ", "\n", "1. a\n",
         "because Document 1 ", "Answer:\n"]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_long_rationales_are_read_to_their_end(unit: str) -> None:
    text = unit * 2_000 + '".\n\nDocument 4 is off-topic.\n\nThe answer is George Eliot.'
    assert final_answer(text) == "George Eliot"
    assert 4 in read_documents(text, TITLES).dismissed


@pytest.mark.parametrize(
    ("file", "least"),
    [
        ("rationales_development.jsonl", {"readings": 111, "documents": 478, "answers": 106}),
        ("rationales_first_set_aside.jsonl", {"readings": 98, "documents": 454, "answers": 102}),
        ("closed_answers_development.jsonl", {"closed_answers": 72}),
        ("closed_answers_first_set_aside.jsonl", {"closed_answers": 71}),
    ],
)
def test_no_fewer_rows_are_read_right_than_before(file: str, least: dict[str, int]) -> None:
    right = Counter(
        name for row in rows_of(FOLDER / file) for name, is_right, _ in judged(row) if is_right
    )
    assert {name: min(right[name], count) for name, count in least.items()} == least


def test_a_share_comes_with_the_borders_of_its_wilson_interval(tmp_path: Path) -> None:
    row = {"text": "B", "options": ["A", "B"], "answer": "B"}
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps({**row, "answer": a}) for a in "BBBBBBBBBA"))
    # Newcombe 1998, method 3, for 9 of 10
    assert figures(rows_of(file))["closed_answers"] == {
        "share": 0.9, "low": 0.5958, "high": 0.9821, "of": 10,
    }  # fmt: skip


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
        ("The answer is not given. George Eliot wrote it.", "George Eliot wrote it"),
        ("Document 2 names her. In conclusion, J. R. R. Tolkien did not write it.",
         "J. R. R. Tolkien did not write it"),
        ("George Eliot", "George Eliot"),
        ("Document 2 answers the question: it names George Eliot.",
         "Document 2 answers the question: it names George Eliot"),
        ("", ""),
        # what is called wrong is no answer
        ("Some say that the answer is Lyon, which is wrong. The capital is Paris.", "Paris"),
        ("One might think the answer is Lyon. It is Paris.", "Paris"),
        ("In the first draft the answer is Lyon, which is wrong. So it is Paris.", "Paris"),
        ("The answer is not Lyon but Paris.", "Paris"),
        ("The answer is not Lyon. It is Paris.", "Paris"),
        ("The answer is Paris, not Lyon.", "Paris"),
        ("Lyon is often named, which is wrong. So it is Paris.", "Paris"),
        # neither are closing words, notes and asides
        ("The answer is Paris. I hope this helps!", "Paris"),
        ("Paris. Let me know if you have any other questions.", "Paris"),
        ("Hope this helps!", ""),
        ("So: Paris.\n\nNote: Document 3 is about Lyon.", "Paris"),
        ("Paris. (Document 3: Lyon. Not needed.)", "Paris"),
        # nothing is announced
        ("Document 2 says so. Therefore, Paris is the capital.", "Paris is the capital"),
        ("Document 2 names her. Hence it was George Eliot who wrote it.", "George Eliot"),
        ("Paris, according to Document 2. Document 3 is off-topic.", "Paris"),
        ("Yes. Document 2 says so.", "Yes"),
        ("No. Document 2 says otherwise.", "No"),
        ("It was No. 5. Document 2 says so.", "No. 5"),
        ("Document 2 says that the author is George Eliot.", "George Eliot"),
        ("None of them says. From my own knowledge, it is Paris.", "Paris"),
        ("Paris is the correct answer.", "Paris"),
        ("## Answer\nParis", "Paris"),
        ("<answer>Paris</answer>", "Paris"),
        ("\\boxed{42}", "42"),
        ("Answer:", ""),
        ("Answer: Paris, because Document 2 says so.", "Paris"),
        ("The answer is Paris (Document [2]).", "Paris"),
        ("The answer, then, is Paris.", "Paris"),
        ("The answer must therefore be Paris.", "Paris"),
        ("The answer isn't Lyon; it's Paris.", "Paris"),
        ("The answer is Paris because Document 2 says so.", "Paris"),
        ("I first thought the answer was Lyon, but it is Paris.", "Paris"),
        ('{"answer": "Paris"}', "Paris"),
        ("ANSWER Paris", "Paris"),
        ("The documents don't say, but I know that it was Paris.", "Paris"),
        ("Nothing here tells us, so I rely on what I remember: Paris.", "Paris"),
        ("Going by Document 2, it is Paris.", "Paris"),
        ("Paris is the largest city there (Document 2). Document 1 is a park.", "Paris"),
        ("it is paris (doc 2). 3 and 5 didn't help. paris", "paris"),
        ("Hi,\n\nIt's Paris, as Documents 1 and 2 have it.\n\nCheers,\nTom", "Paris"),
        ("Paris. Document 1 is a park. Those two don't matter.", "Paris"),
        # word for word, where the last line gives it in quotes
        ("Document 2 says so.\nThe answer is “`tar -xf $FILE .`, not __init__”.",
         "`tar -xf $FILE .`, not __init__"),
        ("The answer is “Lyon. It rains, because of it”.", "Lyon. It rains, because of it"),
        ("The answer is “the \"Great\" dam, which leaks”.", 'the "Great" dam, which leaks'),
        ("The answer is “Lyon, not Paris”.\nSo the answer is Paris.", "Paris"),
        ("The answer is “Lyon” or “Paris”.", "“Lyon” or “Paris”"),
        ("The answer is “not given in the documents”. It is Paris.", "Paris"),
    ],
)  # fmt: skip
def test_final_answers(rationale: str, answer: str) -> None:
    assert final_answer(rationale) == answer


@pytest.mark.parametrize(
    ("rationale", "answer"),
    [
        ("The question is who wrote it. None of the documents says who did.",
         "None of the documents says who did."),
        ("Document 1 is a park. I cannot answer the question. I hope this helps!",
         "I cannot answer the question."),
        ("The documents do not contain this information. I don't know.", "I don't know."),
        ("Document 1: not relevant.\n\nAnswer: insufficient information.",
         "insufficient information."),
        ("None of this fits. The answer can't be determined.", "The answer can't be determined."),
        ("Document 1 is a park. I would only be guessing.", "I would only be guessing."),
        ("no idea, none of these say", "no idea, none of these say"),
        ("Document 1 is a park.\nThe documents do not say (best guess: the answer is 9).",
         "The documents do not say (best guess: the answer is 9)."),
        ("The documents do not say, so the answer cannot be determined.",
         "The documents do not say, so the answer cannot be determined."),
    ],
)  # fmt: skip
def test_where_nothing_answers_the_answer_says_so(rationale: str, answer: str) -> None:
    assert final_answer(rationale) == answer
    assert is_refusal(answer)
