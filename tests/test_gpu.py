"""The benchmark for a GPU runs at toy size on a CPU, but for the part that needs vLLM."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu import LIMITS, PARTS, SIZES, main

FIGURES = {
    "machine": {"device", "date", "python", "torch", "transformers", "vllm"},
    "evaluator": {
        *("official_pairs_per_s", "question_pairs_per_s", "question_over_official"),
        *("bulk_pairs_per_s", "bulk_over_official"),
    },
    "transformers": {"questions_per_s", "peak_gb", "prompt_tokens", "generated_tokens"},
    "training": {"critic_tiny_steps_per_s", "generator_tiny_steps_per_s"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_part_gives_its_figures(name: str) -> None:
    found = {key: value for some in PARTS[name](SIZES["toy"]) for key, value in some.items()}
    assert found.keys() == FIGURES[name]
    assert all(value > 0 for value in found.values() if isinstance(value, int | float))
    assert 2100 < found.get("prompt_tokens", 2200) < 2300


@pytest.mark.slow
def test_a_part_that_fails_or_takes_too_long_says_why_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sum(LIMITS.values()) <= 8 * 60
    monkeypatch.setitem(LIMITS, "evaluator", 0.01)
    out = tmp_path / "new" / "gpu.json"
    given = ["--size", "toy", "--out", str(out), "--parts", "evaluator", "vllm"]
    monkeypatch.setattr("sys.argv", ["gpu", *given])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1, "no part has figures"
    parts = json.loads(out.read_text("utf-8"))["parts"]
    assert list(map(json.loads, capsys.readouterr().out.splitlines())) == parts
    assert [part.get("error") for part in parts] == [
        "it took longer than 0 s",
        "ModuleNotFoundError: No module named 'vllm'",
    ]
