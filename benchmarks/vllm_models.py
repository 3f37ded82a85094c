"""Models and questions for the vLLM benchmark, made here from the nano generator."""

from pathlib import Path
from typing import Any

import torch
from langchain_core.documents import Document
from nano_training.tokenizer import load_tokenizer
from nano_training.world import World
from transformers import LlamaForCausalLM

from nano_training.questions import new_question
from selfcorrect_rag.demo import generator_path
from selfcorrect_rag.reflection import RETRIEVAL

VOCABULARY = 32_016
"""Of Self-RAG's Llama-2, so that log-probabilities cost what they cost there."""


def grown(folder: Path, endless: bool = False) -> Path:
    """The nano generator with a vocabulary of 32,016, of which it never writes the new part.

    ``endless`` makes it ask for more evidence wherever it would end its answer, so that a long
    form goes to its full depth.
    """
    small = LlamaForCausalLM.from_pretrained(generator_path(), dtype=torch.float32)
    tokenizer = load_tokenizer(generator_path())
    embeddings = small.model.embed_tokens.weight.detach()
    config = small.config
    config.vocab_size, config.tie_word_embeddings = VOCABULARY, False
    model = LlamaForCausalLM(config)
    state = small.state_dict()
    extra = torch.zeros(VOCABULARY - len(embeddings), embeddings.shape[1])
    state["model.embed_tokens.weight"] = torch.cat([embeddings, extra])
    head = torch.cat([embeddings, extra])  # a logit of 0, which what is written is far above
    if endless:
        retrieval = tokenizer.convert_tokens_to_ids(RETRIEVAL)
        ends = [retrieval, tokenizer.eos_token_id]
        head[ends] = head[ends[::-1]]
    state["lm_head.weight"] = head
    model.load_state_dict(state)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def questions(count: int, passages: int, seed: str = "bench") -> list[dict[str, Any]]:
    """Questions, each with one gold passage among ``passages``."""
    world = World(seed)
    inputs = []
    for _ in range(count):
        case = new_question(world, 5)
        texts = [case.gold, *(case.distractor() for _ in range(passages - 1))]
        world.random.shuffle(texts)
        documents = [Document(" ".join(t.sentences), metadata={"title": t.title}) for t in texts]
        inputs.append({"question": case.question, "documents": documents})
    return inputs
