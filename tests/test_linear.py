"""Whatever reads text that a stranger wrote takes time in proportion to its length.

Every such reader of the package stands in ``READERS``; ``PATTERNS`` are texts without end that have
cost a reader its linearity, or might. Held is a ratio of processor time, never a time.
"""

import gc
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage

import selfcorrect_rag
from nano_training.models import critic_path, tiny_t5_path
from selfcorrect_rag.agents.support import missing_support
from selfcorrect_rag.errors.messages import one_line, redact
from selfcorrect_rag.evaluation.judges import alignment, read_judgement
from selfcorrect_rag.evaluation.matching import contains_answer
from selfcorrect_rag.evaluation.metrics import METRICS, score
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.task_formats import question_of
from selfcorrect_rag.evaluation.task_rows import BadRow, _elements
from selfcorrect_rag.evaluation.tasks import question_hash
from selfcorrect_rag.follow_up import standalone_question
from selfcorrect_rag.models.chat.classification import read_structured, read_text
from selfcorrect_rag.models.chat.completion import _completion
from selfcorrect_rag.models.chat.model_calls import CallResult
from selfcorrect_rag.models.chat.prompted_llm import (
    critique_classification,
    relevance_classification,
)
from selfcorrect_rag.models.chat.transformers_chat import ChatTokens
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.models.evaluators.pairs import PairTokenizer
from selfcorrect_rag.models.local.checkpoints import load_tokenizer
from selfcorrect_rag.models.retrieval_evaluator import titled
from selfcorrect_rag.nano import generator_path
from selfcorrect_rag.nodes.base.strips import decompose, keep
from selfcorrect_rag.nodes.base.turns import read_turn
from selfcorrect_rag.nodes.choose_demonstrations import _plain
from selfcorrect_rag.nodes.rewrite_query import keywords
from selfcorrect_rag.prompts.approval import approved
from selfcorrect_rag.prompts.chat import (
    answer_prompt,
    joint_critique_prompt,
    passages_critique_prompt,
    segment_request,
)
from selfcorrect_rag.prompts.closed_set import closed_answer
from selfcorrect_rag.prompts.crag import knowledge_prompt
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS, ISREL, ISSUP, ISUSE
from selfcorrect_rag.prompts.critique import Instance
from selfcorrect_rag.prompts.evaluator import (
    parse_label,
    parse_labels,
    prompt_for_one,
    prompt_for_several,
)
from selfcorrect_rag.prompts.follow_up import follow_up_prompt
from selfcorrect_rag.prompts.instruct_rag import inference_prompt, inference_request
from selfcorrect_rag.prompts.labels import normalized
from selfcorrect_rag.prompts.marks import read_marks
from selfcorrect_rag.prompts.parts import Part, Prompt
from selfcorrect_rag.prompts.quoting import quoted
from selfcorrect_rag.prompts.rationale.conclusions import final_answer
from selfcorrect_rag.prompts.rationale.documents import read_documents
from selfcorrect_rag.prompts.rationale.mentions import marked
from selfcorrect_rag.prompts.refusals import is_refusal, refuses
from selfcorrect_rag.prompts.self_rag import segment_prompt
from selfcorrect_rag.prompts.sentences import (
    sentence_at,
    sentence_place,
    sentence_stating,
    sentences,
)
from selfcorrect_rag.reader.answers import stated
from selfcorrect_rag.reader.questions import is_readable, plain_question, wants_sentence
from selfcorrect_rag.reader.rationale import rationale
from selfcorrect_rag.reader.reader import Passage, Span
from selfcorrect_rag.render import render_route, render_run
from selfcorrect_rag.search.bm25 import tokenize
from selfcorrect_rag.search.chunking import chunk
from selfcorrect_rag.search.page_text import page_text
from selfcorrect_rag.state.intake import admit, admit_question, fit
from selfcorrect_rag.state.sources import name_of, shown_source, title_line, web_address
from selfcorrect_rag.training.generator import output_stretches
from selfcorrect_rag.training.generator_rows import order_faults, tokens_and_texts
from tests.reader.scripted_reader import reading

LETTERS = ("A", "B", "C", "D")
LABELLED = ("A: a gas", "B: a metal", "C: not a metal")
PHRASES = ("yes", "no", "not enough information")
TITLES = ("Emma", "George Eliot", "", "Pride and Prejudice")
SEVERAL = critique_classification([ISREL, ISSUP, ISUSE], Instance("q", segment="s", evidence="e"))
RELEVANCE = relevance_classification([Instance("q", evidence="e")])


def titled_by(text: str) -> Document:
    return Document(text, metadata={"title": text, "source": text})


def judged(text: str) -> Instance:
    return Instance(text, input=text, output=text, segment=text or "s", evidence=text or "e")


def answer(text: str, *, logprobs: bool = False) -> CallResult:
    tokens = [
        {"token": text[i : i + 4], "logprob": -0.1, "top_logprobs": []}
        for i in range(0, len(text), 4)
    ]
    metadata = {"logprobs": {"content": tokens}} if logprobs else {}
    return CallResult(AIMessage(text, response_metadata=metadata), None, 1)


@cache
def tokenizer() -> ControlledTokenizer:
    return ControlledTokenizer.from_pretrained(generator_path())


@cache
def pairs() -> PairTokenizer:
    return PairTokenizer(load_tokenizer(tiny_t5_path()), separator=None, max_tokens=512)


@cache
def conversations() -> ChatTokens:
    return ChatTokens(load_tokenizer(critic_path()))


def ids(text: str) -> object:
    tokenizer()._recent.clear()
    return tokenizer().encode([Prompt(parts=(Part(text, "untrusted", shorten=1),))], 512)


def asked(text: str) -> Question:
    try:
        return question_of({"question": f"q{text}", "answers": [text], "ctxs": [{"text": text}]}, 1)
    except BadRow:
        return Question("1", text)


def scores(text: str, form: Literal["official", "strict"]) -> list[float | None]:
    pairs = [{"short_answers": ["a b", text]}]
    question = Question("1", "q", ("a b", text), extra={"qa_pairs": pairs})
    passages = ({"title": "Emma", "text": "A novel."},) * 2
    outcome = Outcome("1", "rag", text, cited_answer=text, rationale=text, passages=passages)
    names = [name for name, metric in METRICS.items() if not metric.of_rows]
    names = [name for name in names if name not in ("rouge_lsum", "factscore")]  # need others
    rows = [(question, outcome)]
    return [score(rows, name, form, entails=lambda *_: True).value for name in names]


def whole_run(text: str) -> dict[str, Any]:
    return {
        **dict.fromkeys(("question", "answer", "cited_answer", "rationale", "web_query"), text),
        **{key: [titled_by(text)] for key in ("passages", "knowledge", "web_results")},
        "notes": [text],
        "numbering": [0],
        "citations": [{"number": 1, "passage": 0, "title": text, "source": text, "text": text}],
        "strips": [{"document": 0, "text": text, "score": 0.5, "kept": True}],
    }


Reader = Callable[[str], object]
READERS: dict[str, Reader] = {
    # where text enters
    "an input": lambda text: fit({"messages": [HumanMessage(text)], "documents": [Document(text)]}),
    "a question": lambda text: (
        admit_question(text, len(text)),
        read_turn({"question": f"q{text}"}),
    ),
    "documents": lambda text: admit([titled_by(text)], 3 * len(text), "documents"),
    "a page of the web": page_text,
    "a title": title_line,
    "a name": lambda text: name_of(Document(text)),
    "one line": one_line,
    "a source": shown_source,
    "a web address": lambda text: web_address(f"https://a.org/{text}"),
    "an approval": lambda text: approved(text, "q"),
    "an approval with a query": lambda text: approved({"query": text}, "q"),
    "a demonstration's question": _plain,
    # cut and found
    "sentences": sentences,
    "an answer's sentence": lambda text: stated(
        "How?", text, [Span(text[:3], 0, 0.9, 0.9, sentence_place(text, 0, 3), 0.9)], 0.5
    ),
    "a sentence within": lambda text: sentence_at(text, len(text) // 2, len(text) // 2 + 3),
    "a quote": lambda text: (
        sentence_stating(text, "1", text),
        sentence_stating(text, text, text),
        sentence_stating(text, text[:900], text),
    ),
    "chunks": lambda text: list(chunk(text)),
    "strips of sentences": decompose,
    "strips of windows": lambda text: decompose(text, "windows"),
    "kept strips": lambda text: keep(
        [{"document": 0, "text": text, "score": 0.5, "kept": False}] * 2, 0, 5
    ),
    "words of BM25": lambda text: tokenize([text]),
    "keywords": keywords,
    "a titled passage": lambda text: titled(titled_by(text)),
    # asked
    "quoted": quoted,
    "a secret": redact,
    "ids of a prompt": ids,
    "ids of a conversation": lambda text: conversations().encode(
        [{"role": "user", "content": text}]
    ),
    "ids of a pair": lambda text: pairs().encode([(text, text)]),
    "a segment's prompt": lambda text: segment_prompt(
        text, [], [titled_by(text)], "retrieve", 0
    ).to_string(),
    "a follow-up by rule": lambda text: (
        standalone_question([("user", text), ("assistant", text)] * 2, "When was it printed?"),
        standalone_question([("user", "Who wrote Emma?"), ("assistant", text)], text),
    ),
    "a follow-up's prompt": lambda text: follow_up_prompt([("user", text)], text),
    "a prompt with knowledge": lambda text: knowledge_prompt(text, [titled_by(text)]),
    "a prompt of InstructRAG": lambda text: inference_prompt("instruct", text, [titled_by(text)]),
    "a prompt of InstructRAG read back": lambda text: inference_request(
        inference_prompt("instruct", text, [titled_by(text)])
    ),
    "a question to the reader": lambda text: (
        is_readable(text),
        wants_sentence(text),
        plain_question(text),
    ),
    "an evaluator's prompt": lambda text: prompt_for_one("direct", text, text),
    "an evaluator's prompt for several": lambda text: prompt_for_several("direct", text, [text]),
    "a judge's prompt": lambda text: alignment(text, [text], text, [titled_by(text)]),
    "a critic's prompts": lambda text: [
        aspect.prompt(judged(text))
        for aspect in CRITIQUE_PROMPTS.values()
        if not aspect.lacks(judged(text))
    ],
    "a joined prompt": lambda text: joint_critique_prompt([ISREL, ISSUP, ISUSE], judged(text)),
    "a prompt for pieces of evidence": lambda text: passages_critique_prompt(
        ISREL, [judged(text)] * 2
    ),
    "a writer's prompt": lambda text: answer_prompt(judged(text), sentence=True),
    "a prompt read back": lambda text: segment_request(
        Prompt(parts=(Part(text, "untrusted"),) * 4)
    ),
    # answered
    "an evaluator's verdict": lambda text: parse_label("direct", text),
    "an evaluator's thoughts": lambda text: parse_label("chain_of_thought", text),
    "an evaluator's verdicts": lambda text: parse_labels(text, 3),
    "a judge's answer": lambda text: read_judgement(alignment("q", ["a"], "r"), text),
    "critiques": lambda text: [aspect.read(text) for aspect in CRITIQUE_PROMPTS.values()],
    "a label": normalized,
    "several labels": lambda text: read_text(SEVERAL, answer(text)),
    "a label with probabilities": lambda text: read_text(
        RELEVANCE, answer(f"1: [Relevant]{text}", logprobs=True)
    ),
    "labels in a structure": lambda text: read_structured(SEVERAL, {"label_1": text}),
    "a written answer": lambda text: _completion([answer(text)], True, ["\n\n\n\n"]),
    "an answer with marks": lambda text: read_marks(text, 3, (1,)),
    "a refusal": is_refusal,
    "a refusal of one sentence": refuses,
    "support": lambda text: missing_support({"answer": text, "citations": []}),
    "a prediction of letters": lambda text: closed_answer(text, LETTERS),
    "a prediction of labelled texts": lambda text: closed_answer(text, LABELLED),
    "a prediction of phrases": lambda text: closed_answer(text, PHRASES),
    "an open answer": closed_answer,
    "mentions": lambda text: marked(text, TITLES),
    "mentions by a title": lambda text: marked(f'The document "{text}" says', [text] * 3),
    "a rationale": lambda text: read_documents(text, TITLES),
    "a rationale of the reader": lambda text: rationale(
        text, [Passage("", text)] * 2, [reading(text, {text: 0.9})] * 2, 0.5, "No."
    ),
    "a conclusion": lambda text: final_answer(text, TITLES),
    "a conclusion in quotes": lambda text: final_answer(f"The answer is “{text}”.", TITLES),
    "an announced conclusion": lambda text: final_answer(f"The answer is {text}", TITLES),
    # kept and shown
    "an answer's words": lambda text: contains_answer(text, ["a b", text]),
    "the scores of papers": lambda text: scores(text, "official"),
    "scores": lambda text: scores(text, "strict"),
    "a question of a task": lambda text: (asked(text), question_hash(text)),
    "rows of a task": lambda text: list(_elements(iter([f"[{text}]"]), 1)),
    "an output of training data": lambda text: output_stretches(f"x{text}"),
    "tokens of training data": lambda text: list(tokens_and_texts(text)),
    "the order of tokens": order_faults,
    "a run's page": lambda text: render_run(whole_run(text)),
    "a run's route": lambda text: render_route(whole_run(text)),
}

UNITS = [
    " ", "\n", "\u200b", "\u0301", "\x00", "a", "1", "_", "=", ".", ",", "`", "\\", '"',
    "\u201c", "(", "[", "<", "\u3002", "\U0001f600", "A. ", "A b. ", "a b. ", "1. a\n", "a:\n",
    "A: ", "a, ", "a b ", "<!--", "<script", "<div>", "<a b='", "&#", "[1", "[1] ", "[1, ",
    "[1-", "[[1]](", "\u30101\u2020", "[Relevant", "1 and ", "first, ", "not ", "no. 1 ",
    "yes\n", "1: yes\n", "is not ", "Answer:\n", "the answer is ", "the documents ",
    "given the provided ", "Document 1 ", "[Document 1 and ", "unlike Document 1 ",
    '"Emma" says ', "http://a.b, ", "Mr. Emma ", "I do not know. ",
]  # fmt: skip
PATTERNS: dict[str, Callable[[int], str]] = {
    repr(unit): lambda n, unit=unit: unit * (n // len(unit))  # type: ignore[misc]
    for unit in UNITS
}
PATTERNS |= {
    f"{begin!r} and {unit!r}": lambda n, begin=begin, unit=unit: (  # type: ignore[misc]
        begin + unit * (n // len(unit)) + "x"
    )
    for begin, unit in [
        ("<", " "), ("</", " "), ("x ", "a b. "), ("not", " the"), ("The answer is", " given the"),
        ("[1", " "), ("Document 1", " and"), ("rating", " "), ("x", "_"), ("**", "\n"),
    ]
}  # fmt: skip

FAST = 0.0125
"""Seconds of processor time: what reads 20 kB in less needs no ratio."""
STEEP = 7
"""How much longer four times the text may take: 4 times is linear, 16 times quadratic."""
PATIENCE = 4.0
"""Seconds of processor time, after which a reader is not waited for."""


class TooLong(Exception):
    """A text was not read in time."""


@pytest.fixture(autouse=True)
def _undisturbed() -> Iterator[None]:
    def ring(signum: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, ring)
    gc.disable()
    yield
    gc.enable()
    signal.signal(signal.SIGVTALRM, before)


def seconds(read: Reader, text: str, times: int = 1) -> float:
    """Of processor time, the least of some reads."""
    took = []
    for _ in range(times):
        signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
        begun = time.thread_time()
        try:
            read(text)
        except TooLong:
            return float("inf")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        took.append(time.thread_time() - begun)
    return min(took)


def is_linear(read: Reader, of: Callable[[int], str]) -> bool:
    """Whether 20 kB take about four times as long as 5 kB; measured anew before it is denied."""
    for times in (1, 3, 7, 15):
        long = seconds(read, of(20_000), times)
        if long == float("inf"):
            return False
        if long < FAST or long < STEEP * seconds(read, of(5_000), times):
            return True
    return False


def test_there_are_patterns_enough() -> None:
    assert len(PATTERNS) >= 40
    assert all(9_900 <= len(of(10_000)) <= 10_100 for of in PATTERNS.values())


@pytest.mark.parametrize("name", READERS)
def test_reading_is_linear(name: str) -> None:
    READERS[name]("The answer is B [1].")  # what is loaded and compiled once
    assert [pattern for pattern, of in PATTERNS.items() if not is_linear(READERS[name], of)] == []


def test_what_is_not_linear_is_found() -> None:
    assert not is_linear(re.compile(r"\s+x").search, lambda n: " " * (n // 3))


ELSEWHERE = {
    "bulk/answers.py": "reads what whoever starts a run names as its folder",
    "bulk/question_files.py": "reads what whoever starts a run names as its files",
    "commands/knobs.py": "reads the descriptions of our own settings",
    "commands/evaluate.py": "reads the identities of models",
    "evaluation/methods.py": "reads what whoever starts a run names as methods",
    "evaluation/plots.py": "reads what matplotlib draws",
    "evaluation/sweeps.py": "reads what whoever starts a run names as sweeps",
    "errors/disk.py": "reads what SQLite and the system say of an error",
    "models/engines/vllm_engine.py": "reads what the engine says of an error, and its log",
    "search/chroma.py": "reads what Chroma says of an error",
    "search/loading.py": "reads files, which tests/search/test_loading.py holds to account",
    "serving/hosts.py": "reads what whoever starts the server calls it",
    "training/rows.py": "reads the user's own training data",
    "training/instruct.py": "reads the user's own training data",
}
"""Modules with patterns that none of ``READERS`` uses, and why."""


def test_no_pattern_is_left_out() -> None:
    package = Path(selfcorrect_rag.__file__).parent
    entered: set[str] = set()

    def note(frame: FrameType, event: str, arg: object) -> None:
        entered.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        for read in READERS.values():
            read('The answer is B [1]. Document 1 says "Emma", Document 2 does not.\n1: yes')
    finally:
        sys.setprofile(None)
    with_patterns = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "nano" not in path.relative_to(package).parts
        and "\nimport re\n" in path.read_text("utf-8")
    }
    read_here = {
        Path(name).relative_to(package).as_posix()
        for name in entered
        if Path(name).is_relative_to(package)
    }
    assert with_patterns - read_here == set(ELSEWHERE)
