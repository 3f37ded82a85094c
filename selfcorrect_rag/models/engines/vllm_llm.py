"""ReflectionLLM on vLLM in this process: continuous batching over all that is in flight."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field, PrivateAttr

from selfcorrect_rag.models.engines.background import together
from selfcorrect_rag.models.engines.engine_llm import Completion, EngineReflectionLLM, Request
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.models.engines.vllm_engine import VLLMEngine, require_vllm

if TYPE_CHECKING:
    from vllm import SamplingParams


class VLLMReflectionLLM(EngineReflectionLLM):
    """Runs a Self-RAG checkpoint on vLLM's asynchronous engine.

    The engine is one process more (or several, with tensor parallelism); a script that makes one
    on a machine where vLLM spawns processes, as its CPU build does, needs the usual
    ``if __name__ == "__main__":``. Passages, beams and concurrent runs share its batches.
    ``in_flight`` is by default twice what it decodes in a step, vLLM's ``max_num_seqs``.

    Raises:
        MissingExtra: vLLM is not installed.
        ModelNotFound: no checkpoint is there, or vLLM cannot run it.
        NotAReflectionModel: its vocabulary lacks reflection tokens.
        EngineFailed: memory is too small for it.
    """

    model: str
    """A folder, or a hub name such as ``selfrag/selfrag_llama2_7b``."""
    engine: dict[str, Any] = Field(default_factory=dict)
    """The engine's own options: ``tensor_parallel_size``, ``dtype``, ``max_model_len``,
    ``gpu_memory_utilization`` and all others of vLLM's ``AsyncEngineArgs``. ``max_num_seqs`` and
    ``max_num_batched_tokens``, most prompts and tokens of a step, are vLLM's for throughput."""

    _engine: VLLMEngine = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Start the engine: seconds for a small model, minutes for a large one.

        Raises:
            MissingExtra: vllm or transformers is not installed.
            NotAReflectionModel: the vocabulary lacks reflection tokens.
            ModelNotFound: no checkpoint is there, or vLLM cannot run it.
            EngineFailed: memory is too small for it.
        """
        require_vllm()
        controlled = ControlledTokenizer.from_pretrained(self.model, "vllm")  # before the engine
        self._engine = VLLMEngine(self.model, self.engine)
        self._loop = self._engine.loop
        if "in_flight" not in self.model_fields_set:
            # The next are then there when some of a step have ended.
            self.in_flight = 2 * self._engine.sequences
        self._begin(controlled, self._engine.context_tokens)

    @property
    def _llm_type(self) -> str:
        return "vllm-reflection"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model, **self.engine}

    def close(self) -> None:
        """End the engine's processes and free its memory; running calls fail. May be repeated."""
        self._engine.close()

    async def _complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        from vllm.sampling_params import RequestOutputKind

        params = _sampling_params(request)
        params.output_kind = RequestOutputKind.FINAL_ONLY
        params.detokenize = bool(request.stop)  # only stop strings need the engine to read text
        return await together(self._one(prompt, params) for prompt in prompts)

    async def _one(self, prompt: Sequence[int], params: "SamplingParams") -> Completion:
        (output,) = [output async for output in self._engine.outputs(prompt, params)]
        (completion,) = output.outputs
        wanted = params.logprob_token_ids
        return Completion(
            ids=completion.token_ids,
            logprobs=[
                # Most tokens are text, of which only their own log-probability is of use.
                {i: step[i].logprob for i in (wanted if token_id in wanted else [token_id])}
                for token_id, step in zip(completion.token_ids, completion.logprobs, strict=True)
            ],
            finish_reason=completion.finish_reason,
            stop_reason=completion.stop_reason,
        )

    async def _deltas(self, prompt: Sequence[int], request: Request) -> AsyncIterator[str]:
        from vllm.sampling_params import RequestOutputKind

        params = _sampling_params(request)
        params.output_kind = RequestOutputKind.DELTA
        async with self._places.take(1):
            async for output in self._engine.outputs(prompt, params):
                yield output.outputs[0].text


def _sampling_params(request: Request) -> "SamplingParams":
    from vllm import SamplingParams

    return SamplingParams(
        max_tokens=request.max_tokens,
        logprob_token_ids=list(request.logprob_ids),
        stop_token_ids=list(request.stop_ids),
        stop=list(request.stop),
        allowed_token_ids=None if request.allowed_ids is None else list(request.allowed_ids),
        **request.sampling,
    )
