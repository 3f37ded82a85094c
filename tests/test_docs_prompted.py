"""The examples of docs/prompted.md work as written."""

from langchain_core.documents import Document

from selfcorrect_rag.models import PromptedReflectionLLM
from selfcorrect_rag.models.classification import MODES
from tests.prompted_runs import NOVEL, SEQUEL, TOWN, generate, opinion, reader
from tests.providers import LOGPROBS, Provider
from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "prompted.md").read_text(encoding="utf-8")


def test_the_python_runs() -> None:
    passage = Document("Middlemarch is by George Eliot.", metadata={"title": "Middlemarch"})
    names: dict[str, object] = {
        "chat_model": Provider(answer=opinion, **LOGPROBS),
        "retriever": lambda query: [passage],
    }
    for block in BLOCK.findall(PAGE):
        exec(compile(block, "prompted.md", "exec"), names)
    assert names["result"]["answer"] == "George Eliot."  # type: ignore[index]


def test_the_modes_and_the_calls_of_the_page() -> None:
    rows = [line.split("|")[1].strip(" `") for line in PAGE.splitlines() if line.startswith("| `")]
    assert tuple(rows) == MODES
    assert "six calls by default, four with `candidates=1`" in PAGE
    decision = 1
    for candidates, calls in ((2, 6), (1, 4)):
        llm = PromptedReflectionLLM(Provider(answer=reader, **LOGPROBS), candidates=candidates)
        segments = generate(llm, TOWN, NOVEL, SEQUEL)
        assert decision + sum(segment["requests"] for segment in segments) == calls
