"""Docstrings, messages and docs use the words that the field uses: some patterns are refused."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.snippets import ROOT

LIBRARY = ROOT / "selfcorrect_rag"
FIRST = re.compile(r"(What|Whose|Where|Which|Who|Of|That which)\b")
"""Words that begin no docstring: it says in the imperative what a function does."""
REFUSED = {
    r"(?<!there )\b(is|are|was|were) no (?!longer|more|less|fewer|such|better)\w+": "is not a",
    r"\b(a|an) \w+ of (one's|its|their|your|his) own\b(?! \w)": "a custom, or: a separate",
    r"\btold apart\b": "distinguished; there is no significant difference",
    r"\bas if (it|they) had never\b": "is ignored",
    r"\bgone on with\b": "resumed",
    r"\bfor who\b": "for users who",
    r"\bthat which\b": "what",
}
"""By a pattern, what to write instead. "There is no index" is English; "it is no index" is not."""


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Those of modules, classes and functions, and strings below an attribute."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                yield node.lineno, text


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The texts of errors that are raised."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def faults(place: str, text: str) -> list[str]:
    plain = " ".join(text.split())
    return [
        f"{place}: {found[0]!r}; write {better!r}"
        for pattern, better in REFUSED.items()
        for found in re.finditer(pattern, plain, re.IGNORECASE)
    ]


@pytest.mark.parametrize("path", sorted(LIBRARY.rglob("*.py")), ids=lambda path: path.stem)
def test_the_library_is_written_plainly(path: Path) -> None:
    tree, found = ast.parse(path.read_text(encoding="utf-8")), list[str]()
    for line, text in docstrings(tree):
        place = f"{path.relative_to(ROOT)}:{line}"
        found += [f"{place} begins with {first[0]!r}" for first in [FIRST.match(text)] if first]
        found += faults(place, text)
    for line, text in messages(tree):
        found += faults(f"{path.relative_to(ROOT)}:{line}", text)
    assert found == []


def test_no_docstring_begins_with_a_headless_relative() -> None:
    folders = ("benchmarks", "examples", "graphs", "integrations", "tests")
    trainings = ("reader_training", "smollm2_training")
    paths = [path for folder in (*folders, *trainings) for path in (ROOT / folder).rglob("*.py")]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    found = [
        (p.name, n) for p, tree in trees.items() for n, t in docstrings(tree) if FIRST.match(t)
    ]
    assert found == []


def test_the_docs_are_written_plainly() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found = [fault for page in pages for fault in faults(page.name, page.read_text("utf-8"))]
    assert found == []


def test_a_bad_text_is_found() -> None:
    bad = ("it is no index", "a node of one's own", "in a thread of its own", "may be gone on with")
    assert [len(faults("here", text)) for text in bad] == [1, 1, 1, 1]
    assert faults("here", "There is no index, and there are no rows; it is no longer there.") == []
