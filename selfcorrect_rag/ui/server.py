"""The page as a server: it listens at once, opens its models meanwhile, and keeps what goes on when
it is ended."""

import asyncio
import socket
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.known_hosts import KnownHosts
from selfcorrect_rag.ui.guard import Guard, Opening
from selfcorrect_rag.ui.store import RunStore

if TYPE_CHECKING:  # these import the graphs, which takes seconds: it listens first
    from selfcorrect_rag.ui.going import Runs
    from selfcorrect_rag.ui.places import Places


class Server(uvicorn.Server):
    """Serves the page until Ctrl-C or SIGTERM.

    Args:
        config: what to ask, and what answers.
        indexes: further indexes.
        store: past runs.
        names: host names by which it may be called.
    """

    def __init__(
        self,
        config: ServingConfig,
        indexes: Sequence[Path],
        store: RunStore,
        names: Collection[str],
    ) -> None:
        self._asked, self._store = (config, indexes), store
        self._opening = Opening()
        self._opened: tuple[Places, Runs] | None = None
        self._fault: Exception | None = None
        super().__init__(
            uvicorn.Config(
                KnownHosts(Guard(self._opening), names, pages=None),
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=5,
            )
        )

    def answer(self, listening: socket.socket) -> None:
        """Answer who calls at ``listening``, until a signal.

        Raises:
            SelfCorrectError: the page cannot be opened.
        """
        threading.Thread(target=self._open, name="opening", daemon=True).start()
        asyncio.run(self.serve([listening]))
        if self._fault:
            raise self._fault

    def _open(self) -> None:
        try:
            from selfcorrect_rag.ui.app import make_app
            from selfcorrect_rag.ui.places import Places

            places = Places(*self._asked)
            app = make_app(places, self._store)
        except Exception as fault:
            self._fault = fault
            self.should_exit = True
            return
        self._opened = places, app.state.runs
        self._opening.become(app)
        places.open()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Store what goes on, and close models and indexes.

        uvicorn raises the signal again when this is done: nothing after it would run.
        """
        if self._opened:
            await self._opened[1].close()  # first: connections that watch a run end with it
        await super().shutdown(sockets)
        if self._opened:
            self._opened[0].close()
