"""vLLM's part of the benchmark for a GPU, at toy size on a CPU."""

from benchmarks.gpu import SIZES, vllm


def test_vllms_part_gives_its_figures() -> None:
    found = {key: value for some in vllm(SIZES["toy"]) for key, value in some.items()}
    assert found.keys() == {
        *("questions_per_s", "batch_s", "flat_s", "batch_over_flat", "own_python_ms"),
        *("requests_a_question", "prefill_tokens_per_s", "prefill_share_of_peak"),
        "long_questions_per_s",
    }
    assert found["requests_a_question"] == 10
    assert 0 < found["prefill_share_of_peak"] < 1
