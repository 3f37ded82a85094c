"""One configuration for the command line, served graphs and MCP.

Each field can be set by a TOML file, by a variable of the environment (``base_url`` is
``SELFCORRECT_BASE_URL``), and on the command line by an option or by ``--set``.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.settings import GRAPHS

DEFAULT_INDEX = Path(".selfcorrect/index")
PREFIX = "SELFCORRECT_"
"""How the variables of the environment begin; ``SELFCORRECT_CONFIG`` names a TOML file."""
API_KEY = "VLLM_API_KEY"
"""The variable with the key of a vLLM server, the one that the server itself reads."""
SETTINGS = {name for kind in GRAPHS.values() for name in kind.model_fields}
"""The names of all settings of all graphs."""

EngineName = Literal["reader", "transformers", "vllm", "server", "chat"]


class BadOption(SelfCorrectError, ValueError):
    """An invalid option, variable or line of a configuration file; the message names it."""


class ServingConfig(BaseModel):
    """The models, the index and the web search of a graph; by default the reader, offline.

    Raises:
        BadOption: a value is invalid, or a setting belongs to no graph.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    index: Path | None = None
    """Folder of an index that `selfcorrect-rag index` made; by default .selfcorrect/index if it
    exists, else the demo corpus."""
    retriever: str | None = None
    """MODULE:ATTRIBUTE of a LangChain retriever or vector store, or of a function that makes it;
    replaces the index."""
    model: str | None = None
    """PROVIDER:MODEL or MODULE:ATTRIBUTE of a chat model, or folder or hub name of a checkpoint
    with reflection tokens; by default the embedded reader."""
    engine: EngineName | None = None
    """The engine of the model: reader, chat, transformers, vllm, or server (a vLLM server); by
    default chat for a name with a colon, transformers for a checkpoint."""
    reader: Path | None = None
    """Folder of a reader, as `make reader` writes it, in place of the embedded one."""
    engine_options: dict[str, Any] = {}
    """Arguments of the engine, e.g. {"dtype": "bfloat16"} for vLLM, or {"tokenizer": NAME} for a
    server."""
    base_url: str = "http://localhost:8000"
    """Address of a vLLM server; its key is read from VLLM_API_KEY."""
    chat_model: str | None = None
    """PROVIDER:MODEL or MODULE:ATTRIBUTE of a chat model: the agent's, CRAG's and InstructRAG's
    writer, which also rewrites queries and follow-up questions."""
    evaluator: str | None = None
    """CRAG's evaluator: folder or hub name of a T5 or one-label classifier, or a chat model's name;
    by default the embedded reader."""
    web: str = ""
    """The web search of CRAG: tavily (key in TAVILY_API_KEY), none, or the folder of an index that
    plays the web."""
    demonstrations: Path | None = None
    """InstructRAG: JSONL rows {"question": ..., "rationale": ..., "answers": []}."""
    answer_above: float | None = Field(None, ge=0, le=1)
    """Reader: the confidence above which it states an answer."""
    settings: dict[str, Any] = {}
    """Settings of the graphs by name; each graph takes those that it has."""

    def __init__(self, **given: Any) -> None:
        """Set the given fields; a key that is the name of a graph's setting goes to settings."""
        own = {name: value for name, value in given.items() if name in type(self).model_fields}
        settings = {name: value for name, value in given.items() if name not in own}
        own["settings"] = {**own.get("settings", {}), **settings}
        for name in own["settings"].keys() - SETTINGS:
            raise BadOption(unknown_name(name))
        try:
            super().__init__(**own)
        except ValidationError as error:
            raise BadOption(first_fault(error)) from error
        if self.retriever and self.index:
            raise BadOption("retriever replaces the index: leave out index")
        if self.engine in ("chat", "transformers", "vllm") and not self.model:
            raise BadOption(f"engine {self.engine} needs a model, such as openai:gpt-4o-mini")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read the file that ``SELFCORRECT_CONFIG`` names, then the variables, which override it;
        BadOption if either is invalid."""
        path = environment.get(f"{PREFIX}CONFIG")
        given = read_config(Path(path)) if path else {}
        for name in cls.model_fields:
            if value := environment.get(PREFIX + name.upper()):
                given[name] = parse_value(name, value)
        return cls(**given)

    def as_environment(self) -> dict[str, str]:
        """Return the variables from which :meth:`from_environment` reads the same configuration."""
        return {
            PREFIX + name.upper(): value if isinstance(value, str) else json.dumps(value)
            for name, value in self.model_dump(mode="json", exclude_defaults=True).items()
        }

    def located(self) -> Self:
        """Return the same with absolute paths, the default index too, for another folder."""
        names = ("index", "demonstrations", "model", "reader", "evaluator", "web")
        given = {name: getattr(self, name) for name in names}
        if not (self.index or self.retriever or self.reads_demo):
            given["index"] = DEFAULT_INDEX
        found = {n: type(p)(Path(p).absolute()) for n, p in given.items() if p and Path(p).exists()}
        return self.model_copy(update=found)

    @property
    def reads_demo(self) -> bool:
        """Whether the demo corpus is read, since nobody named an index."""
        return self.retriever is None and self.index is None and not DEFAULT_INDEX.exists()

    @property
    def runs_on(self) -> EngineName:
        """The engine that is named, or the one that fits the model's name."""
        if self.engine or self.model is None:
            return self.engine or "reader"
        return "chat" if ":" in self.model and not Path(self.model).exists() else "transformers"


def read_config(path: Path) -> dict[str, Any]:
    """Read a TOML file of fields and settings; BadOption if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadOption(f"config {path}: {error}") from error


def unknown_name(name: str, known: Iterable[str] = ()) -> str:
    """Return the message for a name that nothing has, with the nearest one that exists."""
    names = sorted(known or {*ServingConfig.model_fields, *SETTINGS})
    near = difflib.get_close_matches(name, names, n=1)
    said = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
    return f"there is no setting {name!r}; {said}"


def first_fault(error: ValidationError) -> str:
    """Return the field and the message of pydantic's first error, with the value if there is one"""
    first = error.errors()[0]
    got = "" if first["type"] == "missing" else f", got {first['input']!r}"
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}{got}"


def parse_value(name: str, text: str, *kinds: type[BaseModel]) -> Any:
    """Parse the text of a field or setting: plain text, JSON, a list by commas, or none.

    ``kinds`` are models of options, by default the configuration and all graphs' settings.
    BadOption if none has a field ``name``, or ``text`` is not one of its values.
    """
    kinds = kinds or (ServingConfig, *GRAPHS.values())
    fields = {n: field for kind in reversed(kinds) for n, field in kind.model_fields.items()}
    if name not in fields:
        raise BadOption(unknown_name(name, fields))
    annotation: Any = fields[name].annotation
    adapter = TypeAdapter[Any](annotation)
    readings: list[Any] = [None if text.lower() in ("none", "null") else text, text]
    with suppress(ValueError):
        readings.append(json.loads(text))
    for reading in [*readings, [part.strip() for part in text.split(",")]]:
        try:
            return adapter.validate_python(reading)
        except ValidationError as error:
            message = error.errors()[0]["msg"]
    raise BadOption(f"{name}: {message}, got {text!r}")
