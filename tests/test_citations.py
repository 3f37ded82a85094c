"""A citation: this was written from that text, and the text was judged relevant."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.nodes.reply import NO_ANSWER
from selfcorrect_rag.prompts.marks import read_marks
from selfcorrect_rag.prompts.refusals import is_refusal
from tests.crag_runs import AMBIGUOUS, CORRECT, INCORRECT, PagesWebSearch, WordEvaluator, document
from tests.scripted import (
    FULL,
    IRRELEVANT,
    RELEVANT,
    USEFUL,
    ScriptedReflectionLLM,
    passage_of,
    segment,
    timeless,
)

QUESTION: Any = {"question": "Who wrote Emma?"}


def both(graph: Any, **context: Any) -> Any:
    """The result of a run; the sync and the async form must give the same."""
    result = graph.invoke(QUESTION, context=context)
    assert timeless(asyncio.run(graph.ainvoke(QUESTION, context=context))) == timeless(result)
    return result


def crag(
    texts: Sequence[str], says: str, web: PagesWebSearch | None = None, **context: Any
) -> dict[str, Any]:
    graph = create_crag(
        RunnableLambda(lambda prompt: says),
        lambda query: [document(text, f"Doc {i}") for i, text in enumerate(texts, start=1)],
        WordEvaluator(),
        web or PagesWebSearch(),
    )
    return both(graph, **context)  # type: ignore[no-any-return]


# Marks


@pytest.mark.parametrize(
    ("text", "answer", "cited", "numbers"),
    [
        ("She did [2]. Surely [2][1].", "She did. Surely.", "She did [2]. Surely [2][1].", [2, 1]),
        ("She did [1, 2].", "She did.", "She did [1][2].", [1, 2]),
        ("She did [2; 1].", "She did.", "She did [2][1].", [2, 1]),
        ("She did [1-3].", "She did.", "She did [1][2][3].", [1, 2, 3]),
        ("She did [1 \u2013 2, 3].", "She did.", "She did [1][2][3].", [1, 2, 3]),
        ("She did\u30101\u3011\u3002", "She did\u3002", "She did [1]\u3002", [1]),
        ("She did\u30102\u2020source\u3011.", "She did.", "She did [2].", [2]),
        ("She did [^1^].", "She did.", "She did [1].", [1]),
        ("She did [Document 1 and document 3].", "She did.", "She did [1][3].", [1, 3]),
        (
            "Emma is Austen[1][2], of 1815[3].",
            "Emma is Austen, of 1815.",
            "Emma is Austen [1][2], of 1815 [3].",
            [1, 2, 3],
        ),
        ("She did ([1]).", "She did.", "She did ([1]).", [1]),
        ("She did.\n\n[1] She did.", "She did.\n\nShe did.", "She did.\n\n[1] She did.", [1]),
        ("arr[0] is 3 [1].", "arr[0] is 3.", "arr[0] is 3 [1].", [1]),
        ("It is x[1], my_list[1][2] or f.items[2].", None, None, []),
        ("x = [1, 2], and rowIndex[1] += 1", None, None, []),
        (
            "Take `[1]` or `data[1]`, so data[2] [3].",
            "Take `[1]` or `data[1]`, so data[2].",
            "Take `[1]` or `data[1]`, so data[2] [3].",
            [3],
        ),
        ("```\na [1]\n``` is it [2]", "```\na [1]\n``` is it", "```\na [1]\n``` is it [2]", [2]),
        ("[1](https://a.org) is a link", None, None, []),
        ("[[1]](https://a.org), [see [1] there](https://a.org)", None, None, []),
        ("in [0, 1], in [2024], [sic]", None, None, []),
        (
            "* Paris is it[1]\n* Lyon is big[2]",
            "* Paris is it\n* Lyon is big",
            "* Paris is it [1]\n* Lyon is big [2]",
            [1, 2],
        ),
        ("She did[1]\n> so[2]", "She did\n> so", "She did [1]\n> so [2]", [1, 2]),
        ("She did[1]\n=====\n[2] So", "She did\n=====\nSo", "She did [1]\n=====\n[2] So", [1, 2]),
        ("*She did[1]* so", "*She did* so", "*She did [1]* so", [1]),
        *(
            (f"{w}[1] it is", f"{w} it is", f"{w} [1] it is", [1])
            for w in ("iPhone", "mRNA", "pH", "p53", "data")
        ),
        *((f"{w}[1] = 3 `a`", None, None, []) for w in ("rowIndex", "x2", "data")),
        *((f"{w}[1] is `a`", None, None, []) for w in ("rowIndex", "x2", "data")),
        ("rowIndex[1] * 2", None, None, []),
        ("She did [7].", None, "She did [7?].", []),
        ("She did [2-7].", None, "She did [2-7?].", []),
        ("She did [3-1].", None, "She did [3-1?].", []),
        ("She did [1, 9].", "She did.", "She did [1].", [1]),
        ("She did [4][2].", "She did.", "She did [2].", [2]),
    ],
)
def test_marks_are_read_as_people_and_models_write_them(
    text: str, answer: str | None, cited: str | None, numbers: list[int]
) -> None:
    """None is the text as it stands; of four documents the fourth may not be cited."""
    marked = read_marks(text, 4, {1, 2, 3})
    assert marked.answer == (text if answer is None else answer)
    assert marked.numbers == numbers
    assert marked.cited == (text if cited is None else cited)


WORDS = st.sampled_from(
    ["Emma", "was", "1815.", "arr[0]", "x[2]", "written", "(by)", "[sic]", "So,"]
)
ITEMS = st.lists(
    st.one_of(
        st.integers(0, 12).map(str),
        st.tuples(st.integers(1, 12), st.integers(1, 12)).map(lambda r: f"{r[0]}-{r[1]}"),
    ),
    min_size=1,
    max_size=3,
).filter(lambda items: items[0] != "0")


@given(st.lists(st.one_of(WORDS, ITEMS), max_size=12), st.sets(st.integers(1, 8)))
def test_only_valid_marks_leave_the_text_and_only_citable_ones_stay(
    parts: list[Any], citable: set[int]
) -> None:
    documents = 8
    words = [part if isinstance(part, str) else f"[{', '.join(part)}]" for part in parts]
    kept, numbers = [], []
    for part, word in zip(parts, words, strict=True):
        valid = []
        for item in [] if isinstance(part, str) else part:
            low, _, high = item.partition("-")
            first, last = int(low), int(high or low)
            if 1 <= first <= last <= documents:
                valid += range(first, last + 1)
        numbers += valid
        kept += [] if valid else [word]
    marked = read_marks(" ".join(words), documents, citable)
    assert marked.answer.split() == " ".join(kept).split()
    assert marked.numbers == [n for n in dict.fromkeys(numbers) if n in citable]
    assert marked.refused == [n for n in dict.fromkeys(numbers) if n not in citable]
    shown = read_marks(marked.cited, documents, range(1, documents + 1))
    assert shown.numbers == marked.numbers, "what is cited says what the list does"
    assert not shown.unknown or all("?" not in item for item in shown.unknown)


@given(st.text("[]0123456789-, \u3010\u3011x.`(\n", max_size=60))
def test_no_text_is_too_odd(text: str) -> None:
    marked = read_marks(text, 3, {1, 2})
    assert set(marked.numbers) <= {1, 2}
    letters = [c for c in text if c in "x.`"]
    assert [c for c in marked.answer if c in "x.`"] == letters
    assert [c for c in marked.cited if c in "x.`"] == letters


def test_a_mark_lists_up_to_32_items() -> None:
    for items, numbers in ((32, [1]), (33, [])):
        listed = " and ".join(["1"] * items)
        assert read_marks(f"She did [{listed}].", 3, (1,)).numbers == numbers


# CRAG


@pytest.mark.parametrize("texts", [CORRECT, AMBIGUOUS, INCORRECT, []])
def test_an_answer_that_points_at_nothing_cites_nothing(texts: list[str]) -> None:
    result = crag(texts, "It was Jane Austen.")
    assert result["citations"] == []
    assert result["cited_answer"] == result["answer"] == "It was Jane Austen."


def test_a_reflection_llm_was_shown_no_numbers_and_cites_none() -> None:
    llm = ScriptedReflectionLLM(write=lambda prompt: segment("Jane Austen did. [1]"))
    graph = create_crag(llm, lambda q: [document("Gold.")], WordEvaluator(), PagesWebSearch())
    result = both(graph)
    assert (result["citations"], result["answer"]) == ([], "Jane Austen did. [1]")
    assert result["cited_answer"] == "Jane Austen did. [1?]"


FAILED = PagesWebSearch(RuntimeError("down"))


@pytest.mark.parametrize(
    ("texts", "context", "judged", "cited"),
    [
        (CORRECT, {}, ["relevant"], [1]),
        (AMBIGUOUS, {}, ["relevant", "relevant"], [1, 2]),
        (INCORRECT, {}, ["relevant"], [1]),
        # a page graded -1 whose text nothing has scored above
        (["Gold.", "Worthless."], {"refine": False}, ["relevant", "irrelevant"], [1]),
        # kept by a low strip threshold, and still below the lower threshold
        (["Gold.", "Noise."], {"strip_threshold": -0.95}, ["relevant", "irrelevant"], [1]),
        (["Gold.", "Noise."], {"strip_threshold": -0.95, "lower": -0.9}, ["relevant"] * 2, [1, 2]),
        (INCORRECT, {"select": False}, [None, None], []),
        (INCORRECT, {"web": FAILED}, ["irrelevant"], []),
        (CORRECT, {"strip_threshold": 1}, ["irrelevant"], []),
        (CORRECT, {"max_model_calls": 1}, [None, None], []),
        (AMBIGUOUS, {"max_model_calls": 2, "web": FAILED}, ["relevant", "irrelevant"], [1]),
    ],
)
def test_what_counts_as_judged_relevant_on_each_path(
    texts: list[str], context: dict[str, Any], judged: list[str | None], cited: list[int]
) -> None:
    result = crag(texts, "It was her [1-2]. Or [1] or [2].", **context)
    assert result["judged"] == judged
    assert len(result["knowledge"]) == len(judged)
    assert [c["number"] for c in result["citations"]] == cited
    for citation in result["citations"]:
        assert citation["text"] == result["knowledge"][citation["number"] - 1].page_content
    for number, found in enumerate(judged, start=1):
        said = f"the answer points at [{number}], which was not judged relevant: it is not cited"
        assert (said in result["notes"]) == (found != "relevant")
        assert (f"[{number}]" in result["cited_answer"]) == (found == "relevant")


def test_a_mark_without_a_document_is_kept_told_apart_and_noted() -> None:
    result = crag(CORRECT, "It was her [7].")
    assert (result["answer"], result["cited_answer"]) == ("It was her [7].", "It was her [7?].")
    assert result["citations"] == []
    assert "the answer points at [7], which no document has" in result["notes"]


# Refusals


REFUSALS = """I don't know.
I do not know who wrote it.
I don\u2019t know.
The passage does not say.
The passages do not mention his birthplace.
The documents do not contain any information about Emma.
The provided documents do not contain information about the author of Emma.
The given context does not provide enough information to answer the question.
None of the documents mention the year.
Neither document mentions the author.
Document 1 does not mention the author.
There is no information about this in the documents.
There isn't any information about this in the documents.
I cannot answer this question based on the provided documents.
I'm sorry, but I can't find the answer in the provided documents.
Unfortunately, the documents do not specify when she was born.
Based on the provided documents, it is not possible to determine the year.
The answer is not given in the documents.
The answer cannot be determined from the passages.
Not mentioned.
Not stated in the passage.
Unknown.
N/A
I'm unable to answer.
No information is available.
Not enough information to answer.
It is not stated who wrote it.
Her year of birth is not stated in the text.
I found nothing that supports an answer to this.
I don't know. The passage is about her sister.
The passage is about her sister. It does not say when she was born.
The documents do not contain this. If you have more context, please share it.
**I don't know.**
The documents provided do not mention the author.
The context provided does not mention it.
The information provided does not answer the question.
The text provided gives no answer.
The answer is not in the passages.
The author is not mentioned.
There's no mention of the author.
There's nothing in the documents about it.
It's not mentioned.
It isn't mentioned in the passage.
It\u2019s not clear from the passage.
It's unclear from the passage.
Nothing in the passages says who wrote it.
The passages do not appear to say.
The passages don't seem to mention it.
The sources retrieved aren't relevant.
Documents 1, 2, and 3 do not mention the author.""".splitlines()
ANSWERS = """Jane Austen wrote Emma.
The author of Beowulf is unknown.
The treaty does not mention slavery.
There is no cure for it.
There is no evidence that it causes cancer.
The documents do not say when she was born, but she died in 1817.
Although the documents do not mention it, she was English.
None.
Nobody knows.
No.
It was not found until 1920.
It is not listed as endangered.
She does not know.
We found no significant difference between the groups.
The results do not show an effect.
He could not find work in London.
The document describes the treaty.
It is not clear whether aspirin helps.
The information was passed to the police.
Unknown Pleasures is by Joy Division.
There are no documents of his birth.
It is impossible to see the Great Wall from the Moon.
It is impossible to determine both position and momentum exactly.
Unable to find work, he moved to Paris.
Unable to see, Milton dictated Paradise Lost.
No information can travel faster than light.
There is no preferred reference frame in special relativity.
There is no context switch in a coroutine.
There are no data centers in Alaska.
The information was not released until 1975.
Not enough evidence existed to convict him and he was freed.
Insufficient data led to the crash.
The material does not contain asbestos.
We found no sources of radio emission.
This cannot be determined by any algorithm.
We do not know of any odd perfect number.
It is not possible to find a rational square root of two.
It is impossible to predict earthquakes to the day.
It is not possible to see atoms with the naked eye.
Impossible to locate by radar, the bomber flew at night.
Unable to name a successor, the king died in 1066.
Unable to provide food, the colony was abandoned.
Cannot see in the dark, though it hears well.
We cannot see ultraviolet light.
We cannot predict the weather beyond two weeks.
We do not see infrared light.
We found no documents of the Templars older than 1150.
No information was given to the police until 1990.
No details were visible on the first photographs of Pluto.
No answer was received from the Titanic after midnight.
There is no data bus in this processor.
There are no details on the flag of Libya before 2011.
There is no answer to the riddle in the first edition.
There is no reference to God in the constitution of France.
There is no way to trisect an angle with a compass.
There is no basis for the claim that bats are blind.
Insufficient evidence freed the accused.
Not enough data was sent by the probe.
The material is not magnetic.
The answer was not the one that the king had hoped for.
It cannot be determined in polynomial time.
The information is not encrypted on disk.""".splitlines()


@pytest.mark.parametrize("text", REFUSALS)
def test_a_refusal_cites_nothing_in_any_graph(text: str) -> None:
    assert is_refusal(text)
    result = crag(CORRECT, f"{text} [1]")
    assert (result["citations"], result["cited_answer"]) == ([], text)
    llm = ScriptedReflectionLLM(write=lambda prompt: segment(text, RELEVANT, FULL, USEFUL))

    def retriever(query: str) -> list[Document]:
        return [document("Gold.")]

    for made in (
        create_self_rag(llm, retriever),
        create_self_crag(llm, retriever, WordEvaluator(), PagesWebSearch()),
    ):
        assert made.invoke(QUESTION)["citations"] == []


@pytest.mark.parametrize("text", ["", " "])
def test_a_segment_without_text_cites_nothing(text: str) -> None:
    llm = ScriptedReflectionLLM(write=lambda prompt: segment(text, RELEVANT, FULL, USEFUL))
    result = both(create_self_rag(llm, lambda query: [document("Gold.")]))
    assert (result["answer"], result["citations"]) == (NO_ANSWER, [])
    assert "[1]" not in result["cited_answer"]


@pytest.mark.parametrize("text", [text for text in REFUSALS if ". " not in text])
def test_a_rationale_that_comes_to_a_refusal_cites_nothing(text: str) -> None:
    said = f"Document [1] is useful. The answer is: {text}"
    result = both(
        create_instruct_rag(RunnableLambda(lambda prompt: said), lambda query: [document("Gold.")])
    )
    assert (result["useful_documents"], result["citations"]) == ([0], [])


@pytest.mark.parametrize("text", ANSWERS)
def test_a_fact_that_sounds_like_a_refusal_is_cited(text: str) -> None:
    assert not is_refusal(text)
    assert [c["number"] for c in crag(CORRECT, f"{text} [1]")["citations"]] == [1]


def test_a_sentence_that_refuses_cites_nothing_beside_one_that_answers() -> None:
    said = "She wrote Emma [1]. The documents do not say when [2]. [2] In London, though [1]."
    result = crag(AMBIGUOUS, said)
    assert [c["number"] for c in result["citations"]] == [1]
    assert result["cited_answer"] == (
        "She wrote Emma [1]. The documents do not say when. In London, though [1]."
    )
    result = crag(AMBIGUOUS, "The documents do not say when.\n[2] She wrote Emma.")
    assert [c["number"] for c in result["citations"]] == [2], "a mark that begins a line"
    result = crag(AMBIGUOUS, "She wrote Emma. [2] The documents do not say when.")
    assert [c["number"] for c in result["citations"]] == [2], "a mark after the full stop"


def test_space_before_an_answer_moves_no_mark_to_another_sentence() -> None:
    text = "The documents do not say when [1]. Jane Austen wrote Emma [2]."
    read = read_marks(text, 2, {1, 2})
    assert read.numbers == [2]
    assert read_marks(" \n" * 30 + text + "\n", 2, {1, 2}) == read


@pytest.mark.parametrize(
    "text",
    [
        "Neither [1] nor [2] mentions the author.",
        "[1] does not mention the author. [2] does not either.",
        "[1] does not mention the author. Neither does [2].",
        "Documents [1] and [2] do not mention the author.",
        "[1], [2] and [3] do not mention the author.",
        "[1][2] do not mention the author.",
        "[1, 2] do not mention the author.",
        "- [1] does not say.\n- [2] does not say.",
        "None of [1] and [2] mention it.",
        "It is not mentioned in [1].",
    ],
)
def test_a_refusal_of_which_a_mark_is_the_subject_cites_nothing(text: str) -> None:
    marked = read_marks(text, 3, {1, 2, 3})
    assert (marked.numbers, marked.refused, marked.unknown) == ([], [], [])


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("[1] says that Austen did. [2] does not mention her.", [1]),
        ("According to [1] and [2], she did.", [1, 2]),
        ("She did. [1] [2]", [1, 2]),
        ("She did. [1] The documents do not say when.", [1]),
        ("Documents [1] and [2] name her.", [1, 2]),
    ],
)
def test_a_mark_that_is_a_noun_in_a_sentence_that_answers_is_cited(
    text: str, numbers: list[int]
) -> None:
    assert read_marks(text, 3, {1, 2, 3}).numbers == numbers


def test_reading_a_refusal_takes_no_time_that_grows_with_its_square() -> None:
    for text in (
        "the " * 20_000,
        "no information " * 8_000,
        "[1, " * 20_000,
        "based on the " * 9_000,
    ):
        assert not is_refusal(text)
        read_marks(text, 3, {1})


# Self-RAG


EVEN = {"[Relevant]": 0.5, "[Irrelevant]": 0.5}
KEEP = {"[Continue to Use Evidence]": 0.8, "[Retrieval]": 0.1, "[No Retrieval]": 0.1}


@pytest.mark.parametrize(
    ("judged", "cited"),
    [
        ((IRRELEVANT, None, None), []),
        ((RELEVANT, None, None), [0, 1, 2]),
        ((None, None, None), []),
        ((IRRELEVANT, None, RELEVANT), [2]),
        ((RELEVANT, IRRELEVANT, None), [0]),
        ((None, RELEVANT, None), [1, 2]),
        ((EVEN, None, EVEN), [0, 1, 2]),
    ],
)
def test_a_segment_that_continues_has_the_isrel_of_the_one_before(
    judged: tuple[Any, ...], cited: list[int]
) -> None:
    def write(prompt: str) -> Any:
        done = prompt.count("[Continue to Use Evidence]")
        critique = [] if judged[done] is None else [judged[done]]
        if done == 2:
            return segment("Part 2.", *critique, USEFUL)
        return segment(f"Part {done}.", *critique, FULL, next=KEEP)

    result = both(
        create_self_rag(ScriptedReflectionLLM(write=write), lambda query: [document("A")])
    )
    assert [s for c in result["citations"] for s in c["segments"]] == cited
    parts = [f"Part {i}. [1]" if i in cited else f"Part {i}." for i in range(3)]
    assert result["cited_answer"] == " ".join(parts)


def test_what_looks_like_a_mark_in_a_segment_is_told_apart() -> None:
    llm = ScriptedReflectionLLM(write=lambda p: segment("She did.[3]", RELEVANT, FULL, USEFUL))
    result = both(create_self_rag(llm, lambda query: [document("A")]))
    assert (result["answer"], result["cited_answer"]) == ("She did.[3]", "She did. [3?] [1]")


@pytest.mark.parametrize(
    ("texts", "web", "cited"), [(["Gold."], None, True), (INCORRECT, FAILED, False)]
)
def test_self_crag_cites_nothing_that_was_graded_incorrect(
    texts: list[str], web: Any, cited: bool
) -> None:
    llm = ScriptedReflectionLLM(write=lambda p: segment("She did.", RELEVANT, FULL, USEFUL))
    graph = create_self_crag(
        llm, lambda q: [document(t) for t in texts], WordEvaluator(), web or PagesWebSearch()
    )
    result = both(graph)
    assert bool(result["citations"]) is cited
    assert ("[1]" in result["cited_answer"]) is cited


# Passages


DOCUMENTS = st.lists(
    st.builds(
        lambda name, title, text: Document(text, metadata={"title": title}, id=name),
        st.sampled_from([None, "a.txt", "b.txt"]),
        st.sampled_from(["A", "B"]),
        st.sampled_from(["one", "two", "three"]),
    ),
    min_size=1,
    max_size=6,
)


@given(DOCUMENTS)
def test_a_passage_is_known_by_its_id_and_by_what_it_says(documents: list[Document]) -> None:
    llm = ScriptedReflectionLLM(write=lambda p: segment(passage_of(p), RELEVANT, FULL, USEFUL))
    result = create_self_rag(llm, lambda query: documents).invoke(
        QUESTION, context={"passages": 10}
    )
    known = [(d.id, d.metadata["title"], d.page_content) for d in documents]
    read = [(d.id, d.metadata["title"], d.page_content) for d in result["passages"]]
    assert read == list(dict.fromkeys(known))
    assert len(result["candidates"]) == len(read)


def test_instruct_rag_cites_what_was_shown_and_used() -> None:
    said = (
        "Document [1] names her. Document [2] is irrelevant. Document [9] too. She is Jane Austen."
    )
    graph = create_instruct_rag(
        FakeListChatModel(responses=[said] * 2), lambda q: [document("One."), document("Two.")]
    )
    result = both(graph)
    assert [c["number"] for c in result["citations"]] == [1]
