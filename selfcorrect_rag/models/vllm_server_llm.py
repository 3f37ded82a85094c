"""ReflectionLLM on an OpenAI-compatible vLLM server, spoken to in token ids."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field, PrivateAttr, SecretStr
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from selfcorrect_rag.errors import EngineFailed, ModelNotFound, NotAReflectionModel
from selfcorrect_rag.extras import require
from selfcorrect_rag.models.background import BackgroundLoop
from selfcorrect_rag.models.engine_llm import Completion, EngineReflectionLLM, Request
from selfcorrect_rag.models.tokens import ControlledTokenizer
from selfcorrect_rag.reflection import CONTROL_TOKENS

if TYPE_CHECKING:
    import httpx

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers of a server that is starting, busy or on its way down."""
TOKEN_ID = "token_id:"
"""What vLLM puts before an id where it stands for a token."""


class Unavailable(EngineFailed):
    """The server could not be reached, or asked for patience."""


class VLLMServerReflectionLLM(EngineReflectionLLM):
    """Runs a Self-RAG checkpoint that a vLLM server (0.27 or newer) serves.

    Prompts go out as token ids, so that text can forge nothing on the way, and one call's prompts
    as one HTTP request. The connection is checked when this is made: that vLLM answers, that it
    gives the log-probabilities of chosen ids, and that its vocabulary is the tokenizer's.

    Raises:
        MissingExtra: httpx or transformers is not installed.
        EngineFailed: no server answers, it refuses the key, or it is not (or too old a) vLLM.
        ModelNotFound: the server has no such model, or its tokenizer is not at hand.
        NotAReflectionModel: the vocabulary lacks reflection tokens.
    """

    base_url: str
    """Where the server listens, such as ``http://localhost:8000``, with or without ``/v1``."""
    model: str = ""
    """The model's name on the server; its first model by default."""
    tokenizer: str = ""
    """Folder or hub name of the model's tokenizer; by default where the server has the model."""
    api_key: SecretStr | None = None
    timeout: float = Field(default=300.0, gt=0)
    """Seconds to wait for one answer."""
    patience: float = Field(default=60.0, ge=0)
    """Seconds to go on trying while the server is away, restarting or busy."""

    _client: "httpx.AsyncClient" = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Connect to the server and check it."""
        httpx = require("httpx", "vllm-server")
        require("transformers", "vllm-server")
        key = self.api_key.get_secret_value() if self.api_key else None
        self._loop = BackgroundLoop("vllm-server")
        self._client = httpx.AsyncClient(
            base_url=self.base_url.rstrip("/").removesuffix("/v1"),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(self.timeout, connect=10.0),
            limits=httpx.Limits(max_connections=self.in_flight),
        )
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    @property
    def _llm_type(self) -> str:
        return "vllm-server-reflection"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model, "base_url": self.base_url}

    def close(self) -> None:
        """Close the connections; running calls are cancelled. May be repeated."""
        if not self._client.is_closed:
            self._loop.run(self._client.aclose())
        super().close()

    def _connect(self) -> None:
        cards = self._loop.run(self._ask("GET", "/v1/models")).get("data", [])
        card = next((c for c in cards if self.model in ("", c.get("id"))), None)
        if card is None:
            names = ", ".join(str(c.get("id")) for c in cards) or "no model"
            raise ModelNotFound(f"{self.base_url} serves {names}, not {self.model}")
        if "max_model_len" not in card:
            raise EngineFailed(
                f"{self.base_url} is no vLLM server: its models name no max_model_len"
            )
        self.model = card["id"]
        self.tokenizer = self.tokenizer or card.get("root") or card["id"]
        try:
            controlled = ControlledTokenizer.from_pretrained(self.tokenizer, "vllm-server")
        except ModelNotFound as error:
            raise ModelNotFound(
                f"{error}; the server has it elsewhere: give its folder or hub name as tokenizer"
            ) from error
        self._begin(controlled, int(card["max_model_len"]))
        self._loop.run(self._check())

    async def _check(self) -> None:
        """Ask for one token, which shows an old server, and for the ids of the control tokens."""
        ids = list(self._tokenizer.control_ids.values())
        answer = await self._ask(
            "POST", "/tokenize", {"prompt": "".join(CONTROL_TOKENS), "add_special_tokens": False}
        )
        if [i for i in answer.get("tokens", []) if i in ids] != ids:
            raise NotAReflectionModel(
                f"{self.base_url} has other ids for the reflection tokens than the tokenizer of "
                f"{self.tokenizer}: give the tokenizer of the model that it serves"
            )
        request = Request(max_tokens=1, logprob_ids=self._reflection_ids.all)
        try:
            completions = await self._complete([[ids[0]]], request)
            given = set(completions[0].logprobs[0])
        except (KeyError, IndexError, TypeError, ValueError):
            given = set()
        if not set(self._reflection_ids.all) <= given:
            raise EngineFailed(
                f"{self.base_url} gives no log-probabilities of chosen ids (logprob_token_ids): "
                "vLLM 0.27 and newer do"
            )

    async def _complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        answer = await self._ask("POST", "/v1/completions", self._body(prompts, request))
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        return [_completion(choice) for choice in choices]

    async def _deltas(self, prompt: Sequence[int], request: Request) -> AsyncIterator[str]:
        import httpx

        body = {**self._body([prompt], request), "stream": True, "skip_special_tokens": True}
        try:
            async with (
                self._places.take(1),
                self._client.stream("POST", "/v1/completions", json=body) as response,
            ):
                if response.is_error:
                    await response.aread()
                    raise self._failure(response)
                async for line in response.aiter_lines():
                    data = line.removeprefix("data:").strip()
                    if line.startswith("data:") and data != "[DONE]":
                        for choice in json.loads(data)["choices"]:
                            yield choice["text"]
        except httpx.TransportError as error:  # what was streamed cannot be taken back: no retry
            raise EngineFailed(f"{self.base_url} broke off a stream: {error!r}") from error

    def _body(self, prompts: Sequence[Sequence[int]], request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": [list(prompt) for prompt in prompts],
            "max_tokens": request.max_tokens,
            "logprobs": 1,
            "logprob_token_ids": list(request.logprob_ids),
            "return_tokens_as_token_ids": True,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "stop_token_ids": list(request.stop_ids),
            **request.sampling,
        }
        if request.stop:
            body["stop"] = list(request.stop)
        if request.allowed_ids is not None:
            body["allowed_token_ids"] = list(request.allowed_ids)
        return body

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The server's answer as JSON, however often it takes to get one within the patience."""
        connected = hasattr(self, "_tokenizer")
        attempts = AsyncRetrying(
            stop=stop_after_delay(self.patience if connected else 0),
            wait=wait_random_exponential(multiplier=0.25, max=4),
            retry=retry_if_exception_type(Unavailable),
            reraise=True,
        )
        async for attempt in attempts:
            with attempt:
                return await self._ask_once(method, path, body)
        return None  # cannot come to this: the last attempt returns or raises

    async def _ask_once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        import httpx

        try:
            response = await self._client.request(method, path, json=body)
        except httpx.TimeoutException as error:
            if isinstance(error, httpx.ReadTimeout):
                raise EngineFailed(
                    f"{self.base_url} gave no answer within {self.timeout:g} s: raise timeout"
                ) from error
            raise Unavailable(f"{self.base_url} does not answer: {error!r}") from error
        except httpx.TransportError as error:
            raise Unavailable(
                f"no vLLM server answers at {self.base_url} ({error}): start one with "
                "`python -m vllm.entrypoints.openai.api_server --model ...`"
            ) from error
        if response.is_error:
            raise self._failure(response)
        try:
            return response.json()
        except ValueError as error:
            raise EngineFailed(f"{self.base_url}{path} did not answer in JSON") from error

    def _failure(self, response: "httpx.Response") -> EngineFailed:
        status = response.status_code
        if status in (401, 403):
            return EngineFailed(f"{self.base_url} refuses the API key (HTTP {status})")
        try:
            answer = response.json()
            reason = (answer.get("error") or answer).get("message", "")
        except (ValueError, AttributeError):
            reason = response.text[:200]
        kind = Unavailable if status in RETRIED else EngineFailed
        return kind(f"{response.url} answered HTTP {status}: {reason}")


def _completion(choice: Mapping[str, Any]) -> Completion:
    logprobs = choice["logprobs"]
    return Completion(
        ids=choice["token_ids"],
        logprobs=[
            {int(key.removeprefix(TOKEN_ID)): value for key, value in step.items()}
            for step in logprobs["top_logprobs"]
        ],
        finish_reason=choice["finish_reason"],
        stop_reason=choice.get("stop_reason"),
    )
