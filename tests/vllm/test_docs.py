"""docs/vllm.md runs as written, on the nano generator."""

import re
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.demo import generator_path
from selfcorrect_rag.models import VLLMReflectionLLM

DOCS = Path(__file__).parents[2] / "docs" / "vllm.md"
PASSAGE = Document(
    "Middlemarch is a novel by the English author George Eliot.", metadata={"title": "Middlemarch"}
)


def blocks() -> list[str]:
    text = DOCS.read_text(encoding="utf-8").replace(
        "selfrag/selfrag_llama2_7b", str(generator_path())
    )
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


async def test_the_python_runs(engine: VLLMReflectionLLM) -> None:
    names: dict[str, Any] = {"__name__": "__main__", "retriever": lambda query: [PASSAGE]}
    first, second = blocks()
    exec(compile(first, "vllm.md", "exec"), names)
    assert "George Eliot" in names["result"]["answer"]
    exec(compile(second, "vllm.md", "exec"), names)
    graph = create_self_rag(engine, names["retriever"])
    results = await names["answer_all"](graph, ["Who wrote Middlemarch?", ""])
    assert "George Eliot" in results[0]["answer"]
    assert isinstance(results[1], Exception)


def test_every_option_that_the_docs_name_exists() -> None:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from selfcorrect_rag.cli import parser

    options = set(re.findall(r"--[a-z][a-z-]*", DOCS.read_text(encoding="utf-8")))
    ask = parser(["ask"])._subparsers._group_actions[0].choices["ask"]  # type: ignore[union-attr, index]
    serve = make_arg_parser(FlexibleArgumentParser())._option_string_actions
    assert options - set(ask._option_string_actions) <= set(serve)
