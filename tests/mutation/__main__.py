"""Mutation testing: change the code in one place at a time, and see that a test goes red.

``make mutants`` runs all modules of the table below, and with
``MODULE=selfcorrect_rag/nodes/beam_select.py`` that one. It prints the changes that no test has
noticed, and fails if there are any. Changes of the wording of messages are left out; so is what
stands outside of functions, such as constants, which mutmut does not change.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKPLACE = ROOT / "build" / "mutants"
PLUGINS = ("asyncio", "hypothesispytest", "tests.mutation.examples", "no:cacheprovider")

MODULES: Mapping[str, tuple[str, ...]] = {
    "selfcorrect_rag/reflection.py": ("test_reflection.py", "test_reference.py"),
    "selfcorrect_rag/thresholds.py": ("test_thresholds.py",),
    "selfcorrect_rag/nodes/refine_strips.py": (
        "test_strips.py",
        "test_crag.py",
        "test_citations.py",
    ),
    "selfcorrect_rag/nodes/grade_documents.py": ("nodes/test_grade_documents.py", "test_crag.py"),
    "selfcorrect_rag/nodes/beam_select.py": ("nodes/test_beam_nodes.py", "test_beam.py"),
    "selfcorrect_rag/nodes/generate_and_critique.py": (
        "nodes/test_beam_nodes.py",
        "test_self_rag.py",
        "test_reference.py",
    ),
    "selfcorrect_rag/nodes/write_answer.py": ("test_citations.py",),
    "selfcorrect_rag/nodes/limits.py": ("test_limits.py",),
    "selfcorrect_rag/models/engines/tokens.py": ("test_tokens.py",),
}
"""Each module, and the test files that concern it: those that run against its mutants."""


def main(modules: list[str]) -> int:
    if unknown := set(modules) - MODULES.keys():
        print(f"{min(unknown)} is none of the modules: {', '.join(MODULES)}")
        return 2
    survived = 0
    for module in modules or MODULES:
        names, shown = run(module)
        kept = [text for text in shown if not is_wording(text)]
        print(f"{module}: {names - len(kept)} of {names} killed", *kept, sep="\n\n", flush=True)
        survived += len(kept)
    return int(survived > 0)


def run(module: str) -> tuple[int, list[str]]:
    """How many mutants a module has, and the differences of those that no test kills."""
    shutil.rmtree(WORKPLACE, ignore_errors=True)
    WORKPLACE.mkdir(parents=True)
    try:
        (WORKPLACE / "tests").symlink_to(ROOT / "tests")
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "selfcorrect_rag", WORKPLACE / "selfcorrect_rag", ignore=ignored)
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
        mutmut("run", "--max-children", "2")
        listing = mutmut("results", "--all", "true")
        found = re.findall(r"^ +(\S+): (.+)$", listing, re.MULTILINE)
        names = [name for name, status in found if status not in ("killed", "timeout")]
        return len(found), [mutmut("show", name) for name in names]
    finally:
        shutil.rmtree(WORKPLACE, ignore_errors=True)


def is_wording(shown: str) -> bool:
    """Whether a change is only of the wording of a message, or of ``strict`` of a ``zip``."""
    was, now = (
        "\n".join(re.findall(rf"^[{sign}](?![{sign}]{{2}})(.*)$", shown, re.MULTILINE))
        for sign in "-+"
    )
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
