"""Each method's Outcome, exactly, over scripted parts; and specifications of variants."""

import asyncio
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from selfcorrect_rag.evaluation.methods import BadMethod, Method, open_method, read_spec, read_specs
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.task_formats import question_of
from selfcorrect_rag.prompts.instruct_rag import TASK_INSTRUCTIONS as INSTRUCT_INSTRUCTIONS
from selfcorrect_rag.settings import CRAGSettings, SelfRAGSettings
from tests.evaluation.scripted_parts import PAGES, QUESTION, ScriptedParts, opened, timeless

OWN = "tests.evaluation.own_graphs"
A = {"title": "A", "text": PAGES[0].page_content, "source": "/a"}
B = {"title": "B", "text": PAGES[1].page_content, "source": "/b"}


def asked(method: Method, question: Question = QUESTION) -> Outcome:
    outcome = asyncio.run(method.answer(question))
    assert outcome.error or outcome.seconds > 0
    return timeless(outcome)


def cited(outcome: Outcome) -> list[tuple[int, str]]:
    return [(citation["number"], citation["title"]) for citation in outcome.citations]


def test_no_retrieval_asks_the_model_alone() -> None:
    parts = ScriptedParts(chat_model=FakeListChatModel(responses=["Holm, by heart."]))
    assert asked(opened("no_retrieval", parts)) == Outcome(
        "q1",
        "no_retrieval",
        "Holm, by heart.",
        cited_answer="Holm, by heart.",
        model_calls=1,
        prompt_tokens=None,
        generated_tokens=None,
    )
    assert parts.queries == []


def test_plain_rag_with_the_first_passage_reads_no_other() -> None:
    outcome = asked(opened("rag_first"))
    assert outcome._replace(citations=()) == Outcome(
        "q1",
        "rag_first",
        "Berg",
        cited_answer="Berg [1]",
        passages=(A,),
        documents=(A,),
        retrieved=True,
        model_calls=1,
        prompt_tokens=6,
        generated_tokens=4,
    )
    assert cited(outcome) == [(1, "A")]


def test_plain_rag_reads_all_passages_as_one_text_each_behind_its_title() -> None:
    parts = ScriptedParts()
    outcome = asked(opened("rag", parts))
    assert outcome.answer == "Lind"
    assert outcome.passages == (A, B)
    assert (outcome.model_calls, outcome.retrieved, outcome.action) == (1, True, "")
    (((question, passage),),) = parts.reader.calls
    assert question == QUESTION.question
    assert passage == ("", f"A. {A['text']} B. {B['text']}")
    # Which passage an answer is from, nobody has judged.
    assert (outcome.cited_answer, cited(outcome)) == ("Lind", [])


def test_plain_rag_cites_what_a_chat_model_says_it_relies_on() -> None:
    parts = ScriptedParts(chat_model=FakeListChatModel(responses=["Lind [2]."]))
    outcome = asked(opened("rag", parts))
    assert (outcome.answer, outcome.cited_answer) == ("Lind.", "Lind [2].")
    assert cited(outcome) == [(2, "B")]


def test_in_context_ralm_says_all_that_the_model_writes() -> None:
    parts = ScriptedParts(chat_model=FakeListChatModel(responses=["It was Lind."]))
    assert asked(opened("ralm", parts)) == Outcome(
        "q1",
        "ralm",
        "It was Lind.",
        passages=(A, B),
        documents=(A, B),
        retrieved=True,
        model_calls=1,
        prompt_tokens=None,
        generated_tokens=None,
    )


def test_self_rag() -> None:
    outcome = asked(opened("self_rag"))
    assert (outcome.answer, outcome.cited_answer) == ("Lind", "Lind [1]")
    assert (outcome.retrieved, outcome.model_calls, outcome.passages) == (True, 2, (A, B))
    assert not asked(opened("self_rag:mode=never")).retrieved
    other, best = outcome.candidates
    assert (best["text"], best["passage"], best["chosen"], best["depth"]) == ("Lind", 1, True, 0)
    assert best["score"] > other["score"]
    assert not other["chosen"]
    assert outcome.retrieval == pytest.approx(0.9)


def test_crag_says_what_it_graded_did_and_searched() -> None:
    outcome = asked(opened("crag"))
    assert (outcome.answer, outcome.action, outcome.searched) == ("Lind", "correct", False)
    assert outcome.grades == (0.0, 0.9)
    assert outcome.documents == (A, B)
    assert outcome.thresholds == {"upper": 0.5, "lower": -0.5}
    assert [(strip["score"], strip["kept"]) for strip in outcome.strips] == [
        (0.0, True),
        (0.9, True),
    ]
    vague = asked(opened("crag", ScriptedParts(PAGES[:1])))
    assert (vague.answer, vague.action, vague.searched) == ("Holm", "ambiguous", True)
    assert cited(vague)[0][1] == "W"
    assert [passage["title"] for passage in vague.passages][-1] == "W"
    assert vague.documents == (A,)
    assert vague.strips[-1]["text"] in vague.passages[-1]["text"]


def test_self_crag() -> None:
    outcome = asked(opened("self_crag"))
    assert (outcome.answer, outcome.action, outcome.retrieved) == ("Lind", "correct", True)
    assert len(outcome.grades) == 2
    assert all("Lind" in citation["text"] for citation in outcome.citations)


def test_instruct_rag_keeps_rationale_and_conclusion_apart() -> None:
    said = "Document [1] states that it was Lind. Therefore, the answer is Lind."
    parts = ScriptedParts(chat_model=FakeListChatModel(responses=[said]))
    outcome = asked(opened("instruct_rag", parts))
    assert (outcome.answer, outcome.rationale) == ("Lind", said)
    assert cited(outcome) == [(1, "B")]  # the best document stands next to the question


INSTRUCTED: dict[str, tuple[dict[str, Any], str]] = {
    "popqa": ({"question": "?", "s_wiki_title": "A"}, "asks about the object entity"),
    "triviaqa": ({"question": "?", "question_source": "s"}, "may be compositional"),
    "nq": ({"question": "?", "nq_annotated_gold": {}}, "may be compositional"),
    "2wikimultihopqa": ({"question": "?", "evidences": []}, "may be compositional"),
    "asqa": ({"question": "?", "qa_pairs": []}, "may be ambiguous"),
}


@pytest.mark.parametrize("task", INSTRUCT_INSTRUCTIONS)
def test_a_task_gets_the_papers_own_instruction(task: str) -> None:
    row, words = INSTRUCTED[task]
    named = question_of(row, 1, format=task)
    if task != "asqa":
        assert question_of(row, 1) == named
    for spec, is_told in (("instruct_rag", True), ("instruct_rag:mode=ralm", False)):
        model = Recorded(responses=["It was Lind."])
        prompts: list[str] = []
        model.prompts = prompts
        asyncio.run(opened(spec, ScriptedParts(chat_model=model)).answer(named))
        assert [words in prompt for prompt in prompts] == [is_told]


class Recorded(FakeListChatModel):
    """Remembers what it is asked."""

    prompts: Any = None

    def _call(self, messages: Any, *args: Any, **kwargs: Any) -> str:
        self.prompts.append("".join(str(message.content) for message in messages))
        return super()._call(messages, *args, **kwargs)


def test_self_rag_says_the_tokens_of_its_decision_too() -> None:
    decided = asked(opened("self_rag")).prompt_tokens
    always = asked(opened("self_rag:mode=always")).prompt_tokens
    assert decided is not None
    assert always is not None
    assert decided - always == len(QUESTION.question.split())


def test_a_refusal_is_no_answer() -> None:
    outcome = asked(opened("rag", ScriptedParts(findings={"Berg": 0.01})))
    assert (outcome.answer, outcome.refused) == ("The documents do not say.", True)
    assert outcome.citations == ()


def test_given_passages_are_read_in_place_of_retrieval_as_many_as_wanted() -> None:
    given = tuple(Document(f"Page {n}: it was Lind.", metadata={"title": str(n)}) for n in range(9))
    question = QUESTION._replace(passages=given)
    parts = ScriptedParts()
    for spec, read in (("rag", 9), ("rag_first", 1), ("rag:passages=3", 3), ("ralm", 5)):
        assert len(asked(opened(spec, parts), question).passages) == read
    assert asked(opened("rag", parts, passages=2), question).passages[1]["title"] == "1"
    assert asked(opened("no_retrieval", parts), question).passages == ()
    assert parts.queries == []


def test_a_closed_set_is_shown_and_answered_by_its_options() -> None:
    parts = ScriptedParts()
    question = QUESTION._replace(choices={"A": "Berg", "B": "Lind"}, task="arc")
    outcome = asked(opened("self_rag:mode=always", parts), question)
    assert (outcome.answer, outcome.error) == ("B: Lind", "")
    assert "A: Berg\nB: Lind" in parts.reader.calls[0][0][0]
    truth = QUESTION._replace(choices={"true": "true", "false": "false"})
    asked(opened("rag", parts), truth)
    assert parts.reader.calls[-1][0][0] == QUESTION.question


def test_a_failure_is_an_outcome_with_its_error() -> None:
    outcome = asked(opened(f"{OWN}:slow"), Question("q2", "fail, please"))
    assert outcome == Outcome("q2", f"{OWN}:slow", "", error="RuntimeError: it is broken")


def test_a_graph_of_the_users_takes_messages_or_a_question() -> None:
    outcome = asked(opened(f"mine={OWN}:chat"))
    assert (outcome.method, outcome.answer) == ("mine", "Lind, I think.")
    assert (outcome.model_calls, outcome.prompt_tokens) == (1, None)
    reads = asked(opened(f"{OWN}:reads"), QUESTION._replace(passages=tuple(PAGES)))
    assert (reads.answer, reads.passages, reads.retrieved) == ("of 2", (A, B), True)


def test_a_variant_has_a_name_and_all_knobs_of_its_graph() -> None:
    spec = read_spec("strict=crag:upper=0.6,lower=none,decomposition=windows")
    assert spec.name == "strict"
    assert spec.settings == CRAGSettings(upper=0.6, lower=None, decomposition="windows")
    listed = read_spec('self_rag:hard_constraints=["[Irrelevant]", "[Utility:1]"],beam_width=3')
    chosen = listed.settings
    assert isinstance(chosen, SelfRAGSettings)
    assert (len(chosen.hard_constraints), chosen.beam_width) == (2, 3)
    assert listed.name.startswith("self_rag:hard")
    assert read_spec("crag", passages=4).passages == 4
    assert read_spec("crag:passages=7", passages=4).passages == 7
    assert read_spec("rag_first", passages=4).passages == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("selfrag", "there is no method 'selfrag'; there are no_retrieval, rag_first"),
        ("", "is no method"),
        ("self_rag:treshold=0.4", "did you mean threshold?"),
        ("self_rag:threshold=4", "less than or equal to 1"),
        ("self_rag:threshold", "'threshold' is no KNOB=VALUE"),
        ("rag:upper=0.3", "it takes no upper"),
        ("rag_first:passages=3", "it takes no passages"),
        ("no_retrieval:passages=3", "it takes no passages"),
        ("ralm:mode=icl", "it takes no mode"),
        ("crag:approve_search=true", "waits for a person"),
    ],
)
def test_a_bad_specification_says_what_is_wrong(spec: str, message: str) -> None:
    with pytest.raises(BadMethod) as raised:
        read_spec(spec)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:graph", "cannot be opened"),
        (f"{OWN}:none", "cannot be opened"),
        (f"{OWN}:NUMBER", "is a int, not a compiled graph"),
        (f"{OWN}:deaf", "takes neither a question nor messages"),
    ],
)
def test_a_bad_graph_says_what_is_wrong(name: str, message: str) -> None:
    with pytest.raises(BadMethod, match=message):
        open_method(read_spec(name), ScriptedParts())


def test_names_are_told_apart() -> None:
    with pytest.raises(BadMethod, match="two methods are called crag"):
        read_specs(["crag", "crag"])
    with pytest.raises(BadMethod, match="name a method"):
        read_specs([])
