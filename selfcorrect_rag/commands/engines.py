"""Which generator to use, and what runs it: options that several commands share."""

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.runnables import Runnable
from pydantic import SecretStr

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.models import (
    TransformersReflectionLLM,
    VLLMReflectionLLM,
    VLLMServerReflectionLLM,
)
from selfcorrect_rag.models.by_name import find_language_model

API_KEY = "VLLM_API_KEY"
"""Environment variable of the server's key, the one that vLLM's server itself reads."""


class BadEngineOption(SelfCorrectError, ValueError):
    """An option that the chosen engine does not take."""


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`opened_model` reads, to be checked before anything is loaded."""
    parser.set_defaults(check=check_engine)
    group = parser.add_argument_group("the generator")
    group.add_argument(
        "--model",
        metavar="NAME",
        help="a folder or hub name of a checkpoint with reflection tokens, such as "
        "selfrag/selfrag_llama2_7b; a nano model by default. With --engine server: the model's "
        "name there. With --engine chat: provider:model, such as openai:gpt-4o-mini, or "
        "module:attribute of a LangChain model of your own",
    )
    group.add_argument(
        "--engine",
        choices=["transformers", "vllm", "server", "chat"],
        default="transformers",
        help="what runs it: transformers here, vLLM here, a vLLM server, or a chat model's "
        "provider; prompts ask a chat model for what it has no reflection tokens for. Default: "
        "transformers.",
    )
    add_hardware_options(group)
    group.add_argument(
        "--base-url",
        default="http://localhost:8000",
        metavar="URL",
        help=f"server: where it listens; its key is read from {API_KEY}. Default: %(default)s.",
    )
    group.add_argument(
        "--tokenizer",
        default="",
        metavar="NAME",
        help="server: folder or hub name of the model's tokenizer, where it is not at hand under "
        "the server's own name for the model",
    )


def add_hardware_options(parser: "argparse._ActionsContainer") -> None:
    """Add what transformers and vLLM need to know of the machine; checked by
    :func:`check_hardware`."""
    parser.add_argument(
        "--device", help="transformers: cpu, cuda, cuda:1, mps; the best one here by default"
    )
    parser.add_argument(
        "--dtype",
        choices=["auto", "float32", "bfloat16", "float16"],
        help="transformers and vllm: type of the weights",
    )
    parser.add_argument(
        "--tensor-parallel", type=int, metavar="N", help="vllm: split the model over N GPUs"
    )
    parser.add_argument(
        "--engine-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="vllm: any other of its engine arguments, such as max_model_len=4096; repeatable",
    )


@contextmanager
def opened_model(args: argparse.Namespace, default: Path) -> Iterator[Runnable[Any, Any]]:
    """The model that the options name, else that in the folder ``default``; closed at the end.

    All reflect but a chat model, which a graph wraps where it needs one that does.

    Raises:
        NoLanguageModel, MissingExtra: there is no such chat model.
    """
    match args.engine:
        case "vllm":
            quiet_vllm()
            model = args.model or str(default)
            with VLLMReflectionLLM(model=model, engine=engine_options(args)) as llm:
                yield llm
        case "server":
            key = os.environ.get(API_KEY)
            with VLLMServerReflectionLLM(
                base_url=args.base_url,
                model=args.model or "",
                tokenizer=args.tokenizer,
                api_key=SecretStr(key) if key else None,
            ) as llm:
                yield llm
        case "chat":
            yield find_language_model(args.model)
        case _:
            yield TransformersReflectionLLM.from_pretrained(
                args.model or default, device=args.device, dtype=args.dtype
            )


def check_engine(args: argparse.Namespace) -> None:
    """Refuse what :func:`opened_model` could not open.

    Raises:
        BadEngineOption: an option is not for the chosen engine, or is no NAME=VALUE; or a chat
            model has no name.
    """
    check_hardware(args)
    if args.tokenizer and args.engine != "server":
        raise BadEngineOption("--tokenizer is for --engine server")
    if args.engine == "chat" and not args.model:
        raise BadEngineOption("--engine chat takes a --model, such as openai:gpt-4o-mini")


def check_hardware(args: argparse.Namespace) -> None:
    """Refuse what the engine does not take.

    Raises:
        BadEngineOption: an option is not for the chosen engine, or is no NAME=VALUE.
    """
    takes = {
        "--device": (args.device, ("transformers",)),
        "--dtype": (args.dtype, ("transformers", "vllm")),
        "--tensor-parallel": (args.tensor_parallel, ("vllm",)),
        "--engine-option": (args.engine_option, ("vllm",)),
    }
    for option, (given, engines) in takes.items():
        if given and args.engine not in engines:
            raise BadEngineOption(f"{option} is for --engine {' or '.join(engines)}")
    engine_options(args)


def quiet_vllm() -> None:
    """Keep vLLM's log out of standard output, where results belong; before it is imported."""
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def engine_options(args: argparse.Namespace) -> dict[str, Any]:
    """vLLM's own options among those that were given."""
    options: dict[str, Any] = {}
    if args.tensor_parallel:
        options["tensor_parallel_size"] = args.tensor_parallel
    if args.dtype:
        options["dtype"] = args.dtype
    for given in args.engine_option:
        name, equals, value = given.partition("=")
        if not equals:
            raise BadEngineOption(f"--engine-option takes NAME=VALUE, not {given}")
        try:
            options[name.replace("-", "_")] = json.loads(value)
        except json.JSONDecodeError:
            options[name.replace("-", "_")] = value
    return options
