"""What self-correction is worth: ``python -m benchmarks.evidence`` fills docs/evidence.md.

The same command goes on after a kill. Other models are named as in ``selfcorrect-rag eval``.
"""

import argparse
import json
from pathlib import Path

from benchmarks.evidence.figures import about, figures_of
from benchmarks.evidence.page import write
from benchmarks.evidence.runs import run_set
from benchmarks.evidence.sets import read_sets
from selfcorrect_rag.serving.options import add_options, config_from

FIGURES = "evidence.json"


def main() -> None:
    """Run what is missing, and write the page, its plots and its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=300, help="most questions of a set")
    parser.add_argument("--work", type=Path, default=Path("build/evidence"))
    parser.add_argument("--out", type=Path, default=Path("docs/evidence.md"))
    add_options(parser)
    args = parser.parse_args()
    config = config_from(args)
    sets = {
        found.name: figures_of(found, run_set(found, config, args.work.resolve()))
        for found in read_sets(args.most)
    }
    made = {"about": about(config), "sets": sets}
    write(made, args.out)
    figures = args.out.with_suffix("") / FIGURES
    figures.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
