"""The one configuration: by options, by variables, and as it reaches the engines."""

import argparse
from pathlib import Path

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.search import BM25Index
from selfcorrect_rag.serving.config import BadOption, ServingConfig, option_name
from selfcorrect_rag.serving.options import add_options, config_from
from selfcorrect_rag.serving.parts import Parts
from tests.training.teacher import quick


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    add_options(made)
    return made


def parsed(*options: str) -> ServingConfig:
    return config_from(parser().parse_args(options))


def test_options_and_environment_say_the_same() -> None:
    options = ["--engine", "vllm", "--index", "my notes", "--web", "tavily"]
    options += ["--engine-option", "max_model_len=4096", "--engine-option", "quantization=a b"]
    options += ["--chat-model", "openai:gpt", "--tensor-parallel", "2"]
    config = parsed(*options)
    variables = config.as_environment()
    assert variables["SELFCORRECT_INDEX"] == "my notes"
    assert "SELFCORRECT_MODEL" not in variables
    assert ServingConfig.from_environment(variables) == config
    assert parsed() == ServingConfig() == ServingConfig.from_environment({"SELFCORRECT_WEB": ""})


@pytest.mark.parametrize(
    ("options", "engine", "is_nano"),
    [
        ([], "reader", False),
        (["--engine", "reader", "--model", "folder"], "reader", False),
        (["--model", "m"], "transformers", False),
        (["--engine", "transformers"], "transformers", True),
        (["--engine", "vllm"], "vllm", True),
        (["--engine", "vllm", "--model", "m"], "vllm", False),
        (["--engine", "server"], "server", False),
    ],
)
def test_what_answers(options: list[str], engine: str, is_nano: bool) -> None:
    config = parsed(*options)
    assert (config.runs_on, config.is_nano) == (engine, is_nano)
    assert ServingConfig.from_environment(config.as_environment()) == config


def test_the_readers_options() -> None:
    config = parsed("--answer-above", "0.8", "--show-guess")
    assert (config.answer_above, config.show_guess) == (0.8, True)
    variables = config.as_environment()
    assert variables == {"SELFCORRECT_ANSWER_ABOVE": "0.8", "SELFCORRECT_SHOW_GUESS": "True"}
    assert ServingConfig.from_environment(variables) == config


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("SELFCORRECT_ENGINE", "abacus", "SELFCORRECT_ENGINE: Input should be 'reader'"),
        ("SELFCORRECT_ANSWER_ABOVE", "1.5", "SELFCORRECT_ANSWER_ABOVE: Input should be less"),
        ("SELFCORRECT_TENSOR_PARALLEL", "many", "SELFCORRECT_TENSOR_PARALLEL: Input should be"),
        ("SELFCORRECT_TENSOR_PARALLEL", "0", "SELFCORRECT_TENSOR_PARALLEL: Input should be gr"),
        ("SELFCORRECT_TOKENIZER", "x", "--tokenizer is for --engine server"),
        ("SELFCORRECT_ENGINE", "chat", "--engine chat takes a --model"),
    ],
)
def test_a_variable_that_will_not_do(name: str, value: str, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        ServingConfig.from_environment({name: value})


def test_the_engines_own_options_pass_through() -> None:
    given = ["max_model_len=4096", "enforce-eager=true", "quantization=awq"]
    options = [part for value in given for part in ("--engine-option", value)]
    options += ["--tensor-parallel", "2", "--dtype", "bfloat16"]
    assert parsed("--engine", "vllm", *options).engine_arguments == {
        "tensor_parallel_size": 2,
        "dtype": "bfloat16",
        "max_model_len": 4096,
        "enforce_eager": True,
        "quantization": "awq",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "vllm", "--engine-option", "eager"], "NAME=VALUE, not eager"),
        (["--tensor-parallel", "2"], "--tensor-parallel is for --engine vllm"),
        (["--engine", "vllm", "--device", "cpu"], "--device is for --engine transformers"),
        (["--device", "cpu"], "--device is for --engine transformers"),
        (["--engine", "reader", "--model", "m", "--device", "cpu"], "--device is for --engine tra"),
        (["--model", "m", "--answer-above", "0"], "--answer-above is for --engine reader"),
        (["--engine", "server", "--show-guess"], "--show-guess is for --engine reader"),
        (["--engine", "server", "--dtype", "auto"], "--dtype is for --engine transformers or vllm"),
        (["--tokenizer", "x"], "--tokenizer is for --engine server"),
        (["--engine", "chat"], "--engine chat takes a --model, such as openai"),
        (["--engine", "chat", "--model", "a:b", "--device", "cpu"], "--device is for --engine tra"),
    ],
)
def test_options_that_do_not_fit_the_engine_are_named(options: list[str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        parsed(*options)


def test_a_field_that_there_is_not_is_named() -> None:
    with pytest.raises(BadOption, match="--modell: Extra inputs are not permitted"):
        ServingConfig(modell="x")
    assert option_name("base_url") == "--base-url"


def test_a_server_that_is_not_there() -> None:
    config = parsed("--engine", "server", "--base-url", "http://127.0.0.1:9")
    with Parts(config) as parts, pytest.raises(SelfCorrectError, match="no vLLM server answers"):
        _ = parts.llm


def test_a_chat_model_by_its_name() -> None:
    with Parts(parsed("--engine", "chat", "--model", "tests.training.teacher:quick")) as parts:
        assert parts.llm is quick


def test_an_index_that_plays_the_web_gives_as_many_pages_as_a_run_may_ask_for(
    tmp_path: Path,
) -> None:
    index = BM25Index(tmp_path / "web")
    index.add([Document(f"Emma, page {i}.") for i in range(9)])
    index.close()
    with Parts(ServingConfig(web=str(tmp_path / "web")), passages=2, pages=6) as parts:
        assert len(parts.web.search("Emma", 6)) == 6
