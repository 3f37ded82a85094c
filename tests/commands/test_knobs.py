"""Options of several graphs in one parser, where the same name may mean different things."""

import argparse
from typing import Any, Literal

import pytest
from pydantic import Field

from selfcorrect_rag.commands.knobs import add_knobs, settings_from
from selfcorrect_rag.serving.config import BadOption
from selfcorrect_rag.settings import Settings


class Near(Settings):
    mode: Literal["walk", "ride"] = Field(default="walk", description="How to go.")
    steps: int = Field(default=3, ge=1, description="How far, in 100 %.")


class Far(Settings):
    mode: Literal["ride", "fly"] = Field(default="fly", description="How to go.")
    height: float | None = Field(default=None, description="How high.")


BOTH: dict[str, type[Settings]] = {"near": Near, "far": Far}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    add_knobs(made, BOTH)
    return made


def read(graph: str, *options: str) -> Any:
    return settings_from(parser().parse_args(options), BOTH, graph)


def test_each_graph_reads_its_own_meaning() -> None:
    assert read("near") == Near()
    assert read("near", "--mode", "walk", "--steps", "2") == Near(steps=2)
    assert read("far", "--mode", "fly", "--height", "none") == Far()
    assert "mode" in read("far", "--mode", "fly").model_fields_set


@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        ("near", ["--mode", "fly"], "--mode: Input should be 'walk' or 'ride'"),
        ("near", ["--steps", "0"], "--steps: Input should be greater than or equal to 1"),
        ("near", ["--height", "1"], "--height is for --graph far"),
    ],
)
def test_values_and_options_of_another_graph_are_refused(
    graph: str, options: list[str], message: str
) -> None:
    with pytest.raises(BadOption) as refused:
        read(graph, *options)
    assert str(refused.value) == message


def test_help_gives_each_meaning() -> None:
    shown = " ".join(parser().format_help().split())
    assert "near: How to go. Default: walk. far: How to go. Default: fly." in shown
    assert "How far, in 100 %. Default: 3." in shown
    assert "knobs of near and far:" in shown
