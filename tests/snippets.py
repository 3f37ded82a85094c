"""The Python of README, AGENTS.md, docs and examples: mypy --strict as it stands.

    python -m tests.snippets

The blocks of a page are one module, as a reader would paste them one after the other. Names that a
page leaves to its reader, such as ``llm``, are typed in :data:`GIVEN`.
"""

import ast
import builtins
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "snippets"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
GIVEN = """
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore

from selfcorrect_rag.models import ReflectionLLM, RetrievalEvaluator
from selfcorrect_rag.search import WebSearch
from selfcorrect_rag.crag import CRAG
from selfcorrect_rag import create_self_rag as create_self_rag

chat_model: BaseChatModel
detector: Any
document: Document
embeddings: Embeddings
evaluator: RetrievalEvaluator
generator: ReflectionLLM
graph: CRAG
llm: ReflectionLLM
retriever: BaseRetriever
second_retriever: BaseRetriever
vector_store: VectorStore
web: WebSearch
web_search: WebSearch

def search(query: str) -> AsyncIterator[dict[str, object]]: ...
"""
"""Names that a reader has by then."""
CHECKER = ["mypy", "--strict", "--no-warn-unused-ignores", "--cache-dir", f"{FOLDER}/.mypy_cache"]


def write_snippets(folder: Path = FOLDER) -> list[Path]:
    """One module for each page that has Python; a page's own names go before those of GIVEN."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "given.pyi").write_text(GIVEN, encoding="utf-8")
    written = []
    pages = (ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").glob("*.md")))
    for page in pages:
        if blocks := BLOCK.findall(page.read_text(encoding="utf-8")):
            code = "\n".join(blocks)
            lacking = ", ".join(undefined(code))
            module = folder / f"{page.stem.replace('-', '_')}_page.py"
            first = f"from given import {lacking}\n" if lacking else ""
            module.write_text(first + code, encoding="utf-8")
            written.append(module)
    return written


def undefined(code: str) -> list[str]:
    """The names that ``code`` reads and never binds."""
    read, bound = set(), set(dir(builtins))
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return sorted(read - bound)


def main() -> int:
    """Check the snippets and the examples, and return the checker's exit status."""
    modules = [*write_snippets(), *sorted((ROOT / "examples").glob("*.py"))]
    return subprocess.run([sys.executable, "-m", *CHECKER, *modules], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
