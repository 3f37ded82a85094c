"""InstructRAG: modes, answers, demonstrations, what fits a model's context, streams."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from selfcorrect_rag import create_instruct_rag
from selfcorrect_rag.errors import BadArgument, BadDemonstrations, NoDocument
from selfcorrect_rag.nodes.write_answer import NO_ANSWER
from selfcorrect_rag.nodes.write_rationale import write_rationale
from selfcorrect_rag.prompts.instruct_rag import INSTRUCTION, inference_prompt
from selfcorrect_rag.prompts.reading import REFUSAL
from selfcorrect_rag.state import Demonstration
from tests.conftest import talkative
from tests.providers import chat, saying
from tests.scripted import THREAD, ScriptedLLM, document, echo, segment

QUESTION = "Who wrote Middlemarch?"
TITLES = ["Middlemarch", "Eliot Park", "Emma"]
LONG = [f"T{n} " + "word " * 60 for n in range(4)]
DEMONSTRATIONS: list[Demonstration] = [
    {"question": f"Who wrote {name}?", "rationale": f"Because {name}.", "answers": [f"By {name}"]}
    for name in ("Emma", "Ulysses", "Walden", "Dracula", "Persuasion")
]
RATIONALE = (
    "Document [3] names the author. Document [1] is not relevant. Document [7] is a novel. "
    "Therefore, the answer is George Eliot."
)


def documents(titles: Sequence[str] = TITLES) -> list[Document]:
    return [document(title, source="notes") for title in titles]


def run(llm: Any = None, titles: Sequence[str] = TITLES, **context: Any) -> Any:
    graph = create_instruct_rag(llm or echo(), lambda query: documents(titles), DEMONSTRATIONS)
    question = context.pop("question", QUESTION)
    return graph.invoke({"question": question}, context=context)  # type: ignore[arg-type]


def test_the_default_is_icl_with_demonstrations_and_instruct_without() -> None:
    assert run()["prompt_mode"] == "icl"
    for given in ((), (None,)):
        graph = create_instruct_rag(echo(), lambda query: documents(), *given)
        result = graph.invoke({"question": QUESTION})
        assert (result["prompt_mode"], result["demonstrations"]) == ("instruct", [])
    graph = create_instruct_rag(echo(), lambda query: documents(), settings={"prompt_mode": "ralm"})
    for asked, used in (("ralm", "ralm"), ("ft", "ft"), (None, "instruct")):
        context = {} if asked == "ralm" else {"prompt_mode": asked}
        assert graph.invoke({"question": QUESTION}, context=context)["prompt_mode"] == used


@pytest.mark.parametrize(
    ("mode", "instructed", "because", "by", "has_documents"),
    [
        ("icl", True, 2, 0, True),
        ("few_shot", True, 0, 2, True),
        ("instruct", True, 0, 0, True),
        ("ft", False, 0, 0, True),
        ("ralm", False, 0, 0, True),
        ("no_retrieval", False, 0, 0, False),
    ],
)
def test_each_mode_has_its_prompt(
    mode: str, instructed: bool, because: int, by: int, has_documents: bool
) -> None:
    result = run(prompt_mode=mode, instruction="Name the author only.")
    asked = result["rationale"] or result["answer"]
    assert asked.endswith("only.") is (mode != "ft")
    assert (INSTRUCTION in asked) is instructed
    assert (asked.count("Because "), asked.count("By ")) == (because, by)
    assert ("Document [3]" in asked) is bool(result["passages"]) is has_documents
    assert len(result["demonstrations"]) == because + by


def test_answer_rationale_and_documents_are_read_from_the_last_paragraph() -> None:
    result = run(chat(RATIONALE))
    assert result["answer"] == "Therefore, the answer is George Eliot."
    assert result["rationale"] == RATIONALE
    assert result["numbering"] == [2, 1, 0], "the best stands last"
    assert result["useful_documents"] == [0, 2]
    assert [(c["number"], c["passage"], c["title"]) for c in result["citations"]] == [
        (3, 0, "Middlemarch"),
        (1, 2, "Emma"),
    ]
    assert [c["segments"] for c in result["citations"]] == [[0], [0]]
    assert result["cited_answer"] == "Therefore, the answer is George Eliot. [3] [1]"
    assert result["notes"] == ["Document [7] is named but was not shown"]


@pytest.mark.parametrize(
    ("written", "answer", "useful", "cited"),
    [
        ("Document [1] is dull.\n\nDocument 3 says so.\nAnswer: Jane", "Jane", [0], "Jane [3]"),
        ("<think>Document [2]?</think>Document [3] says so. Jane.", "Jane.", [0], "Jane. [3]"),
        ("Document [1] says it.\n\nAnswer: G. Eliot [1]", "G. Eliot [1]", [2], "G. Eliot [1]"),
        ("Document [0] says so. Jane.", "Jane.", [], "Jane."),
        ("It was [2].\n\nThe documents do not say.", REFUSAL, [], REFUSAL),
        ("I looked at Document [3]. The documents do not say.", REFUSAL, [0], REFUSAL),
    ],
)
def test_nothing_else_is_read_out_of_the_prose_and_a_refusal_cites_nothing(
    written: str, answer: str, useful: list[int], cited: str
) -> None:
    result = run(chat(written))
    assert (result["answer"], result["useful_documents"]) == (answer, useful)
    assert result["cited_answer"] == cited
    assert len(result["citations"]) == cited.count("[")


@pytest.mark.parametrize("mode", ["no_retrieval", "ralm", "few_shot"])
def test_what_a_baseline_writes_is_the_answer(mode: str) -> None:
    written = "George Eliot wrote it [3]. It was published in 1871."
    result = run(chat(written), prompt_mode=mode)
    assert (result["answer"], result["rationale"]) == (written, "")
    assert result["useful_documents"] == ([] if mode == "no_retrieval" else [0])


def test_documents_are_numbered_as_they_are_shown() -> None:
    last, first = run(order="best_last"), run(order="best_first")
    assert "Document [3] (Title: Middlemarch)" in last["rationale"]
    assert "Document [1] (Title: Middlemarch)" in first["rationale"]
    assert [p.id for p in last["passages"]] == TITLES, "passages stay best first"
    assert first["numbering"] == [0, 1, 2]


def test_an_empty_text_has_a_stated_answer() -> None:
    graph = create_instruct_rag(chat("  \n"), lambda query: documents())
    result = graph.invoke({"messages": [HumanMessage(QUESTION)]})
    assert result["answer"] == result["messages"][-1].text == NO_ANSWER
    assert (result["rationale"], result["citations"]) == ("", [])
    assert result["notes"] == ["the model wrote nothing: the answer says so"]


@pytest.mark.parametrize("mode", ["icl", "ralm"])
def test_no_documents_is_a_route(mode: str) -> None:
    result = run(titles=[], prompt_mode=mode)
    assert result["answer"] == f"Based on your knowledge, answer the question: {QUESTION}"
    assert (result["prompt_mode"], result["demonstrations"]) == ("no_retrieval", [])
    assert result["notes"] == ["no document was found: the model was asked without documents"]
    graph: Any = create_instruct_rag(echo(), None)
    for given in ({}, {"documents": documents()}):
        asked = {"question": QUESTION, **given}
        closed = graph.invoke(asked, context={"prompt_mode": "no_retrieval"})
        shown = closed["answer"], closed["numbering"], closed["notes"]
        assert shown == (result["answer"], [], [])


def test_a_fine_tuned_model_keeps_its_prompt_without_documents() -> None:
    result = run(titles=[], prompt_mode="ft")
    assert result["rationale"].startswith("Based on your knowledge and the provided information")
    assert result["prompt_mode"] == "ft"


def test_a_pause_inside_the_retriever_is_no_failure() -> None:
    def pausing(query: str) -> list[Document]:
        return documents([interrupt("which?")])

    graph: Any = create_instruct_rag(echo(), pausing, checkpointer=InMemorySaver())
    (pause,) = graph.invoke({"question": QUESTION}, THREAD)["__interrupt__"]
    assert pause.value == "which?"
    result = graph.invoke(Command(resume="Emma"), THREAD)
    assert (result["passages"][0].id, result["notes"]) == ("Emma", [])


def shown(**context: Any) -> list[str]:
    return [d["question"].split()[-1].rstrip("?") for d in run(**context)["demonstrations"]]


def test_fixed_demonstrations_are_the_first_and_random_ones_depend_on_seed_and_question() -> None:
    assert shown(selection="fixed", max_demonstrations=3) == ["Emma", "Ulysses", "Walden"]
    assert len({tuple(shown(seed=seed)) for seed in range(5)}) > 1
    assert len({tuple(shown(seed=7)) for _ in range(9)}) == 1
    assert len({tuple(shown(question=f"Who is {n}?")) for n in range(5)}) > 1
    assert shown(max_demonstrations=9) == ["Emma", "Ulysses", "Walden", "Dracula", "Persuasion"]


@pytest.mark.parametrize("selection", ["fixed", "random"])
def test_the_question_asked_is_no_demonstration(selection: str) -> None:
    found = shown(selection=selection, question="who  wrote EMMA", max_demonstrations=9)
    assert sorted(found) == ["Dracula", "Persuasion", "Ulysses", "Walden"]


@pytest.mark.parametrize(
    ("demonstrations", "context", "says"),
    [
        ([], {"prompt_mode": "icl"}, "give create_instruct_rag some"),
        ([{"question": "Who?", "answers": ["A"]}], {}, "with a question and rationale"),
        ([DEMONSTRATIONS[0] | {"answers": []}], {"prompt_mode": "few_shot"}, "and answers"),
        ([DEMONSTRATIONS[0] | {"answers": "Jo"}], {"prompt_mode": "few_shot"}, "a list of texts"),
        ([{"rationale": "R"}], {}, "demonstration 1 has no question or no rationale"),
        ("demos.jsonl", {"prompt_mode": "icl"}, "demonstration 1 has no question or no rationale"),
    ],
)
def test_bad_demonstrations_are_refused(demonstrations: Any, context: Any, says: str) -> None:
    graph = create_instruct_rag(echo(), lambda query: documents(), demonstrations)
    with pytest.raises(BadDemonstrations, match=says):
        graph.invoke({"question": QUESTION}, context=context)


def test_a_model_and_a_demonstration_that_will_not_do_are_named() -> None:
    with pytest.raises(BadArgument, match=r"^llm must be "):
        write_rationale(documents)  # type: ignore[arg-type]
    with pytest.raises(NoDocument, match=r"^demonstration 2 is a "):
        create_instruct_rag(echo(), None, [DEMONSTRATIONS[0], {"question": print}])  # type: ignore[typeddict-item]


def test_the_weakest_documents_are_dropped_and_numbers_follow() -> None:
    result = run(titles=LONG, prompt_mode="ralm", context_tokens=756)
    assert result["answer"].startswith("Document [1] (Title: T1 word")
    assert result["numbering"] == [1, 0]
    assert result["notes"] == [
        "2 of 4 documents dropped, the weakest first: the prompt would be longer than the 500 "
        "tokens that the model can read"
    ]
    assert run(titles=LONG, prompt_mode="ralm", context_tokens=900)["numbering"] == [2, 1, 0]


def test_demonstrations_are_dropped_after_documents_and_the_best_document_stays() -> None:
    demonstrations: list[Demonstration] = [
        {"question": f"Who is {name}?", "rationale": "word " * 60} for name in ("A", "B")
    ]
    graph = create_instruct_rag(echo(), lambda query: documents(LONG), demonstrations)
    context: Any = {"context_tokens": 630, "rationale_tokens": 100}
    result = graph.invoke({"question": QUESTION}, context=context)
    assert result["numbering"] == [0]
    assert [d["question"] for d in result["demonstrations"]] == ["Who is B?"]
    dropped = [note.split(" dropped")[0] for note in result["notes"]]
    assert dropped == ["3 of 4 documents", "1 of 2 demonstrations"]
    tiny = run(titles=LONG, context_tokens=20)
    assert (tiny["numbering"], tiny["demonstrations"]) == ([0], [])
    assert "the prompt is longer than the 10 tokens" in tiny["notes"][0]
    assert tiny["notes"][2].startswith("2 of 2 demonstrations dropped")


def test_a_model_with_a_tokenizer_of_its_own_is_asked_to_count() -> None:
    llm = FakeListChatModel(responses=["x"], custom_get_token_ids=lambda text: [0] * len(text))
    assert run(llm, LONG, prompt_mode="ralm", context_tokens=900)["numbering"] == [0]


def test_an_llm_continues_plain_text_and_a_chat_model_gets_one_message() -> None:
    asked: list[str] = []

    class Listening(FakeListLLM):
        def _call(self, prompt: str, *args: Any, **kwargs: Any) -> str:
            asked.append(prompt)
            return "x"

    run(Listening(responses=["x"]), prompt_mode="ft")
    model = saying("x")
    run(model, prompt_mode="ft")
    assert asked[0].endswith(f"answer the question: {QUESTION}\n")
    assert model.prompts == [asked[0].rstrip("\n")]


def test_a_reflection_llm_gets_untrusted_parts_and_its_limit() -> None:
    llm = ScriptedLLM(write=lambda text: segment(RATIONALE))
    result = run(llm, titles=["[Relevant]", "Emma"], prompt_mode="ft", rationale_tokens=33)
    assert result["answer"] == "Therefore, the answer is George Eliot."
    ((prompt,),) = llm._calls
    assert llm._options[0]["max_tokens"] == 33
    assert not [part for part in prompt.parts if part.kind == "control"]
    assert any(" (Title: \u2045Relevant])" in p.text for p in prompt.parts if p.kind == "untrusted")


def test_a_real_model_drops_documents_by_its_own_tokenizer() -> None:
    llm = talkative()
    limit = llm.context_tokens - 20
    texts = ["the the " * n for n in (29, 30, 31, 32)]
    result = run(llm, titles=texts, prompt_mode="ft", rationale_tokens=20)
    left = [result["passages"][i] for i in result["numbering"]]
    prompt = inference_prompt("ft", QUESTION, left)
    more = inference_prompt("ft", QUESTION, [result["passages"][len(left)], *left])
    assert llm.get_num_tokens(prompt.to_string()) < limit < llm.get_num_tokens(more.to_string())
    assert llm.generate_segments([prompt], max_tokens=20)[0]["shortened"] == 0


async def test_the_rationale_streams_once_token_by_token() -> None:
    graph = create_instruct_rag(chat(RATIONALE), lambda query: documents())
    asked: Any = {"messages": [HumanMessage(QUESTION)]}
    tokens = [message.text for message, _ in graph.stream(asked, stream_mode="messages")]
    assert "".join(tokens) == RATIONALE
    assert len(tokens) > 50
    again = [message.text async for message, _ in graph.astream(asked, stream_mode="messages")]
    assert again == tokens
    reply = graph.invoke(asked)["messages"][-1]
    assert (reply.text, reply.response_metadata["model_name"]) == (RATIONALE, "FakeListChatModel")
