"""The rows for RAGAS with the real package, which needs an environment of its own.

There, with langgraph, ragas and rapidfuzz, run
``python -m pytest --noconftest tests/evaluation/test_ragas.py``. Here it is skipped.
"""

import json
import os
import re
from pathlib import Path

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from selfcorrect_rag.evaluation.exports import export
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.run import Finished

os.environ["RAGAS_DO_NOT_TRACK"] = "true"
try:
    import ragas
except ImportError as error:  # also where a companion of another version lacks what it imports
    pytest.skip(f"ragas cannot be imported ({error})", allow_module_level=True)

RUN = Finished(
    [Question("q0", "Who built the mill?", ("Lind", "Lindh")), Question("q1", "Who was it?")],
    [
        Outcome("q0", "rag", "Lind", passages=({"title": "", "text": "Lind built the mill."},)),
        Outcome("q1", "rag", "", error="it broke"),
    ],
)


def test_rows_are_a_data_set() -> None:
    found = ragas.EvaluationDataset.from_list(list(export(RUN, "ragas")))
    assert [sample.response for sample in found] == ["Lind", ""]
    assert [sample.reference for sample in found] == ["Lind", None]
    assert len(found[0].retrieved_contexts) == 1


def test_the_python_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = list(export(RUN, "ragas"))[:1]
    Path("crag.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = Path(__file__).parents[2] / "docs" / "evaluation.md"
    section = page.read_text("utf-8").split("**RAGAS**")[1]
    (block,) = re.findall(r"```py\n(.*?)```", section, re.DOTALL)
    exec(compile(block, "evaluation.md", "exec"), {})
    said = capsys.readouterr().out.strip().splitlines()[-1]
    assert said == "{'exact_match': 1.0000, 'non_llm_string_similarity': 1.0000}"


def test_metrics_score_rows() -> None:
    from ragas.llms import LangchainLLMWrapper
    from ragas.metrics import ExactMatch, Faithfulness, NonLLMStringSimilarity

    said = (
        {"statements": ["Lind built the mill."]},
        {"statements": [{"statement": "Lind built the mill.", "reason": "So.", "verdict": 1}]},
    )
    model = FakeListChatModel(responses=[json.dumps(answer) for answer in said])
    metrics = [
        ExactMatch(),
        NonLLMStringSimilarity(),
        Faithfulness(llm=LangchainLLMWrapper(model)),
    ]
    data = ragas.EvaluationDataset.from_list(list(export(RUN, "ragas"))[:1])
    (scores,) = ragas.evaluate(data, metrics=metrics, show_progress=False).scores
    assert scores == {"exact_match": 1.0, "non_llm_string_similarity": 1.0, "faithfulness": 1.0}
