"""A run that was killed goes on in another process from its last finished step."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
CALLS = ["choose", "retrieve", "write", "retrieve", "write"]
"""The calls of a run of two segments, in order."""


def run(folder: Path, dies_at: int, resumes: bool) -> None:
    """Ask, or resume; note each call in a file, and die in the call ``dies_at``."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    from selfcorrect_rag import create_self_rag
    from tests.scripted import THREAD, ScriptedLLM, document
    from tests.test_limits import write

    def note(call: str) -> None:
        with (folder / "calls").open("a") as file:
            file.write(f"{call}\n")
        if len((folder / "calls").read_text().split()) - 1 == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    class Noting(ScriptedLLM):
        def _segments(self, prompts: Any, **options: Any) -> Any:
            note("choose" if options.get("choose") else "write")
            return super()._segments(prompts, **options)

    def retrieve(query: str) -> Any:
        note("retrieve")
        return [document("A")]

    with SqliteSaver.from_conn_string(str(folder / "threads.sqlite")) as checkpointer:
        graph = create_self_rag(Noting(write=write), retrieve, checkpointer=checkpointer)
        asked: Any = None if resumes else {"question": "Who?"}
        context: Any = None if resumes else {"beam_width": 1}
        result = graph.invoke(asked, THREAD, context=context, durability="sync")
    print(result["answer"], result["usage"]["model_calls"])


@pytest.mark.parametrize("dies_at", range(len(CALLS)))
def test_nothing_that_ended_is_called_again(dies_at: int, tmp_path: Path) -> None:
    def start(dies: int, resumes: bool) -> subprocess.CompletedProcess[str]:
        code = f"from tests.test_kill import *; run(Path({str(tmp_path)!r}), {dies}, {resumes})"
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
        )

    assert start(dies_at, False).returncode == -signal.SIGKILL
    resumed = start(-1, True)
    assert resumed.stdout == "First. Second. 3\n", resumed.stderr
    calls = (tmp_path / "calls").read_text().split()
    assert calls == [*CALLS[: dies_at + 1], *CALLS[dies_at:]]
