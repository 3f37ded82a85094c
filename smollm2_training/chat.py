"""SmolLM2-Instruct as a chat model on transformers, for `selfcorrect-rag train rationales` and
graphs: ``--set model=smollm2_training.chat:open_model``.

Prompts that arrive together are decoded together, so at most ``max_concurrency`` of them; on two
cores eight, the default, take hardly longer than one.
"""

import os
import queue
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_openai_messages
from langchain_core.runnables import Runnable, RunnableLambda

from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.models.checkpoints import load_language_model, resolve_device
from selfcorrect_rag.models.engines.engine import EngineRunner, Request
from selfcorrect_rag.models.engines.transformers import TransformersEngine

FOLDER = "SMOLLM2_CHAT"
"""The variable of the environment that names the model's folder."""
MAX_TOKENS = 160
"""Most tokens of an answer; a rationale that is longer is cut, and its row left out."""
GATHER_SECONDS = 0.05
"""Time in which prompts gather for a batch."""


def open_model() -> Runnable[Any, Any]:
    """Load the model; EngineFailed if it has no chat template."""
    device, dtype = resolve_device(None)
    model, tokenizer = load_language_model(os.environ.get(FOLDER, "build/smollm2/base"), dtype)
    if tokenizer.chat_template is None:
        raise EngineFailed(
            f"{tokenizer.name_or_path} has no chat template; give an instruct model in {FOLDER}"
        )
    engine = TransformersEngine(model.to(device), eos_id=tokenizer.eos_token_id)
    return RunnableLambda(Batcher(EngineRunner(engine), tokenizer).answer)


class Batcher:
    """Answers prompts of many threads in batches."""

    def __init__(self, runner: EngineRunner, tokenizer: Any) -> None:
        self._runner, self._tokenizer = runner, tokenizer
        self._waiting: queue.Queue[tuple[Any, Future[AIMessage]]] = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()

    def answer(self, prompt: str | list[BaseMessage]) -> AIMessage:
        """Return the answer to a user's message, or to several messages."""
        answered: Future[AIMessage] = Future()
        messages = [HumanMessage(prompt)] if isinstance(prompt, str) else prompt
        self._waiting.put((convert_to_openai_messages(messages), answered))
        return answered.result()

    def _work(self) -> None:
        while True:
            batch = [self._waiting.get()]
            time.sleep(GATHER_SECONDS)
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            try:
                made = self._complete([messages for messages, _ in batch])
            except BaseException as error:  # each caller gets it
                for _, answered in batch:
                    answered.set_exception(error)
                continue
            for (_, answered), message in zip(batch, made, strict=True):
                answered.set_result(message)

    def _complete(self, asked: list[Any]) -> list[AIMessage]:
        read = partial(
            self._tokenizer.apply_chat_template, add_generation_prompt=True, return_dict=True
        )
        ids = [read(messages)["input_ids"] for messages in asked]
        request = Request(max_tokens=MAX_TOKENS, logprob_ids=())
        made = self._runner.run(self._runner.complete(ids, request))
        return [
            AIMessage(
                self._tokenizer.decode(each.ids, skip_special_tokens=True).strip(),
                response_metadata={"finish_reason": each.finish_reason},
            )
            for each in made
        ]
