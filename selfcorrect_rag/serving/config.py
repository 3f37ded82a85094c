"""The configuration of served graphs: one for the command line, the LangGraph server and MCP.

Each field is an option of the command line (:mod:`selfcorrect_rag.serving.options`) and a variable
of the environment: ``base_url`` is ``--base-url`` and ``SELFCORRECT_BASE_URL``.
"""

import json
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.thresholds import ANSWER_ABOVE

DEFAULT_INDEX = Path(".selfcorrect/index")
NO_INDEX = (
    f"no index at {DEFAULT_INDEX}: the demo's documents are read; "
    "selfcorrect-rag index PATH... makes one of yours"
)
"""What a command says that reads the demo corpus since nobody named an index."""
"""The folder that ``selfcorrect-rag index`` puts documents into."""
PREFIX = "SELFCORRECT_"
"""The beginning of the variables of the environment."""
API_KEY = "VLLM_API_KEY"
"""The variable with the key of a vLLM server, the one that the server itself reads."""

Engine = Literal["reader", "transformers", "vllm", "server", "chat"]


class BadOption(SelfCorrectError, ValueError):
    """An invalid option or environment variable; the message names it."""


def option(
    default: Any, description: str, group: str = "", shown: str = "", metavar: str = "", **more: Any
) -> Any:
    """A field that is an option too.

    Args:
        default: its value where it is not given.
        description: its meaning and unit, for the help.
        group: the heading of the help that it stands under.
        shown: the default as the help shows it, where that is not the value itself.
        metavar: how the help names its value.
        more: bounds, as pydantic takes them.
    """
    extra: dict[str, Any] = {"group": group, "shown": shown, "metavar": metavar}
    return Field(default, description=description, json_schema_extra=extra, **more)


GENERATOR, CORRECTION, DEMONSTRATIONS = (
    "the generator",
    "the correction (crag, self-crag)",
    "demonstrations (instruct-rag)",
)


class ServingConfig(BaseModel):
    """The models, the index and the web that graphs run on; by default the reader, offline.

    Raises:
        BadOption: a value is invalid, or the engine does not support the field.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: Path | None = option(
        None,
        "An index that `selfcorrect-rag index` made.",
        shown=f"{DEFAULT_INDEX} where it exists, else the demo corpus",
        metavar="DIR",
    )
    embeddings: str | None = option(
        None,
        "The LangChain embeddings that the index was made with, where they are your own.",
        shown="all-MiniLM-L6-v2",
        metavar="MODULE:ATTRIBUTE",
    )
    store: str | None = option(
        None,
        "A LangChain vector store or retriever of your own in place of an index, or a function "
        "that makes it.",
        shown="none",
        metavar="MODULE:ATTRIBUTE",
    )
    model: str | None = option(
        None,
        "A folder or hub name of a checkpoint with reflection tokens, such as "
        "selfrag/selfrag_llama2_7b. With --engine reader: the folder of a trained reader. With "
        "--engine server: the model's name there. With --engine chat: provider:model, such as "
        "openai:gpt-4o-mini, or module:attribute of a LangChain model of your own.",
        GENERATOR,
        shown="the engine's own: the shipped reader, the nano generator, the server's only one",
        metavar="NAME",
    )
    engine: Engine | None = option(
        None,
        "What answers: the reader, which finds answers in passages and always retrieves from an "
        "index of your own; or a model run by transformers here, by vLLM here, by a vLLM server, "
        "or by a chat model's provider, whom prompts ask for what it has no reflection tokens for.",
        GENERATOR,
        shown="reader; with --model, transformers",
    )
    answer_above: float = option(
        ANSWER_ABOVE,
        "reader: the confidence, 0 to 1, above which it states an answer; below, it says that the "
        "documents do not say.",
        GENERATOR,
        metavar="P",
        ge=0,
        le=1,
    )
    show_guess: bool = option(
        False,
        "reader: name its best guess, and the probability of that, where it states no answer.",
        GENERATOR,
        shown="off",
    )
    device: str | None = option(
        None,
        "transformers: where the model runs: cpu, cuda, cuda:1, mps.",
        GENERATOR,
        shown="the best one here",
        metavar="DEVICE",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = option(
        None,
        "transformers and vllm: type of the weights.",
        GENERATOR,
        shown="float32 on a CPU, bfloat16 elsewhere; with vllm its own",
    )
    tensor_parallel: int | None = option(
        None,
        "vllm: GPUs to split the model over.",
        GENERATOR,
        shown="1",
        metavar="N",
        ge=1,
    )
    engine_option: tuple[str, ...] = option(
        (),
        "vllm: any other of its engine arguments, such as max_model_len=4096; may be repeated.",
        GENERATOR,
        shown="vLLM's own",
        metavar="NAME=VALUE",
    )
    base_url: str = option(
        "http://localhost:8000",
        f"server: where it listens; its key is read from {API_KEY}.",
        GENERATOR,
        metavar="URL",
    )
    tokenizer: str | None = option(
        None,
        "server: folder or hub name of the model's tokenizer.",
        GENERATOR,
        shown="the server's own name for the model",
        metavar="NAME",
    )
    evaluator: str | None = option(
        None,
        "A folder or hub name of a T5 with a regression head, or of any sequence classifier with "
        "one label; or a chat model: provider:model, or module:attribute of your own.",
        CORRECTION,
        shown="the shipped one",
        metavar="NAME",
    )
    web: str | None = option(
        None,
        "What is searched where the index does not do: Tavily, with TAVILY_API_KEY of the "
        "environment; nothing; or an index that plays the web.",
        CORRECTION,
        shown="the demo's second corpus for the demo corpus, none for other indexes",
        metavar="tavily|none|DIR",
    )
    demonstrations_from: Path | None = option(
        None,
        'JSONL rows {"question": ..., "rationale": ..., "answers": [...]}, such as '
        "`train rationales` writes; rationales for --mode icl, answers for few_shot.",
        DEMONSTRATIONS,
        shown="none",
        metavar="FILE",
    )
    chat_model: str | None = option(
        None,
        "PROVIDER:MODEL, or MODULE:ATTRIBUTE of a LangChain chat model: the chat agent talks with "
        "it, crag and instruct_rag answer with it, and it rewrites queries and follow-up "
        "questions.",
        shown="the agent is a rule, and the generator answers",
        metavar="NAME",
    )

    def __init__(self, **given: Any) -> None:
        """Set the given values; the rest keep their defaults."""
        self._fill(given, option_name)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """The configuration that the variables give; an empty one gives nothing.

        Raises:
            BadOption: a variable's value is invalid.
        """
        given: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            if value := environment.get(variable(name)):
                given[name] = shlex.split(value) if field.default == () else value
        made = cls.__new__(cls)
        made._fill(given, variable)
        return made

    def as_environment(self) -> dict[str, str]:
        """The variables that :meth:`from_environment` reads the same from."""
        return {
            variable(name): shlex.join(value) if isinstance(value, tuple) else str(value)
            for name, value in self
            if value != type(self).model_fields[name].default
        }

    @property
    def engine_arguments(self) -> dict[str, Any]:
        """The arguments of vLLM's engine that the options give."""
        named = {"tensor_parallel_size": self.tensor_parallel, "dtype": self.dtype}
        arguments: dict[str, Any] = {name: value for name, value in named.items() if value}
        for given in self.engine_option:
            name, equals, value = given.partition("=")
            if not equals:
                raise BadOption(f"--engine-option takes NAME=VALUE, not {given}")
            try:
                arguments[name.replace("-", "_")] = json.loads(value)
            except json.JSONDecodeError:
                arguments[name.replace("-", "_")] = value
        return arguments

    def reaching_out(self) -> dict[str, Any]:
        """The fields, by name, that may import code or reach an address, as far as they are given.

        Only a person may give these: whoever reads a configuration from a file that others may
        have made refuses them.
        """
        return {
            name: value
            for name, value in self
            if value != type(self).model_fields[name].default
            and not isinstance(value, Path)
            and set(":=") & set(str(value))
        }

    @property
    def reads_demo(self) -> bool:
        """Whether the index is the demo corpus."""
        return self.store is None and self.index is None and not DEFAULT_INDEX.exists()

    @property
    def runs_on(self) -> Engine:
        """The engine: the one that is named, else transformers for a named model, else the
        reader."""
        return self.engine or ("transformers" if self.model else "reader")

    @property
    def is_nano(self) -> bool:
        """Whether the nano generator answers."""
        return self.model is None and self.runs_on in ("transformers", "vllm")

    def _fill(self, given: dict[str, Any], named: Callable[[str], str]) -> None:
        """Validate and set the fields; errors call them what ``named`` makes of their names."""
        try:
            BaseModel.__init__(self, **given)
        except ValidationError as error:
            first = error.errors()[0]
            raise BadOption(f"{named(str(first['loc'][0]))}: {first['msg']}") from error
        for name, engines in _ENGINES.items():
            is_given = getattr(self, name) != type(self).model_fields[name].default
            if is_given and self.runs_on not in engines:
                raise BadOption(f"{option_name(name)} is for --engine {' or '.join(engines)}")
        if self.store and (self.index or self.embeddings):
            raise BadOption("--store is in place of an index: not with --index or --embeddings")
        if self.engine == "chat" and not self.model:
            raise BadOption("--engine chat takes a --model, such as openai:gpt-4o-mini")
        _ = self.engine_arguments  # each is checked


_ENGINES: dict[str, tuple[Engine, ...]] = {
    "answer_above": ("reader",),
    "show_guess": ("reader",),
    "device": ("transformers",),
    "dtype": ("transformers", "vllm"),
    "tensor_parallel": ("vllm",),
    "engine_option": ("vllm",),
    "tokenizer": ("server",),
}
"""The engines that an option is for, of those that are not for all."""


def option_name(name: str) -> str:
    """The option of the command line for a field."""
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    """The variable of the environment for a field."""
    return PREFIX + name.upper()
