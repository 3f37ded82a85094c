"""What a graph is made of, small enough to be sent to any machine, and made there."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from langchain_core.runnables import Runnable

from selfcorrect_rag.errors import SelfCorrectError, describe_error, find_named, safe_message
from selfcorrect_rag.serving.config import DEFAULT_INDEX, BadOption, ServingConfig
from selfcorrect_rag.settings import GRAPHS, CRAGSettings, Settings


class NoGraph(SelfCorrectError, RuntimeError):
    """A graph cannot be made; the message says of what and why."""


class GraphMaker(NamedTuple):
    """How to make a graph; of JSON values alone. Models and indexes are opened where it is made."""

    graph: str = "self_rag"
    """A key of ``GRAPHS``: ``self_rag``, ``crag``, ``self_crag`` or ``instruct_rag``."""
    settings: Mapping[str, Any] = {}
    """The graph's settings that are not its defaults."""
    config: Mapping[str, Any] = {}
    """The fields of a :class:`~selfcorrect_rag.serving.config.ServingConfig`."""
    factory: str = ""
    """``module:function`` that makes a compiled graph, or ``module:attribute`` that is one, in
    place of all else."""

    @classmethod
    def of(cls, given: "GraphMaker | str | Path") -> Self:
        """``given``, a ``module:function``, or a JSON file with ``graph``, ``settings`` and
        ``config``, as ``ask --json`` saves them under ``made``.

        Raises:
            NoGraph: it is none of them, or a file whose config names code to import or an address,
                which only a person may give: in a maker.
        """
        if isinstance(given, GraphMaker):
            return cls(*given)
        text = str(given)
        if not Path(text).is_file() and ":" in text:
            return cls(factory=text)
        try:
            saved = json.loads(Path(text).read_text(encoding="utf-8"))
            made = saved.get("made", saved)
            maker = cls(
                made["graph"].replace("-", "_"), made.get("settings", {}), made.get("config", {})
            )
            config = ServingConfig(**maker.config)
            if foreign := config.reaching_out():
                name, value = next(iter(foreign.items()))
                raise NoGraph(
                    f"{text} names {name} {safe_message(value)}, which may run code or reach an "
                    "address: give a GraphMaker with that config yourself"
                )
            return cls.from_config(maker.graph, maker._settings(), config)
        except SelfCorrectError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise NoGraph(
                f"{text} is neither MODULE:FUNCTION nor a JSON file with a graph, its settings and "
                f"its config ({describe_error(error)})"
            ) from error

    @classmethod
    def from_config(cls, graph: str, settings: Settings, config: ServingConfig) -> Self:
        """The maker of a graph of this package, whose paths are good in any folder.

        Raises:
            BadOption: it would wait for a person to approve its searches.
        """
        if isinstance(settings, CRAGSettings) and settings.approve_search:
            raise BadOption("approve_search waits for a person, whom a bulk run does not have")
        given = config.model_dump(mode="json", exclude_defaults=True)
        if config.store is None and not config.reads_demo:
            given["index"] = str((config.index or DEFAULT_INDEX).resolve())
        for name in ("model", "evaluator", "web", "demonstrations_from", "tokenizer"):
            if (value := getattr(config, name)) and Path(value).exists():
                given[name] = str(Path(value).resolve())
        return cls(graph, settings.model_dump(mode="json", exclude_defaults=True), given)

    def as_json(self) -> dict[str, Any]:
        """What decides the answers: without passwords, and without what a model runs on or where
        it listens, which may change while a run goes on."""
        if self.factory:
            return {"factory": self.factory}
        elsewhere = ("base_url", "device", "dtype", "engine_option", "tensor_parallel")
        config = {name: value for name, value in self.config.items() if name not in elsewhere}
        return {"graph": self.graph, "settings": dict(self.settings), "config": config}

    @contextmanager
    def opened(self) -> Iterator[Runnable[Any, Any]]:
        """The graph, with its models and indexes open.

        Raises:
            NoGraph: the factory failed, or what it gave is no graph.
            SelfCorrectError: a model, an index or an option is wrong.
        """
        if self.factory:
            yield _found(self.factory)
            return
        from selfcorrect_rag.serving.parts import Parts

        settings = self._settings()
        pages = settings.web_results if isinstance(settings, CRAGSettings) else 0
        config = ServingConfig(**self.config)
        with Parts(config, passages=settings.passages, pages=pages) as parts:
            yield parts.graph(self.graph, settings)

    def _settings(self) -> Any:
        if self.graph not in GRAPHS:
            raise NoGraph(f"there is no graph {self.graph}; there are {', '.join(GRAPHS)}")
        return GRAPHS[self.graph](**self.settings)


def _found(name: str) -> Runnable[Any, Any]:
    try:
        graph = find_named(name, Runnable)
    except Exception as error:  # any code runs where a module is imported
        raise NoGraph(f"{name} makes no graph ({describe_error(error)})") from error
    if not isinstance(graph, Runnable):
        raise NoGraph(f"{name} gives a {type(graph).__name__}, not a compiled graph")
    return graph
