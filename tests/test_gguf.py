"""Base models in GGUF files: transformers dequantises them, and they train and save."""

import sys
from pathlib import Path

import gguf
import pytest
import torch

from selfcorrect_rag.errors import MissingExtra, ModelNotFound
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.models.checkpoints import load_language_model
from selfcorrect_rag.training.critic import CriticOptions
from selfcorrect_rag.training.fine_tuning import load_decoder
from selfcorrect_rag.training.generator import add_control_tokens
from tests.training.toys import llama


def write_gguf(path: Path) -> dict[str, torch.Tensor]:
    """Write a Llama, its matrices in blocks of eight bits; return the weights."""
    _, words = llama()
    vocab = [*sorted(words.get_vocab(), key=words.get_vocab().__getitem__), "ab"]
    writer, size, block = gguf.GGUFWriter(path, "llama"), 32, gguf.GGMLQuantizationType.Q8_0
    for add, value in (
        (writer.add_block_count, 1), (writer.add_context_length, 512),
        (writer.add_embedding_length, size), (writer.add_feed_forward_length, size),
        (writer.add_head_count, 1), (writer.add_layer_norm_rms_eps, 1e-6),
        (writer.add_vocab_size, len(vocab)), (writer.add_tokenizer_model, "gpt2"),
        (writer.add_token_list, vocab), (writer.add_token_merges, ["a b"]),
        (writer.add_token_types, [3 if t in words.all_special_tokens else 1 for t in vocab]),
        (writer.add_bos_token_id, words.bos_token_id),
        (writer.add_eos_token_id, words.eos_token_id),
        (writer.add_chat_template, "{{ messages[0]['content'] }}"),
    ):  # fmt: skip
        add(value)
    matrices = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    shapes = {f"blk.0.{name}": (size, size) for name in matrices}
    shapes |= {"token_embd": (len(vocab), size), "output_norm": (size,)}
    shapes |= {f"blk.0.{name}": (size,) for name in ("attn_norm", "ffn_norm")}
    torch.manual_seed(0)
    made = {name: torch.randn(shape) * 0.1 for name, shape in shapes.items()}
    for name, weight in made.items():
        if weight.ndim == 1:
            writer.add_tensor(f"{name}.weight", weight.numpy())
        else:
            packed = gguf.quants.quantize(weight.numpy(), block)
            writer.add_tensor(f"{name}.weight", packed, raw_dtype=block)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return made


def test_a_gguf_file_is_a_base_model(tmp_path: Path) -> None:
    path = tmp_path / "tiny.Q8_0.gguf"
    written = write_gguf(path)
    options = CriticOptions(data=tmp_path, out=tmp_path, model=str(path))
    model, tokenizer, longest = load_decoder(options, None)
    layer = model.model.layers[0]
    assert layer.mlp.up_proj.weight.requires_grad, "packed weights cannot be trained"
    close = {"atol": 0.01, "rtol": 0.0}
    assert torch.allclose(layer.mlp.up_proj.weight, written["blk.0.ffn_up"], **close)
    assert torch.allclose(model.lm_head.weight, written["token_embd"], **close), "tied"
    assert longest == 512
    assert tokenizer.chat_template == "{{ messages[0]['content'] }}"
    assert tokenizer.decode(tokenizer("Emma, 1815")["input_ids"]) == "Emma, 1815"
    add_control_tokens(model, tokenizer)
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    saved = TransformersReflectionLLM.from_pretrained(tmp_path / "saved", device="cpu")
    again, _ = load_language_model(path, "float32")
    assert torch.equal(saved._model.model.norm.weight, again.model.norm.weight)


def test_a_gguf_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "broken.gguf"
    with pytest.raises(ModelNotFound, match=r"cannot load a model from .*broken\.gguf: "):
        load_language_model(path, "float32")
    path.write_bytes(b"GGUF, and then nothing")
    with pytest.raises(ModelNotFound, match=r"cannot load a model from .*broken\.gguf: "):
        load_language_model(path, "float32")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtra, match=r'gguf is not installed: .*"selfcorrect-rag\[gguf\]"'):
        TransformersReflectionLLM.from_pretrained(path)
