"""Whatever reads text that a stranger wrote takes time in proportion to its length.

Every such reader of the package stands in ``READERS``, every pattern that has cost one of them its
linearity, or might, in ``PATTERNS``.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage

from selfcorrect_rag import anaphora, mentions, set_apart, sources
from selfcorrect_rag.agents.support import missing_support
from selfcorrect_rag.approval import approved
from selfcorrect_rag.asking_prompts import asked, joined_prompt, together_prompt, writing_prompt
from selfcorrect_rag.aspect import Instance
from selfcorrect_rag.closed_set import closed_answer
from selfcorrect_rag.conclusions import final_answer, is_closing
from selfcorrect_rag.critic_prompts import ASPECTS, ISREL, ISSUP, ISUSE
from selfcorrect_rag.evaluation.judge import _read, judge_prompt
from selfcorrect_rag.instruct_prompts import inference_prompt
from selfcorrect_rag.labels import plain
from selfcorrect_rag.marks import read_marks, without_marks
from selfcorrect_rag.models import evaluator_prompts
from selfcorrect_rag.models.drafts import form, relevance
from selfcorrect_rag.models.evaluator_prompts import verdict, verdicts
from selfcorrect_rag.models.forms import read_structured, read_text
from selfcorrect_rag.models.label_probabilities import tokens_of
from selfcorrect_rag.models.pairs import PairTokenizer
from selfcorrect_rag.models.retrieval_evaluator import titled
from selfcorrect_rag.models.rounds import Outcome
from selfcorrect_rag.models.writing import _written
from selfcorrect_rag.nodes.choose_demonstrations import _plain
from selfcorrect_rag.nodes.rewrite_query import keywords
from selfcorrect_rag.prompts import (
    Part,
    Prompt,
    broken_up,
    follow_up_prompt,
    knowledge_prompt,
    segment_prompt,
)
from selfcorrect_rag.rationales import read_documents
from selfcorrect_rag.refusals import is_refusal, refuses
from selfcorrect_rag.render import render_run as page
from selfcorrect_rag.search.bm25 import _tokenize
from selfcorrect_rag.search.chunking import chunk, sentences
from selfcorrect_rag.search.page_text import page_text
from selfcorrect_rag.strips import decompose, keep
from selfcorrect_rag.training.consistency import contains_answer
from selfcorrect_rag.training.generator_examples import output_stretches
from selfcorrect_rag.training.generator_rows import order_faults, tokens_and_texts
from selfcorrect_rag.turns import read_turn

LETTERS = ("A", "B", "C", "D")
PHRASES = ("yes", "no", "not enough information")
LABELLED = ("A: a gas", "B: a metal", "C: not a metal")
TITLES = ("Emma", "George Eliot", "", "Pride and Prejudice")
SEVERAL = form([ISREL, ISSUP, ISUSE], Instance("q", segment="s", evidence="e"))


def logged(text: str) -> AIMessage:
    tokens = [
        {
            "token": text[i : i + 4],
            "logprob": -0.1,
            "top_logprobs": [{"token": "no", "logprob": -2.0}],
        }
        for i in range(0, len(text), 4)
    ]
    return AIMessage(text, response_metadata={"logprobs": {"content": tokens}})


READERS: dict[str, Callable[[str], object]] = {
    "marks of one document": lambda text: read_marks(text, 3, (1,)),
    "marks of none": without_marks,
    "a refusal": is_refusal,
    "a refusal of one sentence": refuses,
    "a closed set of letters": lambda text: closed_answer(text, LETTERS),
    "a closed set of phrases": lambda text: closed_answer(text, PHRASES),
    "a closed set of labelled texts": lambda text: closed_answer(text, LABELLED),
    "an open answer": closed_answer,
    "mentions": lambda text: mentions.marked(text, TITLES),
    "mentions by a title": lambda text: mentions.marked(f'The document "{text}" says', [text] * 3),
    "a rationale": lambda text: read_documents(text, TITLES),
    "a conclusion": lambda text: final_answer(text, TITLES),
    "a conclusion after an announcement": lambda text: final_answer(
        f"The answer is {text}", TITLES
    ),
    "a closing": is_closing,
    "a clause": lambda text: set_apart.without_exceptions(f"\x021\x03 {text}"),
    "exceptions": lambda text: list(set_apart.exceptions(f"\x021\x03 {text}", False)),
    "a pronoun": anaphora.of_pronoun,
    "what follows": anaphora.follows,
    "others": anaphora.collective,
    "a heading": anaphora.of_heading,
    "a label of a list": anaphora.label,
    "a list": anaphora.lists_useful,
    "one line": sources.one_line,
    "a title": sources.title_line,
    "a source": sources.shown_source,
    "a web address": lambda text: sources.web_address(f"https://a.org/{text}"),
    "an approval": lambda text: approved(text, "q"),
    "an approval with a query": lambda text: approved({"query": text}, "q"),
    "strips of sentences": decompose,
    "strips of windows": lambda text: decompose(text, "windows"),
    "a whole strip": lambda text: decompose(text, "passage"),
    "strips that are kept": lambda text: keep(
        [{"document": 0, "text": text, "score": 0.5, "kept": False}] * 2, 0, 5
    ),
    "sentences": sentences,
    "chunks": lambda text: list(chunk(text)),
    "words of BM25": lambda text: _tokenize([text]),
    "a page of the web": page_text,
    "look-alikes": broken_up,
    "a segment's prompt": lambda text: segment_prompt(
        text, [], [Document(text)], "retrieve", 0
    ).to_string(),
    "a follow-up's prompt": lambda text: follow_up_prompt([("user", text)], text),
    "a prompt with knowledge": lambda text: knowledge_prompt(
        text, [Document(text, metadata={"title": text})]
    ),
    "a prompt of InstructRAG": lambda text: inference_prompt(
        "instruct", text, [Document(text, metadata={"title": text})]
    ),
    "a prompt for an evaluator": lambda text: evaluator_prompts.prompt_for_one(
        "direct", text, text
    ),
    "a prompt for an evaluator of several": lambda text: evaluator_prompts.prompt_for_several(
        "direct", text, [text]
    ),
    "a prompt for a judge": lambda text: judge_prompt(text, [text], [Document(text)], text),
    "a prompt for a critic": lambda text: ISSUP.prompt(Instance(text, segment=text, evidence=text)),
    "a prompt for several critiques": lambda text: joined_prompt(
        [ISREL, ISSUP, ISUSE], Instance(text, segment=text, evidence=text)
    ),
    "a prompt for pieces of evidence": lambda text: together_prompt(
        ISREL, [Instance(text, evidence=text)] * 2
    ),
    "a prompt for an answer": lambda text: writing_prompt(
        Instance(text, evidence=text), sentence=True
    ),
    "a prompt read back": lambda text: asked(Prompt(parts=(Part(text, "untrusted"),) * 4)),
    "an evaluator's verdict": lambda text: verdict("direct", text),
    "an evaluator's thoughts": lambda text: verdict("chain_of_thought", text),
    "an evaluator's verdicts": lambda text: verdicts(text, 3),
    "a judge's answer": lambda text: _read(AIMessage(text)),
    "critiques": lambda text: [aspect.read(text) for aspect in ASPECTS.values()],
    "a label": plain,
    "several labels": lambda text: read_text(SEVERAL, Outcome(AIMessage(text), None, 1)),
    "labels with probabilities": lambda text: read_text(
        relevance([Instance("q", evidence="e")] * 2),
        Outcome(logged(f"1: [Relevant]\n2: [Irrelevant]\n{text}"), None, 1),
    ),
    "a label with probabilities": lambda text: read_text(
        relevance([Instance("q", evidence="e")]), Outcome(logged(f"[Relevant]{text}"), None, 1)
    ),
    "labels in a structure": lambda text: read_structured(SEVERAL, {"label_1": text}),
    "a written answer": lambda text: _written(
        [Outcome(AIMessage(text), None, 1)], True, ["\n\n\n\n"]
    ),
    "keywords": keywords,
    "a question": lambda text: read_turn(
        {"messages": [HumanMessage([{"type": "text", "text": text}])]}
    ),
    "a demonstration's question": _plain,
    "a titled passage": lambda text: titled(Document(text, metadata={"title": text})),
    "support of a refusal": lambda text: missing_support({"answer": text, "citations": []}),
    "an answer's words": lambda text: contains_answer(text, ["a b", text]),
    "an output of training data": output_stretches,
    "tokens of training data": lambda text: list(tokens_and_texts(text)),
    "the order of tokens": order_faults,
    "a page of a run": lambda text: page(
        {
            "answer": text,
            "cited_answer": text,
            "question": text,
            "notes": [text],
            "passages": [Document(text, metadata={"title": text, "source": text})],
            "citations": [],
        }
    ),
    "a page of a rationale": lambda text: page(
        {
            "answer": "x",
            "rationale": text,
            "question": "q",
            "numbering": [0],
            "passages": [Document(text)],
            "citations": [],
        }
    ),
}


def repeated(unit: str, begin: str = "", end: str = "") -> Callable[[int], str]:
    return lambda n: begin + unit * ((n - len(begin) - len(end)) // len(unit)) + end


UNITS = [
    " ",
    "\n",
    "\t",
    "\xa0",
    "\u200b",
    "\u0301",
    "\x00",
    "a",
    "A",
    "1",
    "0",
    "=",
    "_",
    "-",
    ".",
    "?",
    ",",
    ":",
    ";",
    "*",
    "`",
    "#",
    "|",
    "\\",
    "'",
    '"',
    "\u201c",
    "\u2019",
    "(",
    ")",
    "[",
    "]",
    "{",
    "<",
    ">",
    "\u3010",
    "\u3002",
    "\u5b57",
    "\U0001f600",
    "A. ",
    "A b. ",
    "a b. ",
    "A.\n",
    "Mr. ",
    "no. 1 ",
    "1. ",
    "1. a\n",
    "- a\n",
    "a: ",
    "a:\n",
    "A b c d e f g. ",
    "< ",
    "</",
    "<!--",
    "<script",
    "<script>",
    "<style ",
    "<a b=",
    "<a b='",
    "<div>",
    "</div>",
    "<a ",
    "<![CDATA[",
    "<?",
    "&",
    "&#",
    "&#1",
    "&amp",
    "&lt;",
    "[1",
    "[1] ",
    "[1, ",
    "[1-",
    "[[1]](",
    "[a](",
    "[^1^",
    "x[1] ",
    "[1](",
    "\u30101\u2020",
    "(1) ",
    "[Relevant",
    "[Fully supported]",
    "<paragraph>",
    "(a",
    "((",
    "'a",
    "a' ",
    '"a" ',
    '"a. ',
    "\u201ca\u201d ",
    "a, ",
    "a; ",
    "a - ",
    ", and ",
    "a b ",
    "ab ",
    "a-b ",
    "a'b ",
    "not ",
    "n't ",
    "no ",
    "yes ",
    "yes\n",
    "1: yes\n",
    "yes, no. ",
    "so ",
    "thus ",
    "I ",
    "it ",
    "the ",
    "is ",
    "is not ",
    "and ",
    "or ",
    "of ",
    "because ",
    "in the ",
    "it is ",
    "the answer ",
    "the answer is ",
    "Answer: ",
    "Answer:\n",
    "**Answer** ",
    "the correct ",
    "I cannot find ",
    "unfortunately ",
    "the documents ",
    "the document does not ",
    "given the provided ",
    "there is no ",
    "without a ",
    "it is not ",
    "Document 1 ",
    "Document 1, ",
    "Document 1 and ",
    "Document 1: ",
    "Documents 1-999 ",
    "documents ",
    "the first document ",
    "the first and ",
    "first, ",
    "unlike Document 1 ",
    "(Document 1) ",
    "Document 1 is ",
    "because Document 1 ",
    "[Document 1 and ",
    "useful: 1, ",
    "used 1 and ",
    "used 1 (a) and ",
    "1 and ",
    "1, ",
    "A and ",
    "(A) ",
    "A: ",
    "not A. ",
    "A or ",
    "option A ",
    "probably ",
    "likely ",
    "http://",
    "http://a.b/ ",
    "file://",
    "a, http://a.b",
    "C:\\",
    "javascript:",
    "true ",
    "Emma ",
    '"Emma" ',
    '"Emma" says ',
    "`x` ",
    "```",
    "~~~",
    "``` [1] ",
    "\n\n",
    "\n ",
    " \n",
    "\r\n",
    "\u2028",
    "a\n",
    "a \n",
    "rating: ",
    "Score: [",
    "explanation ",
    "[ ",
    "* ",
    "Explanation: ",
    "## ",
    "\n##",
    "> ",
    "name: ",
    "does ",
    "I do not know. ",
    "I ",
    "et al. ",
    "e.g. ",
    "U.S. ",
    "3.5 ",
    "a.b.c ",
    "\u2026 ",
    "! ",
    "\u2019s ",
]
PATTERNS: dict[str, Callable[[int], str]] = {
    **{f"{unit!r}": repeated(unit) for unit in UNITS},
    **{f"x{unit!r}": repeated(unit, "x ", " x") for unit in UNITS},
    **{f"<{unit!r}": repeated(unit, "<", "document") for unit in (" ", "/", "|", "a")},
    **{
        f"ans{unit!r}": repeated(unit, "The answer is not in the documents ", " yes")
        for unit in (
            " ",
            "a ",
            ", ",
            "not ",
            "1 ",
            "\n",
            "the ",
            "provided ",
            "given ",
            "and ",
            "_",
            "*",
        )
    },
    **{
        f"doc{unit!r}": repeated(unit, "Document 1 ", " Document 2")
        for unit in (" ", "a ", ", ", "not ", "1 ", "\n", "the ", "and ", "_", "*", ")", "is ")
    },
}
