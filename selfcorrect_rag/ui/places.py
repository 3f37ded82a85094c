"""What can be asked: the indexes of the command line, opened once, over one set of models."""

import threading
from collections.abc import Sequence
from pathlib import Path

from selfcorrect_rag.demo.loaders import DEMO_INDEX, DEMO_WEB
from selfcorrect_rag.models.off_loop import freeze_gc
from selfcorrect_rag.search import NoWebSearch
from selfcorrect_rag.search.index import STORE_FILE, holds, is_index
from selfcorrect_rag.serving.config import DEFAULT_INDEX, BadOption, ServingConfig
from selfcorrect_rag.serving.parts import Graph, Parts
from selfcorrect_rag.settings import CRAGSettings, Settings


class Places:
    """The indexes by the names that people see, the configured one first.

    A page chooses among these names and can name nothing else. Indexes in the folder of the
    configured one are among them, as far as they are there when the server starts.

    Args:
        config: the configuration of the first.
        others: further indexes.
    """

    def __init__(self, config: ServingConfig, others: Sequence[Path] = ()) -> None:
        first = Parts(config)
        self.first = first.source
        self.answers = first.answers
        self.reads_demo = config.reads_demo
        self._open: dict[str, Parts] = {self.first: first}
        beside = [] if config.store else _beside(config.index or DEFAULT_INDEX)
        self._paths = {str(path): path for path in (*others, *beside) if str(path) != self.first}
        self._lock = threading.Lock()
        self.warm = False
        """Whether the models are open."""

    @property
    def names(self) -> list[str]:
        """The names of all indexes."""
        return [self.first, *self._paths]

    def parts(self, name: str) -> Parts:
        """The parts of the index called ``name``; whoever comes first opens them, others wait.

        Raises:
            BadOption: there is no such index.
        """
        with self._lock:
            if name not in self._open:
                if name not in self._paths:
                    raise BadOption(f"no index {name}: the server was started with others")
                self._open[name] = self._open[self.first].over(self._paths[name])
            return self._open[name]

    def graph(self, place: str, name: str, settings: Settings, checkpointer: object) -> Graph:
        """The graph called ``name`` over the index called ``place``.

        Raises:
            SelfCorrectError: what cannot be opened, or settings that do not fit together.
        """
        parts = self.parts(place)
        with self._lock:
            asks = isinstance(settings, CRAGSettings) and settings.approve_search
            if asks and isinstance(parts.web, NoWebSearch):
                raise BadOption(
                    "approve search: there is no search to ask about; start the server with "
                    "--web tavily or --web DIR"
                )
            graph = parts.graph(name, settings, checkpointer=checkpointer)
        self.warm = True
        return graph

    def open(self) -> None:
        """Open the models and the first index, as at the start of a server; a fault is told by the
        run that needs what could not be opened."""
        try:
            for name in ("self_crag", "instruct_rag"):
                self.graph(self.first, name, self._open[self.first].settings(name), None)
        except Exception:
            return
        freeze_gc()

    def close(self) -> None:
        """Close the models and indexes."""
        for parts in self._open.values():
            parts.__exit__(None, None, None)


def _beside(index: Path) -> list[Path]:
    """The indexes in the folder of one."""
    try:
        found = sorted(path for path in index.parent.iterdir() if path.is_dir())
    except OSError:
        return []
    ours = (DEMO_INDEX, DEMO_WEB)  # as the demo keeps them
    return [p for p in found if is_index(p) and not holds(p, STORE_FILE) and p not in ours]
