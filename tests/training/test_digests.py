"""Digests: of weights in any files, and of passages in any order."""

from pathlib import Path

import pytest

from selfcorrect_rag.errors import ModelNotFound
from selfcorrect_rag.old_journal import digest_of_ids, digest_of_weights


@pytest.mark.parametrize(
    "names",
    [
        ["model.safetensors"],
        ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
        ["pytorch_model.bin"],
        ["adapter_model.safetensors"],
    ],
)
def test_weights_are_told_apart_by_content_and_by_file(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    first = digest_of_weights(tmp_path)
    (tmp_path / "README.md").write_text("Trained on Monday.")
    assert digest_of_weights(tmp_path) == first, "other files are no weights"
    (tmp_path / names[-1]).write_bytes(b"trained again")
    second = digest_of_weights(tmp_path)
    (tmp_path / names[-1]).rename(tmp_path / "other.bin")
    assert len({first, second, digest_of_weights(tmp_path)}) == 3


def test_a_folder_without_weights(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="holds no weights"):
        digest_of_weights(tmp_path)


def test_passages_in_any_order() -> None:
    assert digest_of_ids(["a", "b"]) == digest_of_ids({"b", "a"}) != digest_of_ids(["a", "c"])
    assert digest_of_ids([]) != digest_of_ids(["a"])
