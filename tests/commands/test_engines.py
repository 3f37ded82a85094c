"""The options of the generator, as they reach the engines."""

import argparse

import pytest

from selfcorrect_rag.commands.engines import (
    BadEngineOption,
    add_model_options,
    check_engine,
    engine_options,
    opened_model,
)
from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.nano import generator_path
from tests.training.teacher import quick


def parsed(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_model_options(parser)
    return parser.parse_args(options)


def test_the_engines_own_options_pass_through() -> None:
    args = parsed(
        "--engine",
        "vllm",
        "--tensor-parallel",
        "2",
        "--dtype",
        "bfloat16",
        "--engine-option",
        "max_model_len=4096",
        "--engine-option",
        "enforce-eager=true",
        "--engine-option",
        "quantization=awq",
    )
    assert engine_options(args) == {
        "tensor_parallel_size": 2,
        "dtype": "bfloat16",
        "max_model_len": 4096,
        "enforce_eager": True,
        "quantization": "awq",
    }


def test_an_engine_option_without_a_value() -> None:
    with pytest.raises(BadEngineOption, match="NAME=VALUE, not eager"):
        check_engine(parsed("--engine", "vllm", "--engine-option", "eager"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tensor-parallel", "2"], "--tensor-parallel is for --engine vllm"),
        (["--engine", "vllm", "--device", "cpu"], "--device is for --engine transformers"),
        (["--engine", "server", "--dtype", "auto"], "--dtype is for --engine transformers or vllm"),
        (["--tokenizer", "x"], "--tokenizer is for --engine server"),
    ],
)
def test_options_of_another_engine_are_named(options: list[str], said: str) -> None:
    with pytest.raises(BadEngineOption, match=said):
        check_engine(parsed(*options))


def test_a_server_that_is_not_there() -> None:
    args = parsed("--engine", "server", "--base-url", "http://127.0.0.1:9")
    check_engine(args)
    with (
        pytest.raises(SelfCorrectError, match="no vLLM server answers"),
        opened_model(args, generator_path()),
    ):
        pass


def test_a_chat_model_is_named() -> None:
    with pytest.raises(BadEngineOption, match="--engine chat takes a --model, such as openai"):
        check_engine(parsed("--engine", "chat"))
    with pytest.raises(BadEngineOption, match="--device is for --engine transformers"):
        check_engine(parsed("--engine", "chat", "--model", "a:b", "--device", "cpu"))
    args = parsed("--engine", "chat", "--model", "tests.training.teacher:quick")
    check_engine(args)
    with opened_model(args, generator_path()) as model:
        assert model is quick
