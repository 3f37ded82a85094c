"""Mutation testing: change the code in one place at a time, and see that a test goes red.

``make mutants`` runs all modules of the table below, and with
``MODULE=selfcorrect_rag/nodes/refine_strips.py`` that one. It ends in a table. It fails where a
mutant survives that ``survivors.toml`` does not list, and where one of that list is killed or gone.
Changes of the wording of messages are left out; so is what stands outside of functions, such as
constants, which mutmut does not change.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SURVIVORS = Path(__file__).parent / "survivors.toml"
WORKPLACE = ROOT / "build" / "mutants"
PROCESSES = 2
PLUGINS = ("asyncio", "hypothesispytest", "tests.mutation.examples", "no:cacheprovider")
KILLED = ("killed", "timeout")

MODULES: Mapping[str, tuple[str, ...]] = {
    "selfcorrect_rag/reflection.py": ("test_reflection.py", "test_reference.py"),
    "selfcorrect_rag/thresholds.py": ("test_thresholds.py",),
    "selfcorrect_rag/nodes/refine_strips.py": ("test_strips.py", "test_crag.py"),
    "selfcorrect_rag/nodes/recompose_knowledge.py": ("test_crag.py", "test_citations.py"),
    "selfcorrect_rag/nodes/grade_documents.py": ("nodes/test_grade_documents.py", "test_crag.py"),
    "selfcorrect_rag/nodes/beam_select.py": ("nodes/test_beam_nodes.py", "test_beam.py"),
    "selfcorrect_rag/nodes/generate_and_critique.py": (
        "nodes/test_beam_nodes.py",
        "test_self_rag.py",
        "test_reference.py",
    ),
    "selfcorrect_rag/nodes/citations.py": ("test_citations.py",),
    "selfcorrect_rag/nodes/limits.py": ("test_limits.py",),
    "selfcorrect_rag/models/engines/tokens.py": ("test_tokens.py",),
}
"""Each module, and the test files that concern it: those that run against its mutants."""


class Mutant(NamedTuple):
    """One change of the code, told apart by what it does and not by its number."""

    module: str
    function: str
    was: str
    now: str


class Result(NamedTuple):
    killed: int
    survived: list[Mutant]


def main(modules: list[str]) -> int:
    if unknown := [module for module in modules if module not in MODULES]:
        print(f"{unknown[0]} is none of the modules: {', '.join(MODULES)}")
        return 2
    results = {module: run(module) for module in modules or MODULES}
    accepted = read_survivors(SURVIVORS)
    unlisted = [
        m for r in results.values() for m in r.survived if not (m in accepted or by_rule(m))
    ]
    survived = {m for r in results.values() for m in r.survived}
    gone = [m for m in accepted if m.module in results and m not in survived]
    show(results, accepted)
    for title, mutants in (
        ("survives and is not listed", unlisted),
        ("is listed and does not survive", gone),
    ):
        for mutant in mutants:
            print(f"\n{mutant.module}, {mutant.function}: {title}")
            print(f"  - {mutant.was}\n  + {mutant.now}".replace("\n", "\n    "))
    return 1 if unlisted or gone else 0


def read_survivors(path: Path) -> dict[Mutant, str]:
    """The accepted survivors, each with its reason."""
    rows = tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", [])
    return {Mutant(r["module"], r["function"], r["was"], r["now"]): r["reason"] for r in rows}


def by_rule(mutant: Mutant) -> bool:
    """Whether a survivor needs no line in the list.

    Two rules: only ``strict`` of a ``zip`` differs, which asserts what its caller made so; or only
    the wording of a message: of the strings in quotes one differs, by its case or by an XX at each
    end, and it has several words, which no key, name or separator of the code has.
    """
    if all("zip(" in text for text in (mutant.was, mutant.now)):
        was, now = (re.sub(r", (?:strict=\w+)?\)", ")", text) for text in (mutant.was, mutant.now))
        return was == now
    was, now = (re.split(r'"([^"]*)"', text) for text in (mutant.was, mutant.now))
    if len(was) != len(now):
        return False
    pairs = [pair for pair in zip(was, now, strict=True) if pair[0] != pair[1]]
    return len(pairs) == 1 and all(
        re.search(r"\w[,:;]? \w", one)
        and other.removeprefix("XX").removesuffix("XX").lower() == one.lower()
        for one, other in pairs
    )


def show(results: Mapping[str, Result], accepted: Mapping[Mutant, str]) -> None:
    """The table of killed and survived; equivalent are survivors that the list accepts."""
    print(f"\n{'module':<48}{'mutants':>8}{'killed':>8}{'listed':>8}{'others':>8}{'killed %':>10}")
    rows = [
        (
            module,
            r.killed,
            len(r.survived),
            sum(m in accepted or by_rule(m) for m in r.survived),
        )
        for module, r in results.items()
    ]
    rows.append(("all", *(sum(row[i] for row in rows) for i in (1, 2, 3))))  # type: ignore[arg-type]
    for name, killed, survived, listed in rows:
        total = killed + survived
        share = 100 * killed / total if total else 100.0
        print(f"{name:<48}{total:>8}{killed:>8}{listed:>8}{survived - listed:>8}{share:>10.1f}")


def run(module: str) -> Result:
    """All mutants of a module, in a copy of the package."""
    print(f"{module} ...", flush=True)
    shutil.rmtree(WORKPLACE, ignore_errors=True)
    WORKPLACE.mkdir(parents=True)
    try:
        prepare(module)
        mutmut("run", "--max-children", str(PROCESSES))
        listing = mutmut("results", "--all", "true")
        found = re.findall(r"^ +(\S+): (.+)$", listing, re.MULTILINE)
        names = [name for name, status in found if status not in KILLED]
        survived = [Mutant(module, *difference(mutmut("show", name))) for name in names]
        return Result(len(found) - len(names), survived)
    finally:
        shutil.rmtree(WORKPLACE, ignore_errors=True)


def prepare(module: str) -> None:
    """A folder for mutmut, which mutates the package in a copy of its own."""
    (WORKPLACE / "tests").symlink_to(ROOT / "tests")
    shutil.copytree(
        ROOT / "selfcorrect_rag",
        WORKPLACE / "selfcorrect_rag",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    copy = WORKPLACE / module
    copy.write_text(undecorated(copy.read_text(encoding="utf-8")), encoding="utf-8")
    options = {
        "source_paths": ["selfcorrect_rag"],
        "only_mutate": [module],
        "process_isolation": "fork",
        "pytest_add_cli_args": [f"-p{plugin}" for plugin in PLUGINS],
        "pytest_add_cli_args_test_selection": [f"tests/{name}" for name in MODULES[module]],
    }
    config = "\n".join(f"{key} = {value!r}" for key, value in options.items())
    given = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (WORKPLACE / "pyproject.toml").write_text(f"{given}\n[tool.mutmut]\n{config}\n", "utf-8")


def undecorated(source: str) -> str:
    """The module with ``name = decorator(name)`` for ``@decorator``, which mutmut passes by."""
    pattern = re.compile(
        r"^(?P<indent> *)@(?P<decorator>property|cached_property|contextmanager)\n"
        r"(?P<body>(?P=indent)def (?P<name>\w+)\(.*\n(?:(?:(?P=indent) .*)?\n)*)",
        re.MULTILINE,
    )
    return pattern.sub(r"\g<body>\g<indent>\g<name> = \g<decorator>(\g<name>)\n\n", source)


def mutmut(*arguments: str) -> str:
    data = os.environ.get("SELFCORRECT_DATA", str(ROOT.parent / "shared" / "data"))
    ended = subprocess.run(
        [Path(sys.executable).parent / "mutmut", *arguments],
        cwd=WORKPLACE,
        env={
            **os.environ,
            "SELFCORRECT_DATA": data,
            "PYTHONPATH": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ended.returncode:
        sys.exit(f"mutmut {arguments[0]} failed:\n{ended.stdout[-4000:]}")
    return ended.stdout


def difference(shown: str) -> tuple[str, str, str]:
    """The function that a mutant is of, and its lines that were and that are."""
    was, now = (
        "\n".join(line[1:].strip() for line in shown.splitlines() if is_changed(line, sign))
        for sign in "-+"
    )
    name = shown.splitlines()[0].split(".")[-1].split("__mutmut")[0]
    return re.sub(r"^xǁ|^x_", "", name).replace("ǁ", "."), was, now


def is_changed(line: str, sign: str) -> bool:
    return line.startswith(sign) and not line.startswith(sign * 3)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
