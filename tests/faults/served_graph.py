"""A graph for LangGraph's server: its second segment waits for a file in the server's folder."""

import time
from pathlib import Path
from typing import Any

from selfcorrect_rag import create_self_rag
from tests.faults.graphs import Parts

GO = "go"


def _waits(*given: Any) -> str:
    while not Path(GO).exists():
        time.sleep(0.05)
    return "Austen."


_parts = Parts()
_parts.model.breaks(_waits, after=2)
graph = create_self_rag(_parts.reflecting(), _parts.retriever)
