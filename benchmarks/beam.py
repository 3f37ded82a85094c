"""What a narrow beam loses: simulated answers, by how finished ones compete with unfinished ones.

    python -m benchmarks.beam

Prints one line of JSON for each way of drawing critiques, and each probability that a segment is
the answer's last. A run is a tree of segments with random critiques: five passages, at most seven
segments, a beam of 2. ``missed`` counts the runs, of 400, in which it does not find the path that
the same rule finds with a beam of 40 that drops no unfinished answer; ``loss`` is the mean
difference in score, ``written`` the candidates written for an answer, ``segments`` its length, and
``best_segments`` the length of the wide beam's. The rules:

- ``one_race``: finished and unfinished paths share the beam's places;
- ``one_race_no_isuse``: the same, with ISUSE left out while anything is unfinished;
- ``own_places``: the graph's rule. Finished paths take no places, and what cannot become better
  than the best of them is not continued.

``even`` critiques are drawn evenly. ``sharp`` ones are like a trained model's: most near 0 or 1,
and most answers useful.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from selfcorrect_rag.nodes.beam_select import surviving
from selfcorrect_rag.nodes.generate_and_critique import scored
from selfcorrect_rag.reflection import path_score
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Beam, Candidate

RUNS, PASSAGES, DEPTH, WIDTH, WIDE = 400, 5, 7, 2, 40
SETTINGS = SelfRAGSettings(depth=DEPTH, beam_width=WIDTH)

Draw = Callable[[random.Random], tuple[float, float, float, float]]
"""ISREL, ISSUP, ISUSE and p of a segment."""
Rule = Callable[[list[Beam], int], list[Beam]]
"""From all paths, and how many further segments there may be, to the beams that are kept."""


def even(rng: random.Random) -> tuple[float, float, float, float]:
    return rng.random(), rng.random(), rng.uniform(-1, 1), rng.random()


def sharp(rng: random.Random) -> tuple[float, float, float, float]:
    isrel, issup = rng.betavariate(0.3, 0.3), rng.betavariate(0.3, 0.3)
    return isrel, issup, 2 * rng.betavariate(4, 1) - 1, rng.betavariate(5, 2)


class Tree:
    """The segments that a model would write in one run."""

    def __init__(self, seed: str, draw: Draw, last: float) -> None:
        self.seed, self.draw, self.last = seed, draw, last

    def continued(self, beam: Beam) -> list[Beam]:
        """A path with each of its next segments."""
        before = [segment["passage"] for segment in beam["segments"]]
        rng = random.Random(f"{self.seed} {before}")
        return [self._extended(beam, passage, rng) for passage in range(PASSAGES)]

    def _extended(self, beam: Beam, passage: int, rng: random.Random) -> Beam:
        isrel, issup, isuse, p = self.draw(rng)
        is_last = rng.random() < self.last
        segment = {
            "step": "retrieve",
            "passage": passage,
            "critique": {"ISREL": isrel, "ISSUP": issup, "ISUSE": isuse if is_last else None},
            "sequence_probability": p,
        }
        path = [*beam["segments"], cast(Candidate, segment)]
        score = path_score(scored(path), SETTINGS.weights, "mean")
        following = None if is_last else "retrieve"
        return cast(Beam, {"segments": path, "score": score, "next": following, "cut": None})


def one_race(paths: list[Beam], further: int) -> list[Beam]:
    return sorted(paths, key=lambda beam: -beam["score"])[:WIDTH]


def one_race_no_isuse(paths: list[Beam], further: int) -> list[Beam]:
    def score(beam: Beam) -> float:
        silent = [
            cast(Candidate, {**segment, "critique": {**segment["critique"], "ISUSE": None}})
            for segment in beam["segments"]
        ]
        return path_score(scored(silent), SETTINGS.weights, "mean")

    if all(beam["next"] is None for beam in paths):
        return one_race(paths, further)
    return sorted(paths, key=lambda beam: -score(beam))[:WIDTH]


def own_places(paths: list[Beam], further: int) -> list[Beam]:
    return surviving(paths, SETTINGS, further)


def wide(paths: list[Beam], further: int) -> list[Beam]:
    return surviving(paths, SETTINGS.model_copy(update={"beam_width": WIDE}), further)


class Answer(NamedTuple):
    """The path that a rule ends with, and how many candidates were written for it."""

    path: Beam
    written: int


def answer(tree: Tree, rule: Rule) -> Answer:
    beams, written = [cast(Beam, {"segments": [], "score": 0.0, "next": "retrieve"})], 0
    for depth in range(1, DEPTH + 1):
        going = [beam for beam in beams if beam["next"] is not None]
        if not going:
            break
        written += PASSAGES * len(going)
        ended = [beam for beam in beams if beam["next"] is None]
        beams = rule([*ended, *(b for beam in going for b in tree.continued(beam))], DEPTH - depth)
    return Answer(max(beams, key=lambda beam: beam["score"]), written)


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 3)


def main() -> None:
    for draw in (even, sharp):
        for last in (0.25, 0.5, 0.75):
            trees = [Tree(f"{draw.__name__} {last} {run}", draw, last) for run in range(RUNS)]
            best = [answer(tree, wide).path for tree in trees]
            figures = {}
            for rule in (one_race, one_race_no_isuse, own_places):
                answers = [answer(tree, rule) for tree in trees]
                losses = [b["score"] - a.path["score"] for a, b in zip(answers, best, strict=True)]
                figures[rule.__name__] = {
                    "missed": sum(loss > 1e-9 for loss in losses),
                    "loss": _mean(losses),
                    "written": _mean([a.written for a in answers]),
                    "segments": _mean([len(a.path["segments"]) for a in answers]),
                }
            setting = {"benchmark": "beam", "critiques": draw.__name__, "last": last, "runs": RUNS}
            length = _mean([len(path["segments"]) for path in best])
            print(json.dumps({**setting, "best_segments": length, **figures}))


if __name__ == "__main__":
    main()
