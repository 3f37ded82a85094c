"""The package imports only what pyproject.toml declares."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.test_docs import ROOT

PACKAGE = ROOT / "selfcorrect_rag"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
DISTRIBUTIONS = packages_distributions()
OURS = "selfcorrect-rag"


def plain(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(requirements: list[str]) -> set[str]:
    """The distributions that requirements name, those of our extras among them."""
    found: set[str] = set()
    for requirement in requirements:
        name, extras = re.match(r"([\w.-]+)(?:\[([^\]]*)\])?", requirement).groups()  # type: ignore[union-attr]
        if plain(name) != OURS:
            found.add(plain(name))
        for extra in extras.split(",") if plain(name) == OURS else ():
            found |= declared(EXTRAS[extra])
    return found


CORE = declared(PROJECT["dependencies"])


def needed(module: str, by: set[str]) -> bool:
    """Whether a module is ours, Python's or of one of these distributions."""
    top = module.split(".")[0]
    given = {plain(name) for name in DISTRIBUTIONS.get(top, [top])}
    return top in sys.stdlib_module_names or top == PACKAGE.name or bool(given & by)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def names(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def file_of(module: str) -> Path | None:
    """The file of one of our modules."""
    path = ROOT / module.replace(".", "/")
    found = (path / "__init__.py", path.with_suffix(".py"))
    return next((file for file in found if module.startswith(PACKAGE.name) and file.exists()), None)


def test_every_import_is_declared() -> None:
    everywhere = CORE.union(*(declared(requirements) for requirements in EXTRAS.values()))
    undeclared = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        for name in names(ast.walk(tree(path)))
        if not needed(name, everywhere)
    }
    assert not undeclared


def test_what_is_imported_at_once_is_in_the_core() -> None:
    graphs = ("self_rag", "crag", "self_crag", "instruct_rag", "cli.main")
    reached = {f"{PACKAGE.name}.{name}" for name in graphs}
    left, lacking = list(reached), set()
    while left:
        module = left.pop()
        path = file_of(module)
        if path is None:
            lacking |= set() if needed(module, CORE) else {module}
            continue
        parents = (module.rsplit(".", n)[0] for n in range(1, module.count(".") + 1))
        found = {*names(iter(tree(path).body)), *parents}
        left += found - reached
        reached |= found
    assert len(reached) > 40
    assert not lacking


def test_what_an_extra_is_named_for_is_in_it() -> None:
    """``require(module, extra)`` tells the user to install ``extra``, which has to bring it."""
    wrong, seen = set(), 0
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(tree(path)):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require"):
                continue
            module, extra = (getattr(given, "value", None) for given in node.args)
            if isinstance(module, str) and isinstance(extra, str):
                seen += 1
                if not needed(module, CORE | declared(EXTRAS[extra])):
                    wrong.add(f"{path.relative_to(ROOT)}: {extra} lacks {module}")
    assert seen > 10
    assert not wrong


def test_the_readme_names_every_extra() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("Extras:")[2]
    assert EXTRAS.keys() == set(re.findall(r"`([\w-]+)`", readme.partition(".")[0])) - {"torch"}
