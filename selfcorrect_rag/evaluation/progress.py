"""Progress of many runs at once, from LangChain's own callbacks."""

from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler

from selfcorrect_rag.errors import require


class Progress(BaseCallbackHandler):
    """A bar on standard error that counts finished runs, and those that failed.

    ::

        config = {"max_concurrency": 64, "callbacks": [Progress(len(inputs))]}
        results = await graph.abatch(inputs, config, return_exceptions=True)
    """

    def __init__(self, total: int, label: str = "questions") -> None:
        """``total`` runs are expected."""
        self._bar = require("tqdm", "local").tqdm(total=total, desc=label, unit="")
        self.done = self.failed = 0

    def on_chain_end(
        self, outputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        if parent_run_id is None:
            self.count()

    def on_chain_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        if parent_run_id is None:
            self.count(failed=True)

    def count(self, *, failed: bool = False) -> None:
        """Count a run that has no callbacks."""
        if failed:
            self.failed += 1
            self._bar.set_postfix(failed=self.failed, refresh=False)
        self.done += 1
        self._bar.update()
        if self.done == self._bar.total:
            self.close()

    def close(self) -> None:
        """Leave the bar as it stands, where fewer runs end than were expected."""
        self._bar.close()
