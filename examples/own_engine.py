"""Self-RAG on a custom engine, here `generate` of transformers: own_engine.py MODEL "question".

MODEL is a folder or a hub name of a Self-RAG checkpoint.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models import Completion, Engine, EngineReflectionLLM, Request
from selfcorrect_rag.search.demo import demo_index


class OwnEngine(Engine):
    def __init__(self, name_or_path: Any) -> None:
        self.model: Any = AutoModelForCausalLM.from_pretrained(name_or_path, dtype="float32")
        self.context_tokens = self.model.config.max_position_embeddings

    async def complete(self, prompts: Sequence[Sequence[int]], request: Request) -> Any:
        return [await asyncio.to_thread(self.one, prompt, request) for prompt in prompts]

    def one(self, prompt: Sequence[int], request: Request) -> Completion:
        ends = [self.model.generation_config.eos_token_id, *request.stop_ids]
        how: dict[str, Any] = {"max_new_tokens": request.max_tokens, "eos_token_id": ends}
        if (allowed := request.allowed_ids) is not None:
            how["prefix_allowed_tokens_fn"] = lambda row, ids: list(allowed)
        how |= {"output_logits": True, "return_dict_in_generate": True, "pad_token_id": 0}
        made = self.model.generate(torch.tensor([prompt]), do_sample=False, **how)
        ids = made.sequences[0, len(prompt) :].tolist()
        each = zip(ids, (logits[0].log_softmax(-1) for logits in made.logits), strict=True)
        logprobs = [{j: float(row[j]) for j in (i, *request.logprob_ids)} for i, row in each]
        return Completion(ids, logprobs, "stop" if ids[-1] in ends else "length")


if __name__ == "__main__":
    model, question = sys.argv[1:]
    with EngineReflectionLLM.from_engine(OwnEngine(model), model) as llm:
        graph = create_self_rag(llm, demo_index().as_retriever(k=5))
        print(graph.invoke({"question": question})["cited_answer"])
