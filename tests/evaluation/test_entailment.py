"""Entailment models: classifiers and functions, asked once a pair and kept in a run's folder."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from selfcorrect_rag.errors import BadArgument, BadRun, ModelNotFound
from selfcorrect_rag.evaluation.entailment import (
    BATCH,
    EntailmentFunction,
    KeptEntailment,
    NLIClassifier,
    Pair,
    open_entailment,
)
from selfcorrect_rag.evaluation.metrics import score
from selfcorrect_rag.old_journal import only_run
from tests.evaluation.generated import entails, long_rows
from tests.tiny_evaluators import bert, bert_tokenizer

ROWS = long_rows()
CITATIONS = ("citation_recall", "citation_precision")
NLI = ("contradiction", "neutral", "ENTAILMENT")
WORDS = ("who", "is", "a", "novel", "emma", "?")
PAIRS = [(" ".join(WORDS[i:j]), WORDS[k]) for i in range(5) for j in (i + 1, 6) for k in range(6)]


def classifier(folder: Path, labels: Sequence[str] = NLI) -> str:
    model = bert()
    model.classifier = torch.nn.Linear(32, len(labels))
    torch.nn.init.normal_(model.classifier.weight)
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {label: index for index, label in enumerate(labels)}
    model.save_pretrained(folder)
    bert_tokenizer().save_pretrained(folder)
    return str(folder)


class Spy(EntailmentFunction):
    """Counts what is asked."""

    def __init__(self) -> None:
        super().__init__(entails, "spy")
        self.asked: list[Pair] = []

    def __call__(self, pairs: Sequence[Pair]) -> Iterator[bool]:
        self.asked += pairs
        return super().__call__(pairs)


def test_a_classifier_says_what_its_likeliest_label_is(tmp_path: Path) -> None:
    assert len(PAIRS) > BATCH
    model = open_entailment(classifier(tmp_path))
    assert isinstance(model, NLIClassifier)
    said = list(model(PAIRS))
    tokenizer, network = bert_tokenizer(), model._model
    for (premise, hypothesis), entailed in zip(PAIRS, said, strict=True):
        alone = network(**tokenizer(premise, hypothesis, return_tensors="pt")).logits[0]
        assert entailed == (int(alone.argmax()) == 2)
    assert set(said) == {True, False}
    assert list(model([("emma " * 500, "who is emma ?")]))  # cut to the model's positions


def test_a_model_without_entailment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="means entailment: good, not_entailment"):
        open_entailment(classifier(tmp_path, ("good", "not_entailment")))
    with pytest.raises(ModelNotFound):
        open_entailment(str(tmp_path / "nowhere"))
    for name, why in (("no_module:f", "cannot be opened"), (f"{__name__}:WORDS", "no function")):
        with pytest.raises(BadArgument, match=why):
            open_entailment(name)


def test_each_pair_that_matters_is_asked_once_and_never_again(tmp_path: Path) -> None:
    needed: set[Pair] = set()

    def seen(premise: str, hypothesis: str) -> bool:
        needed.add((premise, hypothesis))
        return entails(premise, hypothesis)

    plain = [
        score(ROWS, name, form, entails=seen)
        for name in CITATIONS
        for form in ("strict", "official")
    ]
    spy = Spy()
    kept = KeptEntailment(spy, tmp_path)
    kept.ask(ROWS[: len(ROWS) // 2])
    kept.ask(ROWS)
    assert len(spy.asked) == len(set(spy.asked))
    assert set(spy.asked) == needed
    again = Spy()
    reopened = KeptEntailment(again, tmp_path)
    reopened.ask(ROWS)
    assert again.asked == []
    assert [
        score(ROWS, name, form, entails=reopened)
        for name in CITATIONS
        for form in ("strict", "official")
    ] == plain
    assert (reopened("amber", "amber"), reopened("amber", "birch")) == (True, False)
    assert again.asked == [("amber", "amber"), ("amber", "birch")]


def test_another_model_is_asked_itself_and_a_busy_folder_is_refused(tmp_path: Path) -> None:
    KeptEntailment(Spy(), tmp_path).ask(ROWS[:9])
    other = Spy()
    other.identity = "another"
    KeptEntailment(other, tmp_path).ask(ROWS[:9])
    assert other.asked
    with only_run(tmp_path), pytest.raises(BadRun, match="another run works in"):
        KeptEntailment(other, tmp_path).ask(ROWS[:9])
