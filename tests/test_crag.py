"""CRAG and Self-CRAG on hand-made evaluators: actions, strips, knowledge, citations, faults."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag import create_self_crag
from selfcorrect_rag.crag import crag_builder, create_crag
from selfcorrect_rag.errors import BadArgument, WebSearchFailed
from selfcorrect_rag.models import ChatEvaluator
from selfcorrect_rag.nodes.generate import generate
from selfcorrect_rag.nodes.rewrite_query import keywords, rewrite_query
from selfcorrect_rag.nodes.web_search import web_search
from selfcorrect_rag.nodes.write_answer import NO_ANSWER
from selfcorrect_rag.reflection import CONTINUE, RETRIEVAL
from selfcorrect_rag.self_crag import self_crag_builder
from selfcorrect_rag.self_rag import self_rag_builder
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import Segment
from tests.crag_runs import AMBIGUOUS, CORRECT, INCORRECT, PagesSearch, WordEvaluator, document, run
from tests.providers import chat
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedLLM, echo, passage_of, segment
from tests.test_faults import FORMS, ask


@pytest.mark.parametrize(
    ("texts", "action", "knowledge"),
    [
        (CORRECT, "correct", ["Gold is here."]),
        (AMBIGUOUS, "ambiguous", ["Vague words.", "Gold of the web."]),
        (INCORRECT, "incorrect", ["Gold of the web."]),
        ([], "incorrect", ["Gold of the web."]),
    ],
)
def test_each_action_makes_knowledge(texts: list[str], action: str, knowledge: list[str]) -> None:
    result = run(texts)
    assert result["action"] == action
    assert [piece.page_content for piece in result["knowledge"]] == knowledge
    assert bool(result["web_results"]) == (action != "correct")
    assert bool(result["strips"]) == (action != "incorrect")
    assert all(text in result["answer"] for text in knowledge)
    own = [piece for piece in result["knowledge"] if piece.metadata["source"] == "notes"]
    assert [piece.id for piece in own] == texts[: len(own)], "a piece has its document's id"


LONG = (
    "Gold opens the story of the house by the sea. Noise fills the second sentence of this text. "
    "Noise is in the third sentence of it too. Worthless words make up the fourth sentence here. "
    "Worthless words make up the fifth sentence as well. Worthless words are in the sixth one too. "
    "Vague is the seventh sentence of this long text. Vague is the eighth sentence of it also. "
    "Vague is the ninth sentence, and the last of all."
)


def test_strips_are_groups_of_sentences_and_stay_in_the_order_of_the_text() -> None:
    evaluator = WordEvaluator()
    graph = create_crag(echo(), lambda query: [], evaluator, PagesSearch())
    documents = [document(LONG, "A page"), document("Gold is short.", "Gold")]
    result = graph.invoke({"question": "Who?", "documents": documents})
    graded, read = evaluator.calls
    assert graded == [f"A page // {LONG}", "Gold is short."]
    assert [strip.startswith("A page // ") for strip in read] == [True, True, True, False]
    begun = [strip["text"].split()[0] for strip in result["strips"]]
    assert begun == ["Gold", "Worthless", "Vague", "Gold"]
    assert [strip["kept"] for strip in result["strips"]] == [True, False, True, True]
    first, second = (piece.page_content for piece in result["knowledge"])
    assert first.startswith("Gold opens")
    assert first.endswith("the last of all.")
    assert "Worthless" not in first
    assert second == "Gold is short."
    assert [piece.metadata["title"] for piece in result["knowledge"]] == ["A page", "Gold"]
    best = run([LONG, "Gold is short."], strips=1)
    assert [strip["kept"] for strip in best["strips"]] == [True, False, False, False]


def test_ablations_of_the_operations() -> None:
    whole = run([LONG], refine=False)
    assert [piece.page_content for piece in whole["knowledge"]] == [LONG]
    web = PagesSearch()
    assert len(run(INCORRECT, web=web, select=False)["knowledge"]) == 2
    run(INCORRECT, web=web, rewrite=False)
    assert [query for query, _ in web.queries] == ["wrote, Emma", "Who wrote Emma?"]


def test_settings_bound_what_is_read_and_notes_say_so() -> None:
    scored = run([LONG, f"{LONG} Gold.", "Gold is short."], scored_strips=4)
    assert [strip["document"] for strip in scored["strips"]] == [0, 0, 1, 2]
    note = "4 of 7 strips of passages were scored, the first of each document (scored_strips)"
    assert note in scored["notes"]
    whole = run([LONG], max_model_calls=2)  # one to grade, one to answer
    assert [piece.page_content for piece in whole["knowledge"]] == [LONG]
    assert whole["notes"][0] == "max_model_calls is 2: passages were kept whole"
    found: Any = lambda query: [document(f"Gold {i} " + "x" * 200) for i in range(9)]  # noqa: E731
    bounds: dict[str, Any] = {"document_characters": 100, "web_results": 3, "passages": 2}
    result = run([f"Noise {i} " + "x" * 200 for i in range(9)], web=found, **bounds)
    texts = [text.page_content for text in (*result["passages"], *result["web_results"])]
    assert [len(text) for text in texts] == [100] * 5
    cut = "cut to the first 100 characters (document_characters)"
    assert result["notes"][:2] == [f"2 of 2 retrieved documents {cut}", f"3 of 3 web pages {cut}"]
    asked: Any = {"question": "Who?", "documents": [document("Gold " + "x" * 200)] * 3}
    graph = create_crag(echo(), None, WordEvaluator())
    given = graph.invoke(asked, context={**bounds, "given_documents": 2})  # type: ignore[arg-type]
    assert len(given["passages"]) == 2
    first = "the first 2 of 3 given documents were taken"
    assert given["notes"][:2] == [first, f"2 of 2 given documents {cut}"]
    all_three = graph.invoke(asked, context={**bounds, "given_documents": 3})  # type: ignore[arg-type]
    assert all_three["notes"][0] == f"3 of 3 given documents {cut}"


@pytest.mark.parametrize("failure", [WebSearchFailed("no key"), OSError()], ids=repr)
@pytest.mark.parametrize(("texts", "left"), [(AMBIGUOUS, "Vague words."), (INCORRECT, CORRECT[1])])
def test_a_failed_search_loses_nothing(failure: Exception, texts: list[str], left: str) -> None:
    result = run(texts, web=PagesSearch(failure))
    assert [piece.page_content for piece in result["knowledge"]] == [left]
    assert (str(failure) or "OSError") in result["web_failure"]
    assert any("web search" in note for note in result["notes"])


@FORMS
async def test_a_search_alone_is_for_the_question(form: str) -> None:
    asked, web = {"question": "Who wrote\nEmma?"}, PagesSearch()
    found = await ask(web_search(web, CRAGSettings(web_results=1)), form, asked)
    assert web.queries == [("Who wrote Emma?", 1)]
    assert (found["web_query"], len(found["web_results"])) == ("Who wrote Emma?", 1)
    nothing = await ask(web_search(lambda query: []), form, asked)
    assert nothing["web_query"] == "Who wrote Emma?"
    untitled = await ask(web_search(lambda query: [Document("A page.")]), form, asked)
    assert untitled["web_results"]


@FORMS
@pytest.mark.parametrize(
    ("rewriter", "query", "note"),
    [
        (lambda asked: f" query: 'X {asked[:3]}' \nAnother line.", "X Who", None),
        (lambda asked: "C", "C", None),
        (lambda asked: "x" * 200, "x" * 200, None),
        (lambda asked: "x" * 201, "wrote, Emma", "gave no usable query: it was made by rule"),
        (lambda asked: 7, "wrote, Emma", "gave no usable query: it was made by rule"),
        (lambda asked: 1 / 0, "wrote, Emma", "the rewriter raised ZeroDivisionError: division by "
         "zero: the query was made by rule"),
    ],
)  # fmt: skip
async def test_a_function_rewrites(rewriter: Any, query: str, note: str | None, form: str) -> None:
    update = await ask(rewrite_query(rewriter), form, {"question": "Who wrote Emma?"})
    assert update["web_query"] == query
    assert [said.endswith(note or "") for said in update["notes"]] == [True] * (note is not None)


@FORMS
async def test_a_function_that_returns_an_awaitable_needs_an_async_run(form: str) -> None:
    class Later:
        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            return "later"

    update = await ask(rewrite_query(lambda asked: Later()), form, {"question": "Who wrote Emma?"})
    assert update["web_query"] == ("later" if form == "async" else "wrote, Emma")
    assert ["is async" in note for note in update["notes"]] == [True] * (form == "sync")


async def test_refining_and_rewriting_start_together() -> None:
    """Each waits for the other to have begun: one after the other would never end."""
    rewriting, refining = asyncio.Event(), asyncio.Event()

    class Waiting(WordEvaluator):
        async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
            if self.calls and not refining.is_set():
                refining.set()
                await asyncio.wait_for(rewriting.wait(), 60)
            return self.score(question, passages)

    async def rewrite(question: str) -> str:
        rewriting.set()
        await asyncio.wait_for(refining.wait(), 60)
        return "query"

    web = PagesSearch()
    graph = create_crag(echo(), lambda q: [document("Vague.")], Waiting(), web, rewriter=rewrite)
    result = await graph.ainvoke({"question": "Who?"})
    assert result["action"] == "ambiguous"
    assert [query for query, _ in web.queries] == ["query"]


def relevant(isrel: float | None, text: str = "It was Jane Austen.") -> ScriptedLLM:
    """A generator that calls what it reads relevant with this probability."""
    judged = [] if isrel is None else [{"[Relevant]": isrel, "[Irrelevant]": 1 - isrel}]
    return ScriptedLLM(write=lambda prompt: segment(text, *judged))


@pytest.mark.parametrize("isrel", [0.9, 0.1, None])
def test_a_reflecting_generator_cites_what_was_judged_relevant(isrel: float | None) -> None:
    result = run(CORRECT, relevant(isrel))
    assert [c["text"] for c in result["citations"]] == ["Gold is here."]
    assert (result["cited_answer"], result["notes"]) == ("It was Jane Austen. [1]", [])
    irrelevant = run(["Noise."], relevant(isrel), PagesSearch(OSError()), refine=False)
    assert irrelevant["citations"] == []
    note = "the answer is from [1], which was not judged relevant: it is not cited"
    assert note in irrelevant["notes"]
    assert run(CORRECT, relevant(isrel, "The documents do not say."))["citations"] == []


class ReadsApart(ScriptedLLM):
    @property
    def reads_apart(self) -> bool:
        return True


@FORMS
@pytest.mark.parametrize(
    ("kind", "apart", "texts", "passages", "answer"),
    [
        (ScriptedLLM, True, ["1", "2"], ["T1\n1 2"], "1."),
        (ReadsApart, False, ["1", "2"], ["T1. 1 T2. 2"], "1."),
        (ReadsApart, False, ["1"], ["T1\n1"], "1."),
        (ReadsApart, True, ["1", "2", "3"], ["T1\n1", "T2\n2", "T3\n3"], "2."),
        (ReadsApart, True, ["4", "1", "5"], ["T4\n4", "T1\n1", "T5\n5"], "4."),
        (ReadsApart, True, [], [], "0."),
        (ScriptedLLM, True, [""], [""], "0."),
    ],
)
async def test_knowledge_is_read_as_one_passage_or_each_piece_apart(
    kind: Any, apart: bool, texts: list[str], passages: list[str], answer: str, form: str
) -> None:
    """The likeliest of answers judged alike, the first of equals, and never one without text."""

    def write(prompt: str) -> Segment:
        first = next((c for c in prompt if c.isdigit()), "0")
        likely = {"2": 0.9, "3": 0.95}.get(first, 0.5)
        return segment("" if first == "3" else f"{first}.", RELEVANT, mean_logprob=math.log(likely))

    llm = kind(write=write)
    pieces = [Document(text, metadata={"title": text and f"T{text}"}) for text in texts]
    state = {"question": "Who?", "knowledge": pieces, "judged": [None] * len(texts)}
    options: Any = {} if apart else {"apart": False}
    update = await ask(generate(llm, CRAGSettings(instruction="Say."), **options), form, state)
    opening = "### Instruction:\nSay.## Input:\n\nWho?\n\n### Response:\n"
    each = [f"{opening}[Retrieval]<paragraph>{read}</paragraph>" for read in passages]
    assert llm.calls == [each or [f"{opening}[No Retrieval]"]]
    assert update["answer"] == answer
    (options,) = llm._options
    assert options["stop_at_retrieval"] is False
    assert options["critique"] is (kind is ReadsApart and (apart or len(texts) < 2))


def test_of_pieces_read_as_one_those_are_cited_that_say_it() -> None:
    texts = ["Gold is by Jane Austen.", "Gold is red."]
    result = run(texts, relevant(0.9, "Jane Austen"))
    assert [c["text"] for c in result["citations"]] == ["Gold is by Jane Austen."]
    other = run(texts, relevant(0.9, "It was George Eliot."))
    assert other["citations"] == []
    note = "written from 2 documents read as one: which of them says it is not known"
    assert note in other["notes"]
    assert run(texts, relevant(0.1, "Jane Austen"))["citations"] == []
    both = run(texts, relevant(0.9, "Gold is"))
    assert (both["cited_answer"], both["notes"]) == ("Gold is [1] [2]", [])
    for isrel, numbers in ((0.5, [1]), (0.49, [])):  # without the evaluator's judgement
        unjudged = run(INCORRECT, relevant(isrel, "Gold of the web"), select=False)
        assert [c["number"] for c in unjudged["citations"]] == numbers


def test_the_reply_names_the_generator() -> None:
    built = create_crag(relevant(0.9), lambda query: [document("Gold.")], WordEvaluator())
    asked: Any = {"messages": [("user", "Who?")]}
    assert built.invoke(asked)["messages"][-1].response_metadata["model_name"] == "scripted"
    for wrong, says in ((5, "llm must be"), (relevant(0.9).with_retry(), "lose its reflection")):
        with pytest.raises(BadArgument, match=says):
            generate(wrong)  # type: ignore[arg-type]


def test_what_the_evaluator_called_irrelevant_is_not_cited() -> None:
    texts = ["Gold is here.", "Vague words."]
    said = chat("It was she [1] and he [2] [7].")
    result = run(texts, said, refine=False, lower=0.5, upper=0.6)
    assert result["judged"] == ["relevant", "irrelevant"]
    cited = [(c["number"], c["passage"], c["segments"]) for c in result["citations"]]
    assert cited == [(1, 0, [0])]
    assert result["cited_answer"] == "It was she [1] and he [7?]."
    assert result["notes"] == [
        "the answer points at [7], which no document has",
        "the answer points at [2], which was not judged relevant: it is not cited",
    ]


@pytest.mark.parametrize(
    ("written", "noted"),
    [
        ("It was Jane Austen.", ["the answer points at no document: nothing is cited"]),
        ("It was Jane Austen [1].", []),
        ("The documents do not say.", []),
        (" ", ["the model wrote nothing: the answer says so"]),
    ],
)
def test_an_answer_without_a_mark_is_noted(written: str, noted: list[str]) -> None:
    result = run(["Gold is here."], chat(written))
    assert (result["notes"], bool(result["citations"])) == (noted, "[1]" in written)
    assert result["cited_answer"] == (written.strip() or NO_ANSWER)


def test_a_piece_that_nothing_scored_is_not_called_irrelevant() -> None:
    assert run(INCORRECT, select=False)["judged"] == [None, None]
    kept = run(["Gold."], max_model_calls=1)
    assert (kept["grades"], kept["judged"], kept["stopped"]) == ([], [None], "max_model_calls")


@pytest.mark.parametrize("most", range(1, 7))
def test_branches_that_run_at_the_same_time_keep_to_one_limit(most: int) -> None:
    """Five calls are wanted: grades, strips and a query at once, web strips, the answer."""
    parts = chat("Vague."), lambda _: [document("Vague words.")], WordEvaluator(), PagesSearch()
    graph = create_crag(*parts, rewriter=chat("a query"))
    result = graph.invoke({"question": "Who wrote Emma?"}, context={"max_model_calls": most})
    assert result["usage"]["model_calls"] == min(most, 5)
    assert result["stopped"] == ("max_model_calls" if most < 5 else None)
    assert result["web_query"] == {1: "", 2: "wrote, Emma"}.get(most, "a query")
    by_rule = "max_model_calls is 2: the query was made by rule"
    assert (by_rule in result["notes"]) is (most == 2)


@FORMS
async def test_what_a_model_thinks_is_never_read(form: str) -> None:
    thought = "<think>\nDocument [2]? No.\n</think>\n\n"
    web, found = PagesSearch(), [document("Gold is here."), document("Vague.")]
    evaluator = ChatEvaluator(chat("<think>1: yes 2: yes</think>\n1: yes\n2: no"))
    parts = chat(f"{thought}Opened in 1931 [1]."), lambda query: found, evaluator, web
    settings = CRAGSettings(refine=False, without_action="correct", select=False)
    graph = create_crag(*parts, rewriter=chat(f"{thought}opening, year"), settings=settings)
    result = await ask(graph, form, {"question": "When?"})
    assert result["cited_answer"] == "Opened in 1931 [1]."
    assert [c["number"] for c in result["citations"]] == [1]
    assert [query for query, _ in web.queries] == ["opening, year"]
    assert [grade["score"] > 0 for grade in result["grades"]] == [True, False]


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("What is Henry Feilden's occupation?", "Henry Feilden, occupation"),
        ("In what city was Billy Carlson born?", "city, Billy Carlson, born"),
        ("Who wrote the University of Oslo anthem?", "wrote, University of Oslo, anthem"),
        ("When was Billy the Kid shot?", "Billy the Kid, shot"),
        ('Who sang "the a of it"?', "sang, the a of it"),
        ("Who shot Malcolm X?", "shot, Malcolm X"),
        ("What is Rome for?", "Rome"),
        ("What put Rome in danger?", "put, Rome, danger"),
        ("What is Bank of the de la and Rome?", "Bank, de la and Rome"),
        ("Who are you?", "Who are you?"),
        ("Why?", "Why?"),
        ("Do cats like trees and are dogs very happy in houses?", "cats like trees, happy, houses"),
        ("Who led the Alps or Rome but not the sea or a hill in Oslo?", "Alps, Rome, Oslo"),
    ],
)
def test_keywords_by_rule(question: str, query: str) -> None:
    assert keywords(question) == query


def test_a_builder_takes_nodes_before_it_is_compiled() -> None:
    builder = crag_builder(echo(), lambda query: [document("Gold.")], WordEvaluator())
    builder.add_node("after", lambda state: {"notes": ["seen"]})
    builder.add_edge("generate", "after")
    assert builder.compile().invoke({"question": "Who?"})["notes"][-1] == "seen"
    others = self_rag_builder(echo()), self_crag_builder(echo(), None, WordEvaluator())
    for made in (builder, *others):
        assert not any(node.cache_policy for node in made.nodes.values())


def write(prompt: str) -> Segment:
    """Says which passage it read."""
    if "<paragraph>" not in prompt:
        return segment("from memory", USEFUL)
    return segment(f"from {passage_of(prompt)}", RELEVANT, FULL, USEFUL)


def graph(texts: list[str], llm: Any, evaluator: Any = None) -> Any:
    found = [document(text) for text in texts]
    return create_self_crag(llm, lambda _: found, evaluator or WordEvaluator(), PagesSearch())


@pytest.mark.parametrize(
    ("texts", "action", "read"),
    [
        (CORRECT, "correct", ["from Gold is he"]),
        (INCORRECT, "incorrect", ["from Web 1"]),
        (AMBIGUOUS, "ambiguous", ["from Vague word", "from Web 1"]),
    ],
)
def test_self_rag_reads_what_actions_leave(texts: list[str], action: str, read: list[str]) -> None:
    llm = ScriptedLLM(write=write)
    result = graph(texts, llm).invoke({"question": "Who?"}, context={"depth": 1})
    assert result["action"] == action
    assert [candidate["text"] for candidate in result["candidates"]] == read
    assert len(result["knowledge"]) == len(read)
    assert result["citations"][0]["text"] == result["knowledge"][0].page_content
    assert len(llm.calls) == 2  # the decision, and all candidates at once


def test_an_answer_that_needs_no_evidence_costs_no_retrieval() -> None:
    llm = ScriptedLLM(write=write, retrieval=0.01)
    result = graph(CORRECT, llm).invoke({"question": "Hello"})
    assert (result["answer"], result["action"], result["grades"]) == ("from memory", None, [])


def test_evidence_that_is_wanted_later_is_corrected_then() -> None:
    def later(prompt: str) -> Segment:
        if "<paragraph>" in prompt:
            return write(prompt)
        return segment("First.", USEFUL, next={RETRIEVAL: 0.9, CONTINUE: 0.05})

    llm = ScriptedLLM(write=later, retrieval=0.01)
    result = graph(INCORRECT, llm).invoke({"question": "Who?"})
    assert result["action"] == "incorrect"
    assert result["answer"] == "First. from Web 1"


def test_later_segments_read_the_same_knowledge_and_nothing_is_graded_again() -> None:
    evaluator = WordEvaluator()
    again = segment("Gold.", RELEVANT, FULL, next={RETRIEVAL: 0.9, CONTINUE: 0.05})
    llm = ScriptedLLM(write=lambda prompt: again)
    built = graph(["Gold is here."], llm, evaluator)
    result = built.invoke({"question": "Who?"}, context={"depth": 3})
    assert [c["depth"] for c in result["candidates"]] == [0, 1, 2]
    assert len(evaluator.calls) == 2


def test_nothing_found_anywhere_is_written_without_evidence() -> None:
    llm = ScriptedLLM(write=write)
    built = create_self_crag(llm, lambda q: [], WordEvaluator(), lambda q: [])
    result = built.invoke({"question": "Who?"})
    assert (result["answer"], result["citations"]) == ("from memory", [])
