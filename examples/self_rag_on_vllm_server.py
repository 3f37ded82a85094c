"""Self-RAG with a checkpoint that a vLLM server serves, many questions at once.

python integrations/vllm_server/serve.py selfrag/selfrag_llama2_7b   # on the GPU machine
python examples/self_rag_on_vllm_server.py http://localhost:8000 "question" "another" ...
"""

import asyncio
import sys

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models import VLLMServerReflectionLLM
from selfcorrect_rag.search.demo import demo_index
from selfcorrect_rag.state import Input


async def main(base_url: str, *questions: str) -> None:
    with VLLMServerReflectionLLM(base_url=base_url) as llm:
        graph = create_self_rag(llm, demo_index().as_retriever(k=5))
        inputs: list[Input] = [{"question": question} for question in questions]
        for result in await graph.abatch(inputs, {"max_concurrency": 64}):
            print(f"{result['question']}\n  {result['cited_answer']}")
            for citation in result["citations"]:
                print(f"  [{citation['number']}] {citation['title']} ({citation['source']})")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
