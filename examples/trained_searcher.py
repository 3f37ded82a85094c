"""A model that was trained to search, here a script in its place, on the demo corpus."""

from typing import Any

from langchain_core.language_models import BaseLLM
from langchain_core.language_models.fake import FakeListLLM

from selfcorrect_rag import create_search_r1
from selfcorrect_rag.search.demo import demo_index

SCRIPT = [
    "<think> I do not know that. </think>\n<search> who discovered penicillin </search>",
    "<think> The first passage says it. </think>\n<answer> Alexander Fleming </answer>",
]


def main(question: str, llm: BaseLLM | None = None) -> None:
    # A trained one, from `vllm serve PeterJinGo/SearchR1-nq_hotpotqa_train-qwen2.5-7b-em-ppo`:
    # OpenAI(model=..., base_url="http://localhost:8000/v1", api_key="-", max_tokens=500), with
    # its chat template as the third argument below.
    model = llm or FakeListLLM(responses=SCRIPT)
    graph: Any = create_search_r1(model, demo_index().as_retriever(3))
    result: Any = {}
    for mode, part in graph.stream({"question": question}, stream_mode=["custom", "values"]):
        if mode == "values":
            result = part
        elif part["event"] == "turn_written":
            print(part["text"])
        elif part["event"] == "retrieved":
            print("read:", part["passages"])
    print("answered:", result["cited_answer"], [each["title"] for each in result["citations"]])


if __name__ == "__main__":
    main("Who discovered penicillin?")
