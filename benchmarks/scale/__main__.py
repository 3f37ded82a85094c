"""Measure this machine, predict two actors, run them, and write docs/scale.md.

    python -m benchmarks.scale                 # all, some 15 minutes on two cores
    python -m benchmarks.scale work rates      # only these parts again; the page is written anew

The parts, in this order: ``work`` (what a question takes, by graph), ``rates`` (stores, models,
rows), ``one`` (a question alone, and one actor), ``two`` (the prediction from these, written down,
and then two actors, three times). The figures are kept in docs/scale/scale.json.
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.scale import here
from benchmarks.scale.capacity import simulated
from benchmarks.scale.page import render

PAGE = Path("docs/scale.md")
FIGURES = Path("docs/scale/scale.json")
ATTEMPTS = 3
Made = dict[str, Any]


def _fresh(name: str) -> Path:
    folder = here.FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def work(made: Made) -> None:
    """What a question takes, by graph."""
    from benchmarks.scale.work import front_end
    from benchmarks.scale.work import work as of_graphs

    made["work"] = of_graphs(here.FOLDER)
    made["front_end_s"] = front_end(_fresh("front"))


def rates(made: Made) -> None:
    """What the parts do in a CPU second."""
    from benchmarks.scale import rates

    made["passages"] = rates.PASSAGES
    made["stores"] = rates.stores(_fresh("stores"))
    made["models"] = rates.models()
    made["carriers"] = rates.carriers()


def one(made: Made) -> None:
    """A question alone, and one actor."""
    made["alone"] = here.alone()
    made["one_actor"] = here.actors(1)
    made["one_predicted"] = here.predicted(made, 1, made["one_actor"]["others_cores"])


def two(made: Made) -> None:
    """The prediction for two actors, and then the runs; what others use is known only then."""
    made["two_predicted"] = here.predicted(made, 2)
    made["two_actors"] = []
    write(made)
    for _ in range(ATTEMPTS):
        ran = here.actors(2)
        ran["predicted"] = here.predicted(made, 2, ran["others_cores"])
        made["two_actors"].append(ran)
        write(made)


PARTS: dict[str, Callable[[Made], None]] = {"work": work, "rates": rates, "one": one, "two": two}


def write(made: Made) -> None:
    """Keep the figures."""
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(rounded(made)) + "\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """Four digits of each figure."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> None:
    """Measure what is asked for, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parts = parser.parse_args().parts or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: the parts are {', '.join(PARTS)}")
    os.environ.update(here.ENVIRONMENT)  # read by libraries when they are imported
    made: Made = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    made["machine"] = {"cores": here.CORES, "in_flight": here.IN_FLIGHT}
    for name in PARTS:
        if name in parts:
            started = time.time()
            PARTS[name](made)
            made.setdefault("measured", {})[name] = {
                "day": datetime.now(UTC).date().isoformat(),
                "seconds": round(time.time() - started),
                "load": round(os.getloadavg()[0], 1),
            }
            write(made)
    if missing := set(PARTS) - set(made["measured"]):
        parser.exit(message=f"no page yet: {', '.join(sorted(missing))} are not measured\n")
    made["simulated"] = simulated(made["front_end_s"])
    write(made)
    PAGE.write_text(render(made), encoding="utf-8")


if __name__ == "__main__":
    main()
