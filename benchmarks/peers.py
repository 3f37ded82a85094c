"""Compare the graphs with short programs that do the same work: ``python -m benchmarks.peers``.

crag_t5, crag_instant    a CRAG of 50 lines on LangGraph, with a random evaluator of one layer in
                         T5-small's sizes and with one that takes no time, against ``create_crag``
self_rag_generate        transformers' ``generate``, passage by passage, against
                         ``create_self_rag``, with a random Llama; 40 tokens for each of 5 passages
rss_mb                   largest memory of the process after each tenth of CRAG's questions, asked
                         before all others; oneDNN multiplies the evaluator's matrices, as PyTorch
                         does by itself on a CPU with bfloat16

The first three are the program's CPU time over the graph's, the median over the questions, asked in
turn: above 1 the graph is faster. PopQA's questions, from ../shared/data. One line of JSON.
"""

import argparse
import json
import operator
import re
import resource
import sys
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from statistics import median
from typing import Annotated, Any

from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from torch.utils import mkldnn
from typing_extensions import TypedDict

from benchmarks import documents
from benchmarks.grading import SMALL, random_model, trained_tokenizer
from benchmarks.vllm import SHORT, llama, questions, random_llama
from reader_training.rows import DATA, lines
from selfcorrect_rag import create_crag, create_self_rag
from selfcorrect_rag.models import T5Evaluator, TransformersReflectionLLM
from selfcorrect_rag.prompts.self_rag import segment_prompt
from tests.crag_runs import WordEvaluator
from tests.scripted import echo

PASSAGES, STRIPS, TOKENS = 5, 5, 40


class State(TypedDict, total=False):
    """The state of the CRAG below."""

    question: str
    documents: list[Document]
    knowledge: Annotated[list[str], operator.add]
    answer: str


def crag_by_hand(llm: Any, evaluator: Any, search: Callable[[str], list[Document]]) -> Any:
    """Build CRAG as one writes it for oneself: grade, keep the best strips, search, answer."""

    def strips(question: str, found: list[Document]) -> list[str]:
        texts = []
        for document in found:
            sentences = re.split(r"(?<=[.!?])\s+", document.page_content)
            groups = [sentences[i : i + 3] for i in range(0, len(sentences), 3)]
            texts += [f"{document.metadata['title']}\n{' '.join(group)}" for group in groups]
        scored = sorted(zip(evaluator.score(question, texts), texts, strict=True), reverse=True)
        return [text for score, text in scored[:STRIPS] if score > -0.5]

    def grade(state: State) -> Command[Any]:
        texts = [f"{d.metadata['title']}\n{d.page_content}" for d in state["documents"]]
        scores = evaluator.score(state["question"], texts)
        if max(scores) > evaluator.thresholds.upper:
            return Command(goto="refine")
        if max(scores) < evaluator.thresholds.lower:
            return Command(goto="search")
        return Command(goto=["refine", "search"])

    def refine(state: State) -> State:
        return {"knowledge": strips(state["question"], state["documents"])}

    def search_web(state: State) -> State:
        return {"knowledge": strips(state["question"], search(state["question"]))}

    def write(state: State) -> State:
        prompt = "\n\n".join([*state["knowledge"], state["question"]])
        return {"answer": llm.invoke([HumanMessage(prompt)])}

    graph = StateGraph(State)
    for name, node in {"grade": grade, "refine": refine, "search": search_web}.items():
        graph.add_node(name, node)
    graph.add_node("write", write)
    graph.add_edge(START, "grade")
    graph.add_edge("refine", "write")
    graph.add_edge("search", "write")
    graph.add_edge("write", END)
    return graph.compile()


def ratio(graph: Any, peer: Any, asked: Sequence[Any], context: Any = None) -> float:
    """Ask graph and peer in turn; return the peer's CPU time over the graph's. The peer is a graph,
    or a function of the question and of the graph's result."""
    found = []
    for given in asked:
        result, ours = cpu(lambda: graph.invoke(given, context=context))  # noqa: B023
        own = partial(peer, given, result) if callable(peer) else partial(peer.invoke, given)
        found.append(cpu(own)[1] / ours)
        print(f"{found[-1]:.2f}", end=" ", file=sys.stderr, flush=True)
    return round(median(found[1:]), 2)  # the first warms up


def cpu(run: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and its seconds of CPU time."""
    started = time.process_time()
    return run(), time.process_time() - started


def generate_by_passage(model: Any, tokenizer: Any, given: Any, result: Any) -> None:
    """Write as many tokens for each passage as the graph did on average."""
    count = max(1, result["usage"]["generated_tokens"] // PASSAGES)
    for step in range(PASSAGES):
        prompt = segment_prompt(given["question"], [], given["documents"], "retrieve", step)
        ids = tokenizer(prompt.to_string(), return_tensors="pt", add_special_tokens=False)
        fixed = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False}
        model.generate(**ids, **fixed, output_logits=True, return_dict_in_generate=True)


def memory(graph: Any, asked: Sequence[Any], count: int) -> list[int]:
    """Ask so many questions; return the process's largest memory in MB after each tenth."""
    found = []
    for n in range(count):
        graph.invoke(asked[n % len(asked)])
        if not (n + 1) % (count // 10):
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            found.append(most // (1024 if sys.platform != "darwin" else 1024**2))
            print(f"{n + 1} questions: {found[-1]} MB", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--crag", type=int, default=1000, help="questions of which memory is read")
    args = parser.parse_args()
    rows = [*lines(DATA / "popqa_dev_741.jsonl")]
    pages = documents((p["title"], p["text"]) for row in rows for p in row["paragraphs"])
    asked: list[Any] = [
        {"question": row["question"], "documents": pages[2 * n : 2 * n + PASSAGES]}
        for n, row in enumerate(rows)
    ]
    tokenizer = trained_tokenizer([page.page_content for page in pages])
    model = random_model({**SMALL, "num_layers": 1}, len(tokenizer))
    t5 = T5Evaluator(model, tokenizer)
    untyped: Any = mkldnn
    report: dict[str, Any] = {"benchmark": "peers", "questions": args.questions}
    by_onednn = T5Evaluator(untyped.to_mkldnn(deepcopy(model)), tokenizer)
    crag = create_crag(echo(), None, by_onednn, lambda query: pages[:PASSAGES])
    report["rss_mb"] = memory(crag, asked, args.crag)
    for name, evaluator in {"t5": t5, "instant": WordEvaluator()}.items():
        parts = (echo(), evaluator, lambda query: pages[:PASSAGES])
        graph = create_crag(parts[0], None, *parts[1:])
        report[f"crag_{name}"] = ratio(graph, crag_by_hand(*parts), asked[: args.questions + 1])
    random, words = random_llama(llama(576, 1536, 4, 9, 3))
    peer, short = partial(generate_by_passage, random, words), {**SHORT, "segment_tokens": TOKENS}
    short_passages = questions(args.questions + 1)
    with TransformersReflectionLLM.from_model(random, words) as llm:
        self_rag = create_self_rag(llm, None)
        report["self_rag_generate"] = ratio(self_rag, peer, short_passages, short)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
