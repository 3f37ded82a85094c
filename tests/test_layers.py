"""Imports run downward: who may import whom in the package, read from the source."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.test_dependencies import names as imported_by
from tests.test_dependencies import tree

PACKAGE = Path(__file__).resolve().parents[1] / "selfcorrect_rag"
CORE = (
    *("self_rag", "crag", "self_crag", "instruct_rag", "reflection", "thresholds", "state"),
    *("settings", "errors", "intake", "nodes", "prompts", "models", "agents", "graphs"),
    "search_r1",
)
"""The graphs and what they are made of, without the embedded reader and the search."""
FLOORS = (
    ("cli", "__init__"),
    ("ui",),
    ("batch", "evaluation", "serving", "training"),
    ("agents",),
    ("self_rag", "crag", "self_crag", "instruct_rag", "search_r1"),
    ("nodes",),
    ("models", "reader", "search"),
    ("prompts", "state", "intake", "settings", "journal"),
    ("reflection", "thresholds", "errors"),
)
"""Rooms from the top down; a room imports only rooms of its own floor and below."""
FLOOR = {room: len(FLOORS) - i for i, rooms in enumerate(FLOORS) for room in rooms}


def room_of(module: str) -> str:
    """The folder or file directly under the package that holds ``module``."""
    return module.split(".")[1] if "." in module else "__init__"


def imports() -> dict[str, set[str]]:
    """Every module of the package, and the modules that it imports anywhere in its source."""
    names = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: set(imported_by(ast.walk(tree(path)))) for name, path in names.items()}


IMPORTS = imports()


def between_rooms() -> dict[str, dict[str, list[str]]]:
    """For each room the rooms that it imports, and the imports that say so."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for module, imported in IMPORTS.items():
        for name in sorted(imported):
            rooms = room_of(module), room_of(name)
            if name.startswith("selfcorrect_rag.") and rooms[0] != rooms[1]:
                found[rooms[0]][rooms[1]].append(f"{module} imports {name}")
    return found


ROOMS = between_rooms()


def circle(graph: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Nodes of a directed graph that lie on or lead to a circle; empty where there is none."""
    left = {node: set(graph.get(node, ())) for node in graph}
    while free := [node for node, to in left.items() if not to & left.keys()]:
        for node in free:
            del left[node]
    return sorted(left)


def test_every_room_has_its_floor() -> None:
    assert {room_of(module) for module in IMPORTS} <= FLOOR.keys(), "a room that FLOORS lacks"


def test_imports_run_downward() -> None:
    upward = [
        why
        for room, imported in ROOMS.items()
        for other, reasons in imported.items()
        if FLOOR[other] > FLOOR[room]
        for why in reasons
    ]
    assert not upward


def test_rooms_import_each_other_in_no_circle() -> None:
    assert not circle({room: to for room, to in ROOMS.items() if room != "__init__"})


def test_the_vocabulary_imports_nothing_of_ours() -> None:
    assert "reflection" not in ROOMS


def test_nothing_imports_what_does_not_ship() -> None:
    outside = {"reader_training", "smollm2_training", "tests", "benchmarks"}
    outside |= {"examples", "integrations", "graphs"}
    strangers = {
        f"{module} imports {name}"
        for module, imported in IMPORTS.items()
        for name in imported
        if name.split(".")[0] in outside
    }
    assert not strangers


PRIVATE = re.compile(
    r"langgraph\._|langchain_core\._|pregel\._|\.__class__\s*=|import _\w+$", re.MULTILINE
)


def test_no_private_name_of_another_package_is_used() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for path in PACKAGE.rglob("*.py")
        for match in PRIVATE.finditer(path.read_text(encoding="utf-8"))
    }
    assert not found


def test_the_house_is_small() -> None:
    kinds = {".py", ".html", ".css", ".js", ".txt"}
    found = [*PACKAGE.rglob("*"), *(PACKAGE.parent / "graphs").glob("*.py")]
    files = [path for path in found if path.suffix in kinds]
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    core = [path for path in files if {*path.parts, path.stem} & {*CORE}]
    assert len(files) <= 135
    assert sum(lines.values()) <= 19_382  # 20_000 with all that users ask for most
    assert len(core) <= 75
    assert sum(lines[path] for path in core) <= 10_336  # 9_500 without it
    tests = (PACKAGE.parent / "tests").rglob("*.py")
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in tests) <= 19_330
    rooms = {room_of(module) for module in IMPORTS}
    assert len(rooms) <= 25
    assert len(FLOORS) <= 10
