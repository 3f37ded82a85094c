"""How long a start takes: ``python -m benchmarks.startup``. Ends in one line of JSON.

help_seconds      ``selfcorrect-rag --help``
import_seconds    ``import selfcorrect_rag`` and its factories
answer_seconds    a new process up to the first answer of the embedded reader on the demo corpus
rss_mib           that process's largest memory

Each is the median of five processes after one that warms the disk cache; ``cpu`` in place of
``seconds`` has their CPU seconds, which other load on the machine changes less.
"""

import json
import resource
import subprocess
import sys
import time
from statistics import median

ANSWER = """
import resource
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts
with Parts(ServingConfig()) as parts:
    print(parts.graph("self_rag").invoke({"question": "Who discovered penicillin?"})["answer"])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
COMMANDS = {
    "help": ["-m", "selfcorrect_rag.cli.main", "--help"],
    "import": ["-c", "from selfcorrect_rag import create_crag, create_self_rag"],
    "answer": ["-c", ANSWER],
}
RUNS = 5


def run(command: list[str]) -> tuple[float, float, str]:
    """Run Python; return the seconds, the CPU seconds, and what it printed."""

    def cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    started, busy = time.perf_counter(), cpu()
    done = subprocess.run([sys.executable, *command], check=True, stdout=subprocess.PIPE, text=True)
    return time.perf_counter() - started, cpu() - busy, done.stdout


if __name__ == "__main__":
    report: dict[str, object] = {"benchmark": "startup"}
    for name, command in COMMANDS.items():
        seconds, cpus, printed = zip(*(run(command) for _ in range(RUNS + 1)), strict=True)
        report[f"{name}_seconds"] = round(median(seconds[1:]), 3)
        report[f"{name}_cpu"] = round(median(cpus[1:]), 3)
    kibibytes = int(printed[-1].split()[-1])
    report["rss_mib"] = kibibytes // (1024 if sys.platform != "darwin" else 1024**2)
    print(json.dumps(report))
