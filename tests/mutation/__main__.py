"""Mutation testing: change the code in one place at a time, and see that a test goes red.

``make mutants`` runs all modules of the table below, and with
``MODULE=selfcorrect_rag/nodes/beam_select.py`` that one. It fails if a change is neither noticed by
a test nor listed in ``survivors.toml`` with the reason why it is harmless, if a listed change is
noticed or gone, and if tests notice less than 95 % of a module's changes. Changes of the wording of
messages are left out; so is code outside of functions, such as constants, which mutmut does not
change.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
WORKPLACE = ROOT / "build" / "mutants"
SURVIVORS = Path(__file__).with_name("survivors.toml")
PLUGINS = ("asyncio", "hypothesispytest", "tests.mutation.examples", "no:cacheprovider")
ENOUGH = 95.0
"""Percent of a module's mutants that tests must kill."""

MODULES: Mapping[str, str] = {
    "reflection": "reflection self_rag reference",
    "thresholds": "thresholds",
    "self_rag": "arguments self_rag limits node replies crag",
    "crag": "arguments crag approval faults node",
    "self_crag": "arguments crag approval faults",
    "instruct_rag": "arguments instruct_rag",
    "nodes/beam_select": "nodes/beam_nodes self_rag limits events reference",
    "nodes/decide_retrieval": "self_rag limits events",
    "nodes/generate": "crag events arguments refusing replies",
    "nodes/generate_and_critique": "nodes/beam_nodes self_rag limits events reference crag "
    "prompted_llm",
    "nodes/grade_documents": "nodes/grade_documents crag events faults tracing",
    "nodes/limits": "limits node nodes/beam_nodes events faults refusing",
    "nodes/node": "node arguments faults replies refusing tracing events nodes/beam_nodes threads "
    "crag",
    "nodes/read_question": "threads nodes/beam_nodes events arguments crag",
    "nodes/refine_strips": "strips crag events arguments faults",
    "nodes/retrieve": "nodes/beam_nodes faults events arguments threads crag",
    "nodes/rewrite_query": "crag arguments faults events",
    "nodes/web_search": "approval reading_text events faults crag arguments",
    "nodes/write_answer": "replies events nodes/beam_nodes agents/citing refusing",
    "nodes/write_rationale": "instruct_rag events arguments refusing",
    "models/engines/tokens": "tokens",
}
"""Each module, and the tests that concern it: they run against its mutants."""


class Mutant(NamedTuple):
    """A change of one function, told by its lines, which other changes of the file do not move."""

    module: str
    function: str
    was: str
    now: str


def main(paths: list[str]) -> int:
    modules = [path.removeprefix("selfcorrect_rag/").removesuffix(".py") for path in paths]
    if unknown := set(modules) - MODULES.keys():
        print(f"{min(unknown)} is not one of the modules: {', '.join(MODULES)}")
        return 2
    listed = read_survivors(SURVIVORS.read_text(encoding="utf-8"))
    wrong, total, total_killed = 0, 0, 0
    for module in modules or MODULES:
        killed, shown = run(module)
        survived = Counter(read_mutant(module, text) for text in shown if not is_wording(text))
        number = killed + survived.total()
        expected = {mutant: n for mutant, n in listed.items() if mutant.module == module}
        complaints = check(killed, survived, expected)
        print(f"{module}: {describe(killed, number)}", *complaints, sep="\n", flush=True)
        wrong, total, total_killed = wrong + len(complaints), total + number, total_killed + killed
    print(f"all: {describe(total_killed, total)}")
    return int(wrong > 0)


def describe(killed: int, number: int) -> str:
    return f"{killed} of {number} killed, {100 * killed / number:.1f} %"


def check(killed: int, survived: Counter[Mutant], listed: Mapping[Mutant, int]) -> list[str]:
    """Complaints about a module: too few killed, survivors not listed, and listed in vain."""
    number = killed + survived.total()
    complaints = [f"less than {ENOUGH} % killed"] if 100 * killed < ENOUGH * number else []
    for title, mutants in (
        ("survives and is not listed", survived - Counter(listed)),
        ("is listed but killed or gone", Counter(listed) - survived),
    ):
        complaints += [
            f"\n{mutant.function} {title}:\n- {mutant.was}\n+ {mutant.now}"
            for mutant in mutants.elements()
        ]
    return complaints


def read_survivors(text: str) -> Counter[Mutant]:
    """The accepted survivors of ``survivors.toml``, where one reason may hold for many changes."""
    return Counter(
        Mutant(entry["module"], entry["function"], was, now)
        for entry in tomllib.loads(text)["survivors"]
        for was, now in entry["changes"]
        if entry["reason"]
    )


def read_mutant(module: str, shown: str) -> Mutant:
    """The mutant that ``mutmut show`` prints, without numbers and with single spaces."""
    name = shown.splitlines()[0].rpartition(".")[2].partition("__mutmut")[0]
    function = name.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    was, now = (" ".join(changed_lines(shown, sign).split()) for sign in "-+")
    return Mutant(module, function, was, now)


def changed_lines(shown: str, sign: str) -> str:
    return "\n".join(re.findall(rf"^[{sign}](?![{sign}]{{2}})(.*)$", shown, re.MULTILINE))


def run(module: str) -> tuple[int, list[str]]:
    """How many mutants of a module are killed, and the differences of those that no test kills."""
    shutil.rmtree(WORKPLACE, ignore_errors=True)
    WORKPLACE.mkdir(parents=True)
    try:
        for name in ("tests", "docs"):  # tests read a page
            (WORKPLACE / name).symlink_to(ROOT / name)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "selfcorrect_rag", WORKPLACE / "selfcorrect_rag", ignore=ignored)
        options = {
            "source_paths": ["selfcorrect_rag"],
            "also_copy": ["docs"],
            "only_mutate": [f"selfcorrect_rag/{module}.py"],
            "process_isolation": "fork",
            "pytest_add_cli_args": [f"-p{plugin}" for plugin in PLUGINS],
            "pytest_add_cli_args_test_selection": [test_file(n) for n in MODULES[module].split()],
        }
        config = "\n".join(f"{key} = {value!r}" for key, value in options.items())
        given = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        (WORKPLACE / "pyproject.toml").write_text(f"{given}\n[tool.mutmut]\n{config}\n", "utf-8")
        mutmut("run", "--max-children", "1")
        listing = mutmut("results", "--all", "true")
        found = re.findall(r"^ +(\S+): (.+)$", listing, re.MULTILINE)
        names = [name for name, status in found if status not in ("killed", "timeout")]
        return len(found) - len(names), [mutmut("show", name) for name in names]
    finally:
        shutil.rmtree(WORKPLACE, ignore_errors=True)


def test_file(name: str) -> str:
    folder, _, stem = name.rpartition("/")
    return str(Path("tests", folder, f"test_{stem}.py"))


def is_wording(shown: str) -> bool:
    """Whether a change is only of the wording of a message, or of ``strict`` of a ``zip``."""
    was, now = (changed_lines(shown, sign) for sign in "-+")
    if "zip(" in was and "zip(" in now:
        strict = re.compile(r", (?:strict=\w+)?\)")
        return strict.sub(")", was) == strict.sub(")", now)
    pairs = zip(was.split('"'), now.split('"'), strict=False)
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    return len(changed) == 1 and all(
        re.search(r"\w[,:;]? \w", one)
        and other.removeprefix("XX").removesuffix("XX").lower() == one.lower()
        for one, other in changed
    )


def mutmut(*arguments: str) -> str:
    data = os.environ.get("SELFCORRECT_DATA", str(ROOT.parent / "shared" / "data"))
    own = {"SELFCORRECT_DATA": data, "PYTHONPATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(
        [Path(sys.executable).parent / "mutmut", *arguments],
        cwd=WORKPLACE,
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ended.returncode:
        sys.exit(f"mutmut {arguments[0]} failed:\n{ended.stdout[-4000:]}")
    return ended.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
