"""A local language model as a chat model: what it writes, and how probable it says that is."""

import math

import pytest
import torch
from nano_training.tokenizer import load_tokenizer
from nano_training.train_critic import chat_tokenizer
from transformers import LlamaForCausalLM

from selfcorrect_rag.demo import generator_path
from selfcorrect_rag.errors import PromptTooLong
from selfcorrect_rag.models.chat.classification import ChatClassifier, Classification, LabelField
from selfcorrect_rag.models.chat.transformers_chat import TransformersChat
from selfcorrect_rag.prompts.labels import LabelParser


@pytest.fixture(scope="module")
def chat() -> TransformersChat:
    tokenizer = chat_tokenizer(load_tokenizer(generator_path()))
    model = LlamaForCausalLM.from_pretrained(generator_path(), dtype=torch.float32)
    return TransformersChat(model, tokenizer, max_tokens=8)


def test_it_writes_what_the_model_does(chat: TransformersChat) -> None:
    written = chat.invoke("Repeat: blue whales")
    inputs = chat._tokenizer("Repeat: blue whales\n", return_tensors="pt")
    made = chat._model.generate(**inputs, do_sample=False, max_new_tokens=8)
    expected = chat._tokenizer.decode(made[0, inputs["input_ids"].shape[1] :], True)
    assert written.text == expected
    assert written.usage_metadata is not None
    assert written.usage_metadata["input_tokens"] == inputs["input_ids"].shape[1]
    assert "logprobs" not in written.response_metadata


def test_log_probabilities_are_the_models(chat: TransformersChat) -> None:
    told = chat.invoke("Repeat: blue", logprobs=True, top_logprobs=5).response_metadata["logprobs"]
    first = told["content"][0]
    inputs = chat._tokenizer("Repeat: blue\n", return_tensors="pt")
    with torch.no_grad():
        expected = chat._model(**inputs).logits[0, -1].log_softmax(-1).topk(5).values
    tops = [top["logprob"] for top in first["top_logprobs"]]
    assert tops == pytest.approx(expected.tolist(), abs=1e-4)
    assert first["logprob"] == pytest.approx(tops[0])
    assert all(math.exp(top["logprob"]) <= 1 for top in first["top_logprobs"])


def test_it_is_asked_by_log_probabilities(chat: TransformersChat) -> None:
    classifier = ChatClassifier(chat, max_concurrency=1)
    classifier.classify([Classification("Is it so?", (LabelField(LabelParser(("yes", "no"))),))])
    assert classifier.mode == "logprobs"


def test_what_it_cannot_do_is_said(chat: TransformersChat) -> None:
    with pytest.raises(ValueError, match="takes no temperature"):
        chat.invoke("a", temperature=0.5)
    with pytest.raises(ValueError, match="takes no extra_body"):
        chat.invoke("a", extra_body={})
    with pytest.raises(PromptTooLong, match="of at most 2048"):
        chat.invoke("a " * 2100)
