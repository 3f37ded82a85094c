"""The nodes of the beam, the reranker and follow-ups: cases that one spoilt line turns red."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag import create_crag, create_self_rag
from selfcorrect_rag.errors import NoDocument, NoQuestion
from selfcorrect_rag.models import PromptedReflectionLLM
from selfcorrect_rag.nodes.beam_select import beam_select, selected
from selfcorrect_rag.nodes.generate_and_critique import generate_and_critique
from selfcorrect_rag.nodes.read_question import read_question, rewrite_follow_up
from selfcorrect_rag.nodes.retrieve import retrieve, retrieve_documents
from selfcorrect_rag.nodes.write_answer import NO_ANSWER, SILENT, write_answer
from selfcorrect_rag.settings import SelfRAGSettings
from tests.crag_runs import WordEvaluator
from tests.nodes.parts import beam, candidate
from tests.providers import Provider, chat, saying
from tests.scripted import FULL, NONE, RELEVANT, ScriptedLLM, document, passage_of, segment
from tests.test_faults import FORMS, ask

PASSAGES = [document(f"T{i}") for i in range(4)]
ASKED = {"question": "Who?", "passages": PASSAGES}
KEEP = {"[Continue to Use Evidence]": 0.9, "[Retrieval]": 0.1}


@FORMS
async def test_chunks_that_share_an_id_or_a_title_are_told_apart(form: str) -> None:
    chunks = [
        Document("One.", id="a", metadata={"title": "T"}),
        Document("Two.", id="a", metadata={"title": "T"}),
        Document("One.", id="b", metadata={"title": "T"}),
        Document("One.", id="a", metadata={"title": "U"}),
        Document("One.", id="a", metadata={"title": "T", "score": 1}),
    ]
    update = await ask(retrieve(lambda _: chunks), form, {"question": "Who?"})
    assert len(update["passages"]) == 4
    assert update["beams"][0]["retrieved"] == [0, 1, 2, 3], "the last is the first again"


@FORMS
async def test_beams_with_the_same_last_segment_share_a_query(form: str) -> None:
    queries: list[str] = []

    def find(query: str) -> list[Document]:
        queries.append(query)
        return [document(query, "\x00" if "One" in query else "")]

    beams = [beam(candidate("One.")), beam(candidate("One.", passage=1)), beam(candidate("Four."))]
    beams += [beam(candidate("Two."), next="none"), beam(candidate("Three."), next=None)]
    state = {"question": "Who?", "passages": [], "beams": beams}
    update = await ask(retrieve(find), form, state)
    assert queries == ["Who? One.", "Who? Four."]
    assert [b["retrieved"] for b in update["beams"]] == [[0], [0], [1], [], []]
    assert update["route"][0]["retrievals"] == 2
    (note,) = update["notes"]
    assert note == "1 of 1 retrieved documents hold characters that cannot be read"


@FORMS
async def test_a_retriever_that_fails_late_ends_the_beams_that_asked(form: str) -> None:
    one = candidate("One.")
    state = {**ASKED, "beams": [beam(one), beam(one, next="continue")]}
    update = await ask(retrieve(lambda _: 1 / 0), form, state)
    assert [b["next"] for b in update["beams"]] == [None, "continue"]
    raised = "the retriever raised ZeroDivisionError: division by zero"
    assert update["notes"] == [f"{raised}: the answer ends after segment 1"]
    empty = await ask(retrieve_documents(lambda _: 1 / 0), form, ASKED)
    assert (empty["passages"], empty["notes"]) == ([], [raised])


@FORMS
async def test_one_candidate_a_passage_and_what_each_beam_asks(form: str) -> None:
    one = candidate("One.", passage=2)
    beams = [beam(one, next=step) for step in ("continue", "none", "retrieve", None)]
    beams = [beam(one, retrieved=[1, 3]), *beams]
    state = {**ASKED, "candidates": [candidate("Else."), one], "beams": beams}
    llm = ScriptedLLM(write=lambda _: segment("More.", RELEVANT, FULL, next=KEEP))
    settings = SelfRAGSettings(instruction="Say.", segment_tokens=9, prune_below=0.25)
    update = await ask(generate_and_critique(llm, settings), form, state)
    assert all("\nSay.## Input:\n\nWho?\n" in prompt for prompt in llm.calls[0])
    given = {"max_tokens": 9, "prune_below": 0.25, "stop_at_retrieval": True}
    assert given.items() <= llm._options[0].items()
    made = [(c["beam"], c["step"], c["passage"], c["next"]) for c in update["candidates"]]
    assert made == [
        (0, "retrieve", 1, "continue"),
        (0, "retrieve", 3, "continue"),
        (1, "continue", 2, "continue"),
        (2, "none", None, "retrieve"),
        (3, "none", None, "retrieve"),
    ]
    assert {(c["depth"], c["parent"], c["chosen"]) for c in update["candidates"]} == {(1, 1, False)}
    assert all(c.keys() == one.keys() for c in update["candidates"])


@pytest.mark.parametrize(
    ("step", "own", "second"),
    [("continue", FULL, 2.5), ("continue", NONE, 1.5), ("retrieve", FULL, 1.5)],
)
def test_the_mean_of_a_path(step: Any, own: Any, second: float) -> None:
    """A segment that continues keeps the passage's ISREL, but is supported or not by itself."""
    expected = (2.5 + second) / 2
    one = candidate("One.", sequence_probability=0.5, score=2.5)
    model = ScriptedLLM(write=lambda _: segment("Two.", own))
    state = {**ASKED, "candidates": [one], "beams": [beam(one, next=step, retrieved=[1])]}
    settings = SelfRAGSettings(weight_isuse=0.0)
    (made,) = generate_and_critique(model, settings).invoke(state)["candidates"]
    assert made["path_score"] == pytest.approx(expected)
    assert math.fsum(made["path_terms"]) / 2 == pytest.approx(expected)
    terms = sum(term["weight"] * term["value"] for term in made["terms"])
    assert made["score"] == pytest.approx(terms)
    assert (made["path_rule"], made["finish_reason"], made["hard"]) == ("mean", "end", [])
    assert made["judgements"].keys() == {"ISSUP"}


def test_short_form_reads_only_the_isrel_before_the_first_word() -> None:
    late: Any = {**segment("", {"[Irrelevant]": 1.0})["reflections"][0], "position": 9}
    written = segment("One.", FULL)
    written["reflections"] = [*written["reflections"], late]
    model = ScriptedLLM(write=lambda _: written)
    for form, isrel in (("short", None), ("long", pytest.approx(0.0))):
        node = generate_and_critique(model, SelfRAGSettings.of({"form": form}))
        update = node.invoke({"question": "Who?", "passages": PASSAGES[:1]})
        assert update["candidates"][0]["critique"]["ISREL"] == isrel
        assert update["candidates"][0]["passage"] == 0
        assert model._options[-1]["stop_at_retrieval"] is (form == "long")


def test_ties_go_to_the_earlier_candidate_and_dropped_ones_are_never_chosen() -> None:
    new = [
        candidate("Dropped.", path_score=9.0, dropped="no text"),
        candidate("First.", passage=1),
        candidate("Second.", passage=2),
    ]
    (best,) = selected([beam(score=0.0)], SelfRAGSettings(), new)["beams"]
    assert best["segments"][0]["text"] == "First."


def test_if_all_are_dropped_the_best_text_ends_the_answer() -> None:
    silent = candidate("", path_score=9.0, dropped="no text")
    best = candidate("Best.", path_score=4.0, dropped="x", next="retrieve")
    update = selected([beam()], SelfRAGSettings(), [silent, candidate("Worse.", dropped="x"), best])
    assert update == {
        "beams": [beam(best, score=4.0, next=None)],
        "constraints_met": False,
        "notes": ["every candidate was dropped (x): answered with the best"],
    }


def test_the_last_segment_leaves_the_best_and_what_can_only_equal_it_ends() -> None:
    new = [candidate("Done.", path_score=1.0), candidate("Going.", next="retrieve")]
    state = {**ASKED, "beams": [beam()], "candidates": new}
    llm = ScriptedLLM(write=lambda _: segment(""))
    found = beam_select(llm, SelfRAGSettings(depth=1)).invoke(state)["beams"]
    assert found == [beam(new[1], next=None, cut="the answer was cut at its limit of 1 segments")]
    new[0]["path_score"] = (3.0 + 3.5) / 2  # that of a perfect second segment
    (best,) = selected([beam()], SelfRAGSettings(depth=2), new)["beams"]
    assert best["segments"][0]["text"] == "Done."


def test_a_beam_without_a_next_segment_says_why_unless_a_limit_did() -> None:
    path = [candidate("A."), candidate("B.", depth=1)]
    new = [candidate("C.", depth=2, beam=0, dropped=why) for why in ("x", "y", "x")]
    why = "the answer ends after segment 2: all candidates for the next dropped (x, y)"
    for scores, cut in (((3.0, 2.0), why), ((2.0, 3.0), None)):
        beams = [beam(*path, score=score) for score in scores]
        assert selected(beams, SelfRAGSettings(), new)["beams"] == [beam(*path, next=None, cut=cut)]


@pytest.mark.parametrize("option", ["A", None])
def test_an_answer_of_a_closed_set_has_no_next_segment(option: str | None) -> None:
    new = [candidate("A", option=option, next="retrieve")]
    update = selected([beam()], SelfRAGSettings(options=("A", "B")), new)
    assert [b["next"] for b in update["beams"]] == [None]
    assert bool(update["notes"]) is (option is None)


def test_only_candidates_of_the_answer_are_chosen_by_depth_beam_and_passage() -> None:
    best = [candidate("A."), candidate("B.", depth=1, beam=1, passage=1)]
    others = [
        candidate("C.", beam=1),
        candidate("D.", depth=1, beam=0, passage=1),
        candidate("E.", depth=1, beam=1, passage=2),
    ]
    state = {**ASKED, "beams": [beam(*best, next=None)], "candidates": [*best, *others]}
    update = write_answer().invoke(state)
    assert [c["chosen"] for c in update["candidates"].value] == [True, True, False, False, False]
    assert update["cited_answer"] == "A. [1] B. [2]"


def answer_of(path: Sequence[Any], **fields: Any) -> Any:
    """Return what write_answer makes of a beam with these segments, and not of another."""
    beams = [beam(*path, next=None, **fields), beam(cut="Another beam's.")]
    state = {**ASKED, "beams": beams, "candidates": path}
    return write_answer(SelfRAGSettings(segment_tokens=7)).invoke(state)


def test_a_cut_segment_is_noted_by_the_last_segment_only() -> None:
    cut = "the last segment was cut at its limit of 7 tokens"
    for first, last, notes in (("length", "end", []), ("end", "length", [cut])):
        path = [candidate("A.", finish_reason=first), candidate("B.", depth=1, finish_reason=last)]
        assert answer_of(path)["notes"] == notes
    assert answer_of(path, cut="No more.")["notes"] == ["No more.", cut]
    silent = answer_of([candidate(" ", finish_reason="length")])
    assert (silent["cited_answer"], silent["notes"]) == (NO_ANSWER, [SILENT, cut])


def test_the_answer_of_a_closed_set_is_its_option() -> None:
    state = {**ASKED, "beams": [beam(candidate("It is B"))], "candidates": []}
    update = write_answer().invoke({**state, "options": {"B": 2.0, "A": 1.0}})
    assert (update["answer"], update["cited_answer"]) == ("B", "B [1]")


@FORMS
@pytest.mark.parametrize(
    ("label", "most", "option"),
    [
        ("2", None, "B"),
        ("none", None, None),
        (ConnectionError("down"), None, None),
        ("2", 2 + 4, "B"),  # two to write and to criticise, four to ask
        ("2", 2 + 3, None),
    ],
)
async def test_a_chat_model_is_asked_for_the_option_that_its_prose_gives(
    label: Any, most: int | None, option: str | None, form: str
) -> None:
    """Prose is not parsed: "It can't be A ..." names A and means B."""
    prose = "It can't be A because oxygen is released. That leaves B."
    critic = Provider(answer=lambda prompt: label if "options" in prompt else "5")
    model = PromptedReflectionLLM(saying(prose), critic=critic)
    settings = SelfRAGSettings(options=("A", "B"), mode="never", max_model_calls=most)
    state = {"question": "Which?", "beams": [beam(next="none", score=0.0)]}
    update = await ask(generate_and_critique(model, settings), form, state)
    (made,) = update["candidates"]
    assert (made["text"], made["option"]) == (prose, option)
    word = generate_and_critique(PromptedReflectionLLM(saying("B"), critic=critic), settings)
    (made,) = (await ask(word, form, state))["candidates"]
    assert made["option"] == "B", "and no model is asked"
    asked = [prompt for prompt in critic.prompts if "options" in prompt]
    assert bool(asked) is (most != 5)
    assert all("1: A\n2: B\n" in p and "Which?" in p and prose in p for p in asked)


A, B = DOCUMENTS = [document("A"), document("B")]


class Reversing(BaseDocumentCompressor):
    """Keeps the last two documents, best last."""

    fails: bool = False
    gives: Any = True
    llm: Any = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> list[Document]:
        if self.fails:
            raise ValueError("no reranker today")
        if self.llm:  # as LangChain's own reranker asks one
            self.llm.invoke(query, {"callbacks": callbacks})
        return [*reversed(documents)][:2] if self.gives is True else self.gives


async def ranked(reranker: Any, form: str, **given: Any) -> Any:
    llm = ScriptedLLM(write=lambda p: segment(passage_of(p), RELEVANT, FULL))
    graph = create_self_rag(llm, lambda _: [document(t) for t in "ABC"], reranker=reranker)
    return await ask(graph, form, {"question": "Who?", **given})


@FORMS
async def test_answers_are_written_from_what_the_reranker_kept(form: str) -> None:
    result = await ranked(Reversing(llm=chat("2, 1")), form)
    assert [c["text"] for c in result["candidates"]] == ["C", "B"]
    calls = [s["model_calls"] for s in result["route"] if s["step"] == "retrieve"]
    assert calls == [1], "what a reranker asks a model is counted"
    given = await ranked(Reversing(), form, documents=[document(t) for t in "XYZ"])
    assert [c["text"] for c in given["candidates"]] == ["Z", "Y"]
    evaluator = WordEvaluator()
    crag = create_crag(chat("Yes."), lambda _: [A, A, B], evaluator, reranker=Reversing())
    assert (await ask(crag, form, {"question": "Who?"}))["passages"] == [B, A]
    assert evaluator.calls[0] == ["B // About B.", "About A."]
    beams = [beam(candidate("None.")), beam(candidate("All."))]
    step = retrieve(lambda query: [A, B] if "All" in query else [], reranker=Reversing())
    update = await ask(step, form, {"question": "Who?", "passages": [], "beams": beams})
    assert update["passages"] == [B, A], "of every query, whatever the first found"


@FORMS
async def test_a_failing_reranker_leaves_the_passages(form: str) -> None:
    result = await ranked(Reversing(fails=True), form)
    assert [c["passage"] for c in result["candidates"]] == [0, 1, 2]
    assert "the reranker raised ValueError: no reranker today" in result["notes"][0]
    with pytest.raises(NoDocument, match=r"^the reranker gave None: give a list of Documents"):
        await ranked(Reversing(gives=None), form)
    with pytest.raises(NoDocument, match=r"^reranked documents, 0: metadata 'f' is a "):
        await ranked(Reversing(gives=[Document("A", metadata={"f": print})]), form)


def test_a_message_may_lack_an_id_and_other_kinds_are_refused() -> None:
    update = read_question(SelfRAGSettings()).invoke({"messages": [HumanMessage("Who?")]})
    assert (update["original_question"], update["human_message_id"]) == ("Who?", "")
    with pytest.raises(NoQuestion, match="messages must hold messages, got int"):
        read_question(SelfRAGSettings()).invoke({"messages": 3})


EARLIER = [HumanMessage("Who built it?"), ToolMessage("x", tool_call_id="1"), AIMessage("Ann.")]


@FORMS
@pytest.mark.parametrize(
    ("model", "note"),
    [
        (chat(" \n"), "was empty or too long"),
        (chat("x" * 1001), "was empty or too long"),
        (RunnableLambda(lambda _: 1 / 0), "raised ZeroDivisionError: division by zero"),
    ],
)
async def test_a_failed_rewrite_leaves_the_question(model: Any, note: str, form: str) -> None:
    state = {"question": "And then?", "messages": [*EARLIER, HumanMessage("And then?")]}
    update = await ask(rewrite_follow_up(model), form, state)
    assert "standalone_question" not in update
    assert update["notes"][0].endswith(f"{note}; answered the original question")


TURN = HumanMessage("And when?", id="3")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"messages": [*EARLIER, TURN]}, "user: Who built it?\nassistant: Ann."),
        ({"messages": EARLIER}, "user: Who built it?\nassistant: Ann."),
        ({"messages": [*EARLIER, TURN], "human_message_id": None},
         "user: Who built it?\nassistant: Ann.\nuser: And when?"),
        ({"messages": [*EARLIER, TURN, AIMessage("No.")], "human_message_id": "3"},
         "user: Who built it?\nassistant: Ann."),
        ({"messages": [HumanMessage("Hm."), HumanMessage("And when?")], "human_message_id": ""},
         "user: Hm."),
        ({"messages": [AIMessage(" "), HumanMessage("x" * 4_001), TURN]}, f"user: {'x' * 4_000}"),
        ({"messages": [*map(AIMessage, "abcdefghijk"), TURN]},
         "\n".join(f"assistant: {text}" for text in "bcdefghijk")),
        ({"messages": [TURN]}, None),
        ({"messages": []}, None),
    ],
)  # fmt: skip
def test_what_was_said_before_the_question_is_read(given: Any, said: str | None) -> None:
    prompts: list[str] = []
    model = RunnableLambda(lambda asked: prompts.append(asked[-1].content) or f'“X \n{"i" * 998}" ')
    state = {"question": "Shown", "original_question": "And when?", **given}
    update = rewrite_follow_up(model).invoke(state)
    question = "\n\nLast question: And when?"
    assert prompts == ([] if said is None else [f"<document>\n{said}\n</document>{question}"])
    rewritten = None if said is None else f"X {'i' * 998}"  # as long as it may be
    assert update.get("standalone_question") == update.get("question") == rewritten
