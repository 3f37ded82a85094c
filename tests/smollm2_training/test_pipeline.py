"""``make selfrag-smollm2`` on a random Llama and a handful of rows: killed, and run again."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from selfcorrect_rag.models.checkpoints import load_tokenizer, save_tokenizer
from smollm2_training.adapters import merge
from tests.reader_training.test_data import needs_data
from tests.snippets import ROOT
from tests.training.toys import lines, llama, same, weights

TIMEOUT_S = 500
RATIONALES = "tests.cli.test_commands:open_model"  # a random model never ends
OPTIONS = {
    "max_length": 4096, "batch_size": 4, "per_device_batch_size": 1, "num_train_epochs": 0.5,
    "save_steps": 2, "trainer": "'{}'", "lora_rank": 2,
}  # fmt: skip


def save_base(folder: Path) -> None:
    """A Llama of 100 kB that reads bytes, so with many positions."""
    model, words = llama(tied=True)
    model.config.max_position_embeddings = 16_384
    words.chat_template = "{{ messages[0]['content'] }}\n"
    model.save_pretrained(folder)
    save_tokenizer(words, folder)


@pytest.mark.slow
@needs_data
def test_the_pipeline_resumes_and_ends_in_figures(tmp_path: Path) -> None:
    base, out = tmp_path / "base", tmp_path / "out"
    save_base(base)
    command = [
        *("make", "--directory", str(ROOT), "--old-file", ".venv/.dev", "selfrag-smollm2"),
        *(f"BIN={Path(sys.executable).parent}", f"SMOLLM2={out}", f"SMOLLM2_BASE={base}"),
        *("SMOLLM2_LABELS=--most 5", "SMOLLM2_QUESTIONS=--most 3 --rationales 8"),
        f"SMOLLM2_ROWS=augment --critic {out}/critic/critic",
        f"SMOLLM2_OPTIONS={' '.join(f'--set {k}={v}' for k, v in OPTIONS.items())}",
        f"SMOLLM2_RATIONALES=--set model={RATIONALES} --set consistent_only=false",
        "SMOLLM2_EVIDENCE=--sets popqa --most 2 --methods rag likelihood self_rag crag",
    ]
    # No GPU, as trainings on one would not compare.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen(command, start_new_session=True, env=environment)
    deadline = time.monotonic() + TIMEOUT_S
    while not [*out.glob("critic/checkpoints/checkpoint-*/trainer_state.json")]:
        assert first.poll() is None, "it ended before a checkpoint"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    labelled = (out / "labels.jsonl").stat().st_mtime_ns
    run = partial(subprocess.run, command, env=environment, capture_output=True, text=True)
    done = run(timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (out / "labels.jsonl").stat().st_mtime_ns == labelled, "it is not written again"
    critic = json.loads((out / "critic/report.json").read_text())
    assert {*critic["test"]["accuracy"]} == {"Retrieve", "ISREL", "ISSUP", "ISUSE"}
    assert "[Utility:" in lines(out / "generator.jsonl")[0]["output"]
    figures = (json.loads(f.read_text()) for f in sorted(out.glob("evidence*/evidence.json")))
    methods, asked = (each["sets"]["popqa"]["whole"]["methods"] for each in figures)
    assert {*asked} == {"ralm", "instruct_rag"}
    assert "Failed" not in (out / "evidence-instruct/runs/popqa-whole/rows.jsonl").read_text()
    assert "self_rag:weight_issup=2" in methods
    assert {m.split(":")[0] for m in methods} == {"rag", "likelihood", "self_rag", "crag"}
    assert "weights" in (out / "evidence/runs/popqa-whole/settings.json").read_text()
    assert methods["self_rag"]["calls"] > methods["likelihood"]["calls"] == 0
    for name in ("critic", "generator", "instruct"):
        assert "apache-2.0" in (out / f"adapters/{name}/README.md").read_text()
    # What is shipped gives the checkpoint again, but for rounding.
    adapter = out / "adapters/generator"
    assert sum(file.stat().st_size for file in adapter.iterdir()) < 100_000, "no embeddings"
    merge(adapter, base, tmp_path / "merged")
    made, trained = weights(tmp_path / "merged"), weights(out / "generator/generator")
    assert same(made, trained, atol=0.02), "which takes the same precision"
    learned = load_tokenizer(tmp_path / "merged").convert_tokens_to_ids("[Relevant]")
    mean = AutoModelForCausalLM.from_pretrained(base).get_input_embeddings().weight.mean(0)
    assert not torch.allclose(made["model.embed_tokens.weight"][learned], mean, atol=1e-5)
    assert "Nothing to be done" in run(check=True).stdout
