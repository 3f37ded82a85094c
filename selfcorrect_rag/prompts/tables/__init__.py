"""The papers' prompt templates, word for word; a file's name has its paper and table."""

from pathlib import Path


def table(name: str) -> str:
    """Return the template in ``<name>.txt``, without the line break at its end."""
    text = (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8")
    return text.removesuffix("\n")


def entries(name: str) -> dict[str, str]:
    """Return the lines of a table by the names that they begin with."""
    return dict(line.split(": ", 1) for line in table(name).splitlines())
