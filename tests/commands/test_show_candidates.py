"""Candidates of a long answer as the terminal shows them: under their segment and beam."""

from typing import Any, cast

from rich.console import Console

from selfcorrect_rag.commands.show import show_candidates
from selfcorrect_rag.state import Candidate


def candidate(depth: int, beam: int, parent: int | None, text: str, **rest: Any) -> Candidate:
    made = {
        "depth": depth,
        "beam": beam,
        "parent": parent,
        "passage": 0,
        "text": text,
        "critique": {"ISREL": 0.5},
        "sequence_probability": 0.25,
        "hard": [],
        "score": 1.0,
        "path_score": 2.0,
        "dropped": None,
        "chosen": False,
    }
    return cast(Candidate, {**made, **rest})


def shown(*candidates: Candidate) -> list[str]:
    console = Console(width=100, highlight=False)
    with console.capture() as printed:
        show_candidates(console, candidates, "P")
    return [" ".join(line.split()) for line in printed.get().splitlines()]


def test_segments_stand_under_the_beam_that_they_go_on_from() -> None:
    lines = shown(
        candidate(0, 0, None, "A cat.", chosen=True),
        candidate(0, 0, None, "A dog.", dropped="pruned"),
        candidate(1, 0, 1, "It barks."),
        candidate(1, 0, 1, "It runs."),
        candidate(1, 1, 0, "It\x1b purrs.", chosen=True),
        candidate(2, 0, 4, "It sleeps."),
    )
    assert lines == [
        "P ISREL p(y) path candidate",
        "segment 1",
        "* 1 0.50 0.25 2.00 A cat.",
        "1 0.50 0.25 2.00 A dog. (pruned)",
        "segment 2, after “A dog.”",
        "1 0.50 0.25 2.00 It barks.",
        "1 0.50 0.25 2.00 It runs.",
        "segment 2, after “A cat.”",
        "* 1 0.50 0.25 2.00 It purrs.",
        "segment 3, after “It purrs.”",
        "1 0.50 0.25 2.00 It sleeps.",
    ]


def test_one_segment_has_scores_and_no_heading() -> None:
    assert shown(candidate(0, 0, None, "A cat.", passage=None)) == [
        "P ISREL p(y) score candidate",
        "- 0.50 0.25 1.00 A cat.",
    ]
    assert shown() == ["P p(y) score candidate"]
