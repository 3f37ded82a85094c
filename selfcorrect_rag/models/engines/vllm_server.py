"""A client of a vLLM server, by token ids over HTTP."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import Field, SecretStr

from selfcorrect_rag.errors import EngineFailed, ModelNotFound, NotAReflectionModel, require
from selfcorrect_rag.models.engines.engine import Completion, Engine, EngineUnavailable, Request
from selfcorrect_rag.models.engines.engine_llm import EngineReflectionLLM
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer

if TYPE_CHECKING:
    import httpx

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses of a server that is starting, busy or shutting down."""
TOKEN_ID = "token_id:"
"""The prefix of token ids in vLLM's log-probabilities."""


class VLLMServerReflectionLLM(EngineReflectionLLM):
    """Runs a Self-RAG checkpoint that a vLLM server (0.27 or newer) serves.

    Prompts are sent as token ids, so that text cannot forge control tokens, and one call's prompts
    as one HTTP request. The constructor checks that the server has the tokenizer's vocabulary.

    Raises:
        MissingExtra: httpx or transformers is not installed.
        EngineFailed: no server answers, it refuses the key, or it is not vLLM.
        ModelNotFound: the server has no such model, or its tokenizer is not found.
        NotAReflectionModel: the vocabulary lacks reflection tokens.
    """

    base_url: str
    """The server's address, such as ``http://localhost:8000``, with or without ``/v1``."""
    model: str = ""
    """The model's name on the server; its first model by default."""
    tokenizer: str = ""
    """Folder or hub name of the model's tokenizer; by default the model's path on the server."""
    api_key: SecretStr | None = None
    timeout: float = Field(default=300.0, gt=0)
    """Seconds to wait for one answer."""

    def model_post_init(self, context: Any, /) -> None:
        require("transformers", "transformers")
        key = self.api_key.get_secret_value() if self.api_key else ""
        engine = VLLMServerEngine(self.base_url, model=self.model, key=key, timeout=self.timeout)
        self._start(engine)
        try:
            self.model, self.tokenizer = engine.model, self.tokenizer or engine.root
            self._use_tokenizer(ControlledTokenizer.from_pretrained(self.tokenizer))
            control = self._tokenizer.control_ids
            given = self._runner.run(engine.tokenize("".join(control)))
            if [i for i in given if i in control.values()] != list(control.values()):
                raise NotAReflectionModel(
                    f"{self.base_url} has other ids for the reflection tokens than the tokenizer "
                    f"of {self.tokenizer}: give the tokenizer of the model that it serves"
                )
        except ModelNotFound as error:
            self.close()
            raise ModelNotFound(
                f"{error}; if the server has it elsewhere, give its folder or hub name as tokenizer"
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def _llm_type(self) -> str:
        return "vllm-server-reflection"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model, "base_url": self.base_url}


class VLLMServerEngine(Engine):
    """A vLLM server's OpenAI-compatible API."""

    def __init__(
        self, base_url: str, *, model: str = "", key: str = "", timeout: float = 300.0
    ) -> None:
        """Make the client, without connecting; see the fields of :class:`VLLMServerReflectionLLM`.
        EngineFailed if the address or the key is malformed."""
        require("httpx", "transformers")
        import httpx

        if "@" in base_url:  # traces would show the password
            raise EngineFailed("base_url holds a user: give the key as api_key instead")
        if not (key.isascii() and key.isprintable()):
            raise EngineFailed("api_key holds a line break or a character that HTTP cannot send")
        self.base_url, self.model, self.root, self._timeout = base_url, model, "", timeout
        try:
            self._client = httpx.AsyncClient(
                base_url=base_url.rstrip("/").removesuffix("/v1"),
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=httpx.Timeout(timeout, connect=10.0),
                limits=httpx.Limits(),  # the server queues
            )
        except httpx.InvalidURL as error:
            raise EngineFailed(
                f"base_url is not a URL ({error}): give one such as http://localhost:8000"
            ) from error

    async def open(self) -> None:
        """Find the model: its name, where its files are (``root``), and its context length."""
        answer = await self._ask("/v1/models")
        with self._reading():
            cards = {card["id"]: card for card in answer["data"]}
            self.model = self.model or next(iter(cards), "")
            if self.model not in cards:
                raise ModelNotFound(
                    f"{self.base_url} serves {', '.join(cards) or 'no model'}, not "
                    f"{self.model or 'any'}: give one of its names as model"
                )
            self.root = cards[self.model].get("root") or self.model
            self.context_tokens = int(cards[self.model]["max_model_len"])

    async def close(self) -> None:
        await self._client.aclose()

    async def tokenize(self, text: str) -> list[int]:
        """Return a text's ids by the server's own tokenizer."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        answer = await self._ask("/tokenize", body)
        with self._reading():
            return list(answer["tokens"])

    async def complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        answer = await self._ask("/v1/completions", self._body(prompts, request))
        with self._reading():
            choices = sorted(answer["choices"], key=lambda choice: choice["index"])
            if [choice["index"] for choice in choices] != list(range(len(prompts))):
                raise ValueError(f"{len(choices)} choices for {len(prompts)} prompts")
            return [_completion(choice) for choice in choices]

    async def stream(
        self, prompt: Sequence[int], request: Request
    ) -> AsyncGenerator[Sequence[int], None]:
        body = {**self._body([prompt], request), "stream": True}
        async with self._send("/v1/completions", body) as response:
            async for line in response.aiter_lines():
                data = line.removeprefix("data:").strip()
                if line.startswith("data:") and data != "[DONE]":
                    with self._reading():
                        new = [_delta(choice) for choice in json.loads(data)["choices"]]
                    for ids in new:
                        yield ids

    def _body(self, prompts: Sequence[Sequence[int]], request: Request) -> dict[str, Any]:
        allowed = request.allowed_ids
        return {
            "model": self.model,
            "prompt": [list(prompt) for prompt in prompts],
            "max_tokens": request.max_tokens,
            "logprobs": 1,
            "logprob_token_ids": list(request.logprob_ids),
            "return_tokens_as_token_ids": True,
            "return_token_ids": True,
            "stop_token_ids": list(request.stop_ids),
            "stop": list(request.stop),
            "allowed_token_ids": None if allowed is None else list(allowed),
            "temperature": 0.0,
            **request.sampling,
        }

    async def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        async with self._send(path, body) as response:
            await response.aread()
            with self._reading():
                return response.json()

    @asynccontextmanager
    async def _send(
        self, path: str, body: Mapping[str, Any] | None
    ) -> AsyncIterator["httpx.Response"]:
        """A response that is not an error; its body is to be read."""
        import httpx

        try:
            async with self._client.stream("POST" if body else "GET", path, json=body) as response:
                if response.is_error:
                    await response.aread()
                    raise self._refused(response)
                yield response
        except httpx.ReadTimeout as error:
            raise EngineFailed(
                f"{self.base_url} gave no answer within {self._timeout:g} s: raise timeout"
            ) from error
        except httpx.TransportError as error:  # also timeouts of connecting
            raise EngineUnavailable(
                f"no vLLM server answers at {self.base_url} ({error!r}): start one with "
                "`python -m vllm.entrypoints.openai.api_server --model ...`"
            ) from error

    def _refused(self, response: "httpx.Response") -> EngineFailed:
        status = response.status_code
        if status in (401, 403):
            return EngineFailed(f"{self.base_url} refuses the API key (HTTP {status})")
        kind = EngineUnavailable if status in RETRIED else EngineFailed
        return kind(f"{response.url} answered HTTP {status}: {response.text[:300]}")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise EngineFailed(
                f"{self.base_url} gave an answer that is not vLLM's, of 0.27 or newer ({error!r}): "
                "check its log and any proxy in between"
            ) from error


def _completion(choice: Mapping[str, Any]) -> Completion:
    if choice["finish_reason"] == "abort":
        raise EngineUnavailable("the server was stopped while it was writing: start it again")
    logprobs = [
        {int(key.removeprefix(TOKEN_ID)): float(value) for key, value in step.items()}
        for step in choice["logprobs"]["top_logprobs"]
    ]
    return Completion([int(i) for i in choice["token_ids"]], logprobs, choice["finish_reason"])


def _delta(choice: Mapping[str, Any]) -> list[int]:
    """The ids of one event of a stream, without the id that ends it."""
    ids: list[int] = choice["token_ids"]
    ended = choice["finish_reason"] == "stop" and not isinstance(choice["stop_reason"], str)
    return ids[:-1] if ended else ids
