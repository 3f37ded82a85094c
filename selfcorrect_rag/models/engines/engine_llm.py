"""A ReflectionLLM over any engine: turns prompts into requests and completions into segments."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from langchain_core.outputs import GenerationChunk
from pydantic import PrivateAttr

from selfcorrect_rag.models.engines.engine import Completion, Engine, EngineRunner, Request
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer, Encoded
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.prompts.parts import Prompt, prompt_of
from selfcorrect_rag.reflection import GROUP_OF, TOKENS, Group, Reflection
from selfcorrect_rag.state import Segment

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class EngineReflectionLLM(ReflectionLLM):
    """A ReflectionLLM whose engine batches concurrent calls.

    Sync and async calls from any thread and any event loop run on one background loop; a cancelled
    call is cancelled in the engine. Close it when done, or use it in a ``with`` block.
    """

    _kind: ClassVar[str] = "engine"
    _runner: EngineRunner = PrivateAttr()
    _tokenizer: ControlledTokenizer = PrivateAttr()

    @classmethod
    def from_engine(
        cls,
        engine: Engine,
        tokenizer: "PreTrainedTokenizerBase | ControlledTokenizer | str | Path",
        **options: Any,
    ) -> Self:
        """Make an LLM of an engine, which is opened here and closed with the LLM.

        Args:
            engine: not open yet.
            tokenizer: the model's tokenizer, loaded, or its folder or hub name. Its vocabulary must
                have the reflection tokens (NotAReflectionModel).
            options: fields of this class.
        """
        llm = cls(**options)
        if isinstance(tokenizer, str | Path):
            tokenizer = ControlledTokenizer.from_pretrained(tokenizer)
        elif not isinstance(tokenizer, ControlledTokenizer):
            tokenizer = ControlledTokenizer(tokenizer)
        llm._tokenizer, llm._runner = tokenizer, EngineRunner(engine)
        return llm

    @property
    def _llm_type(self) -> str:
        return f"{self._kind}-reflection"

    @property
    def context_tokens(self) -> int | None:
        """The model's context length in tokens, if the engine knows it."""
        return self._runner.engine.context_tokens

    def get_token_ids(self, text: str) -> list[int]:
        """Return the ids of a prompt, including what the tokenizer puts before every text."""
        return self._tokenizer.encode([prompt_of(text)])[0].ids

    def close(self) -> None:
        """Close the engine and free its memory; running calls fail. May be repeated."""
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        return self._runner.run(self._write(prompts, **options))

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        return await self._runner.arun(self._write(prompts, **options))

    async def _write(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        encoded, request = self._request(prompts, **options)
        completions = await self._runner.complete([each.ids for each in encoded], request)
        pairs = zip(encoded, completions, strict=True)
        return [self._segment(each, completion, request) for each, completion in pairs]

    def _request(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        choose: str | None = None,
        stop_at_retrieval: bool = False,
        prune_below: float | None = None,  # ignored
        critique: bool = False,  # always part of the generated text
        **sampling: Any,
    ) -> tuple[list[Encoded], Request]:
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
        limit = self.context_tokens
        if limit is not None:
            max_tokens = min(max_tokens, limit // 2)  # half is left to the prompt
            limit -= max_tokens
        request = Request(
            max_tokens=max_tokens,
            logprob_ids=list(self._tokenizer.reflection_tokens),
            stop_ids=self._group_ids(Group.RETRIEVE) if stop_at_retrieval and not choose else (),
            stop=tuple(filter(None, stop)),
            allowed_ids=self._group_ids(choose) if choose else None,
            sampling=sampling,
        )
        return self._tokenizer.encode(prompts, limit), request

    def _group_ids(self, group: str) -> list[int]:
        return [self._tokenizer.control_ids[token] for token in TOKENS[group]]

    def _segment(self, encoded: Encoded, completion: Completion, request: Request) -> Segment:
        ids, finish_reason = list(completion.ids), str(completion.finish_reason)
        tokenizer, pairs = self._tokenizer, list(zip(ids, completion.logprobs, strict=True))
        reflections, tokens = [], tokenizer.reflection_tokens
        for at, (token_id, by_id) in enumerate(pairs):
            if token := tokens.get(token_id):
                group = GROUP_OF[token]
                given = {each: by_id[tokenizer.control_ids[each]] for each in TOKENS[group]}
                reflections.append(
                    Reflection(group=group, position=at, token=token, logprobs=given)
                )
        text, following = tokenizer.text(ids), None
        place = _stop_place(text, request.stop)
        if place < len(text):
            finish_reason = "stop"
        elif finish_reason == "stop" and ids[-1] in request.stop_ids:
            finish_reason, following = "retrieval", reflections.pop()
            ids.pop()
        elif finish_reason == "stop" and not (request.stop and tokenizer.pieces(ids[-1:])):
            # It may be a further end id of the checkpoint. With stop strings, an engine may see a
            # space before the text that is not shown here.
            finish_reason = "end"
            text = tokenizer.text(ids[:-1])
            ids.pop()
        return Segment(
            text=text[:place].strip(),
            pieces=tokenizer.pieces(ids),
            reflections=reflections,
            next=following,
            finish_reason=finish_reason,  # type: ignore[typeddict-item]
            tokens=len(pairs),
            logprob=sum((by_id[i] for i, by_id in pairs), 0.0),
            prompt_tokens=len(encoded.ids),
            shortened=encoded.shortened,
            requests=0,
        )

    def _stream(
        self, prompt: str, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[GenerationChunk]:
        texts = self._texts(prompt, stop, kwargs)  # freeing it closes it, on the engine's loop
        while (text := self._runner.run(_next(texts))) is not None:
            chunk = GenerationChunk(text=text)
            if run_manager and text:
                run_manager.on_llm_new_token(text, chunk=chunk)
            yield chunk

    async def _astream(
        self, prompt: str, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[GenerationChunk]:
        texts = self._texts(prompt, stop, kwargs)
        while (text := await self._runner.arun(_next(texts))) is not None:
            chunk = GenerationChunk(text=text)
            if run_manager and text:
                await run_manager.on_llm_new_token(text, chunk=chunk)
            yield chunk

    async def _texts(
        self, prompt: str, stop: list[str] | None, options: dict[str, Any]
    ) -> AsyncGenerator[str, None]:
        """Yield the text of ``invoke`` as it comes: stripped, and cut at a stop string."""
        options = {"max_tokens": self.max_tokens, **options, "stop": stop or ()}
        (encoded,), request = self._request([prompt_of(prompt)], **options)
        held = max(map(len, request.stop), default=1) - 1  # an end may begin a stop string
        ids, text, shown = list[int](), "", 0
        async with aclosing(self._runner.stream(encoded.ids, request)) as stream:
            async for more in stream:
                ids += more
                text = self._tokenizer.text(ids)
                if _stop_place(text, request.stop) < len(text):
                    break
                # A character may lack its last bytes.
                ready = text[: max(0, len(text) - held)].rstrip("\ufffd").strip()[shown:]
                if ready:
                    yield ready
                    shown += len(ready)
        # It may be empty: LangChain treats a stream without chunks as a failure.
        yield text[: _stop_place(text, request.stop)].strip()[shown:]


async def _next(texts: AsyncGenerator[str, None]) -> str | None:
    """Return the next text, None at the end; begun here, so that the engine's loop owns it."""
    return await anext(texts, None)


def _stop_place(text: str, stop: Sequence[str]) -> int:
    """Return the place where the first stop string begins; the text's length without one."""
    return min((text.find(string) for string in stop if string in text), default=len(text))
