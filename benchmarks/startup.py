"""How long a start takes: ``python -m benchmarks.startup``. Ends in one line of JSON.

help_seconds      ``selfcorrect-rag --help``
import_seconds    ``import selfcorrect_rag`` and its factories
answer_seconds    a new process up to the first answer of the embedded reader on the demo corpus
rss_mib           that process's largest memory

Each is the median of ``--runs`` processes after one that warms the disk cache.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

ANSWER = """
import resource
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts
with Parts(ServingConfig()) as parts:
    graph = parts.graph("self_rag")
    print(graph.invoke({"question": "Who discovered penicillin?"})["answer"])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
IMPORT = "from selfcorrect_rag import create_crag, create_self_rag"
COMMANDS = {
    "help_seconds": ["-m", "selfcorrect_rag.cli.main", "--help"],
    "import_seconds": ["-c", IMPORT],
    "answer_seconds": ["-c", ANSWER],
}


def measure(command: list[str], runs: int) -> tuple[float, str]:
    """The median seconds of a command, and what it printed last."""
    seconds, printed = [], ""
    for _ in range(runs + 1):
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *command], check=True, capture_output=True, text=True
        )
        seconds.append(time.perf_counter() - started)
        printed = done.stdout
    return statistics.median(seconds[1:]), printed


def main() -> None:
    """Measure each start."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs: int = parser.parse_args().runs
    report: dict[str, object] = {"benchmark": "startup", "runs": runs}
    for name, command in COMMANDS.items():
        seconds, printed = measure(command, runs)
        report[name] = round(seconds, 3)
        if name == "answer_seconds":
            kibibytes = int(printed.split()[-1])
            report["rss_mib"] = kibibytes // (1024 if sys.platform != "darwin" else 1024**2)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
