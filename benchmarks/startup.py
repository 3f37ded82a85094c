"""How long a start takes: ``python -m benchmarks.startup``. Ends in one line of JSON.

help_seconds      ``selfcorrect-rag --help``
import_seconds    ``import selfcorrect_rag`` and its factories
answer_seconds    a new process up to the first answer of the embedded reader on the demo corpus
rss_mib           that process's largest memory

Each is the median of five processes after one that warms the disk cache.
"""

import json
import statistics
import subprocess
import sys
import time

RUNS = 5
ANSWER = """
import resource, sys
from selfcorrect_rag.serving import Parts, ServingConfig
with Parts(ServingConfig()) as parts:
    parts.graph("self_rag").invoke({"question": "Who discovered penicillin?"})
unit = 1024 if sys.platform != "darwin" else 1024**2
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit)
"""
COMMANDS = {
    "help_seconds": ["-m", "selfcorrect_rag.cli.main", "--help"],
    "import_seconds": ["-c", "from selfcorrect_rag import create_crag, create_self_rag"],
    "answer_seconds": ["-c", ANSWER],
}


def main() -> None:
    """Measure each start."""
    report: dict[str, object] = {"benchmark": "startup", "runs": RUNS}
    for name, command in COMMANDS.items():
        seconds = []
        for _ in range(RUNS + 1):
            started = time.perf_counter()
            done = subprocess.run([sys.executable, *command], check=True, stdout=subprocess.PIPE)
            seconds.append(time.perf_counter() - started)
        report[name] = round(statistics.median(seconds[1:]), 3)
    print(json.dumps({**report, "rss_mib": int(done.stdout)}))


if __name__ == "__main__":
    main()
