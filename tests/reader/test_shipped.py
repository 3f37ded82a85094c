"""The shipped networks on onnxruntime: answers, embeddings, threads, forks, damage."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree

import pytest

import selfcorrect_rag.errors
from selfcorrect_rag.errors import MissingExtra, ModelNotFound
from selfcorrect_rag.reader import Reader, ReaderEmbeddings, ReaderEvaluator, ReaderLLM
from selfcorrect_rag.reader.network import SHIPPED, load_tokenizer
from selfcorrect_rag.reader.reader import Passage, ReaderCalibration

TOWER = Passage("Tower", "The tower was opened by Maria Holm on 4 May 1889, after three years.")
DEPLOY = Passage("Deploy", "The staging server listens on port 8443. Deploys are on Fridays.")


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader.load()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the weights; a test that changes a file replaces it."""
    return Path(copytree(SHIPPED, tmp_path / "weights"))


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("When did the tower open?", "4 May 1889"),
        ("Who opened the tower?", "Maria Holm"),
        ("Which port does the staging server listen on?", "8443"),
    ],
)
def test_it_finds_the_answer_in_the_passage_that_has_it(
    reader: Reader, question: str, answer: str
) -> None:
    readings = reader.read([(question, TOWER), (question, DEPLOY)])
    right, wrong = readings if answer in TOWER.text else readings[::-1]
    assert answer in right.spans[0].text
    assert right.spans[0].confidence > 0.65 > 0.1 > wrong.relevant
    assert right.relevant > 0.7
    titled = [f"{passage.title} // {passage.text}" for passage in (TOWER, DEPLOY)]
    grades = ReaderEvaluator(reader).score(question, titled)
    assert grades == pytest.approx([2 * each.relevant - 1 for each in readings], abs=1e-4)


def test_it_retrieves_for_questions_and_not_for_courtesies(reader: Reader) -> None:
    wrote, thanks = reader.needs_evidence(["Who wrote Emma?", "Thank you very much!"])
    assert wrote[0] > 0.5 > thanks[0]


def test_batches_give_what_rows_give_alone(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    long = Passage("", " ".join([TOWER.text, "Nothing happens here."] * 60))
    asked = [("When did the tower open?", each) for each in (TOWER, DEPLOY, long, DEPLOY)]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    alone = [reader.read([each])[0] for each in asked]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with ThreadPoolExecutor(4) as pool:
        together = [reader.read(asked), *pool.map(reader.read, [asked] * 4)]
    relevant = pytest.approx([r.relevant for r in alone], abs=1e-4)
    for readings in together:
        assert [r.relevant for r in readings] == relevant
        assert [r.spans[0].text for r in readings] == [r.spans[0].text for r in alone]


def test_embeddings_are_of_unit_length_and_near_for_what_is_alike() -> None:
    embeddings = ReaderEmbeddings()
    texts = ["The cat sleeps.", "A kitten is napping.", "Interest rates rose.", "", "\ud800 [SEP]"]
    vectors = embeddings.embed_documents(texts * 9)
    assert {len(vector) for vector in vectors} == {384}
    for vector in vectors:
        assert sum(x * x for x in vector) == pytest.approx(1, abs=1e-4)

    def cosine(i: int, j: int) -> float:
        return sum(x * y for x, y in zip(vectors[i], vectors[j], strict=True))

    assert cosine(0, 1) > 0.5 > cosine(0, 2)
    assert cosine(1, 1 + 5) == pytest.approx(1, abs=1e-4)
    assert embeddings.embed_query(texts[0]) == pytest.approx(vectors[0], abs=1e-4)
    long = embeddings.embed_query("word " * 5_000)
    assert long == pytest.approx(embeddings.embed_query("word " * 254), abs=1e-4), "cut at its end"
    assert embeddings.embed_documents([]) == []


def test_other_weights_are_another_identity(folder: Path, reader: Reader) -> None:
    assert Reader.load(folder).identity == reader.identity
    with (folder / "reader.safetensors").open("r+b") as file:
        file.seek(5_000_000)
        file.write(b"\x01")
    assert Reader.load(folder).identity != reader.identity


@pytest.mark.parametrize("name", ["reader.onnx", "reader.safetensors", "words.safetensors"])
def test_a_damaged_network_is_named_in_one_line(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    for damaged in (content[: len(content) // 2], content[:9], b"", None):
        (folder / name).unlink()
        if damaged is not None:
            (folder / name).write_bytes(damaged)
        with pytest.raises(ModelNotFound, match=r"reader\.onnx cannot be read; install") as caught:
            ReaderLLM.load(folder)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "[1]", "{}", '{"calibration": {"answer": ["x"]}}'])
def test_a_damaged_calibration_or_tokenizer_is_named(tmp_path: Path, content: str) -> None:
    for load in (ReaderCalibration.load, load_tokenizer):
        with pytest.raises(ModelNotFound, match=str(tmp_path)):
            load(tmp_path)
    for name, load in (("reader.json", ReaderCalibration.load), ("tokenizer.json", load_tokenizer)):
        (tmp_path / name).write_text(content)
        with pytest.raises(ModelNotFound, match=name):
            load(tmp_path)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnxruntime", "tokenizers"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MissingExtra, match=rf"{name} is not installed.*\[demo\]"):
            selfcorrect_rag.reader.ReaderLLM.load()
        monkeypatch.undo()


SCRIPT = """
import os, sys
from selfcorrect_rag.reader import Reader, ReaderEmbeddings
from selfcorrect_rag.reader.reader import Passage
os.environ["OMP_NUM_THREADS"] = "2"
reader, embeddings = Reader.load(), ReaderEmbeddings()

def answer():
    passages = [Passage("", f"The port is {port}.") for port in (8443, 9000, 7000)]
    readings = reader.read([("Which port is it?", passage) for passage in passages])
    return [each.spans[0].text for each in readings], len(embeddings.embed_query("port"))

first = answer()
child = os.fork()
if not child:
    os._exit(0 if answer() == first else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child read something else"
assert answer() == first == (["8443", "9000", "7000"], 384), first
heavy = {"torch", "transformers", "safetensors", "chromadb"} & set(sys.modules)
assert not heavy, heavy
assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_reads_too_and_torch_is_not_imported() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)
