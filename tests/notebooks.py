"""Notebooks, run as a reader runs them.

python -m tests.notebooks FILE ...    runs each and stores what it prints and plots
"""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

MOST_SECONDS = 300
"""For one cell, on a busy machine."""


def executed(path: Path, folder: Path) -> NotebookNode:
    """A notebook with the outputs of a fresh run, which works in ``folder``.

    Raises:
        CellExecutionError: a cell failed; the message has it and its error.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=MOST_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,  # it would change with every run
    )
    return client.execute()


def printed(notebook: NotebookNode) -> list[str]:
    """All text that the cells printed."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output.text for output in outputs if output.output_type == "stream"]


def shown(notebook: NotebookNode, kind: str) -> list[str]:
    """All outputs of a MIME type, such as ``image/png`` (in base64) and ``text/html``."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output.data[kind] for output in outputs if kind in output.get("data", ())]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(Path(name), Path(folder)), name)
