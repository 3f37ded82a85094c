"""ASQA's short answers, ROUGE-Lsum and MAUVE: formulas written down once more, and traps."""

import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast

from selfcorrect_rag.errors import MissingExtra
from selfcorrect_rag.evaluation import long_answers
from selfcorrect_rag.evaluation.metrics import score
from selfcorrect_rag.evaluation.rows import Outcome, Question
from tests.evaluation.generated import long_rows, vary
from tests.evaluation.test_short_answers import squad

ROWS = long_rows()


def alce_text(outcome: Outcome) -> str:
    """The output as ALCE's script reads it, without citations."""
    text = (outcome.cited_answer or outcome.answer).strip().split("\n")[0]
    return re.sub(r"\[\d+", "", re.sub(r" \[\d+", "", text)).replace(" |", "").replace("]", "")


def em_of(question: Question, text: str) -> float | None:
    """str-em for texts of plain words."""
    pairs = question.extra["qa_pairs"]
    present = [
        any(squad(short) in squad(text) for short in pair.get("short_answers", pair.get("answers")))
        for pair in pairs
    ]
    return sum(present) / len(present) if pairs else None


def strict_text(outcome: Outcome) -> str:
    return "" if outcome.error or outcome.refused else outcome.answer


def test_parity_of_str_em_and_hit() -> None:
    official = [em_of(q, alce_text(o)) for q, o in ROWS]
    strict = [em_of(q, strict_text(o)) for q, o in ROWS]
    assert [long_answers.official_str_em(q, o) for q, o in ROWS] == official
    assert [long_answers.str_em(q, o) for q, o in ROWS] == strict
    hits = [[None if em is None else int(em == 1) for em in form] for form in (official, strict)]
    assert [long_answers.official_hit(q, o) for q, o in ROWS] == hits[0]
    assert [long_answers.hit(q, o) for q, o in ROWS] == hits[1]
    assert official != strict
    assert vary(official, 4)
    assert vary(hits[0], 3)


def asqa(answer: str, *pairs: list[str], **more: Any) -> tuple[Question, Outcome]:
    extra = {"qa_pairs": [{"short_answers": pair} for pair in pairs]}
    return Question("1", "?", extra=extra), Outcome("1", "rag", answer)._replace(**more)


def test_the_official_form_reads_one_line_and_parts_of_words() -> None:
    row = asqa("First because.\nThen London.", ["US"], ["London"])
    assert long_answers.official_str_em(*row) == 0.5
    assert long_answers.str_em(*row) == 0.5
    assert long_answers.official_str_em(*asqa("One\nLondon", ["London"])) == 0
    assert long_answers.hit(*asqa("One\nLondon", ["London"])) == 1
    assert long_answers.official_hit(*asqa("because", ["US"])) == 1
    assert long_answers.hit(*asqa("because", ["US"])) == 0
    assert long_answers.official_str_em(*asqa("", ["a"], cited_answer="19 [2]87")) == 1


def test_refused_and_failed_runs_contain_nothing() -> None:
    assert long_answers.str_em(*asqa("I do not know London", ["London"], refused=True)) == 0
    assert long_answers.str_em(*asqa("London", ["London"], error="down")) == 0


# ROUGE-Lsum after Lin (2004), section 3.2: words that no stemmer makes alike need none


def union_lcs_f(target: str, prediction: str) -> float:
    def split(text: str) -> list[list[str]]:
        return [re.findall(r"[a-z0-9]+", line) for line in text.split("\n") if line]

    wanted, said = split(target), split(prediction)
    left = [Counter(word for line in side for word in line) for side in (wanted, said)]
    hits = 0
    for sentence in wanted:
        union = {i for other in said for i in lcs(sentence, other)}
        for i in sorted(union):
            if all(side[sentence[i]] > 0 for side in left):
                hits += 1
                for side in left:
                    side[sentence[i]] -= 1
    sizes = [sum(map(len, side)) for side in (wanted, said)]
    if not hits:
        return 0.0
    recall, precision = (hits / size for size in sizes)
    return 2 * recall * precision / (recall + precision)


def lcs(one: list[str], other: list[str]) -> list[int]:
    best: dict[tuple[int, int], list[int]] = {}
    for i in range(len(one) + 1):
        for j in range(len(other) + 1):
            if not (i and j):
                best[i, j] = []
            elif one[i - 1] == other[j - 1]:
                best[i, j] = [*best[i - 1, j - 1], i - 1]
            else:
                best[i, j] = max(best[i - 1, j], best[i, j - 1], key=len)
    return best[len(one), len(other)]


def by_sentences(text: str) -> str:
    return re.sub(r"\.\s+", ".\n", text.lower())


def test_parity_of_rouge_lsum() -> None:
    pytest.importorskip("rouge_score")

    def best(question: Question, text: str, references: int) -> float:
        notes = question.extra["annotations"][:references]
        said = by_sentences(text)
        return max(union_lcs_f(by_sentences(note["long_answer"]), said) for note in notes)

    official = [long_answers.official_rouge_lsum(q, o) for q, o in ROWS]
    strict = [long_answers.rouge_lsum(q, o) for q, o in ROWS]
    assert official == pytest.approx([best(q, alce_text(o), 2) for q, o in ROWS])
    assert strict == pytest.approx([best(q, strict_text(o), 3) for q, o in ROWS])
    assert vary(official, 20)
    assert official != strict


def test_a_question_without_long_answers_has_no_rouge_and_one_may_stand_alone() -> None:
    pytest.importorskip("rouge_score")
    question, outcome = asqa("Amber birch.")
    assert long_answers.rouge_lsum(question, outcome) is None
    assert long_answers.rouge_lsum(question._replace(extra={"answer": "Amber."}), outcome) == (
        pytest.approx(2 / 3)
    )


def test_the_real_package_stems_and_joins() -> None:
    pytest.importorskip("rouge_score")
    question, outcome = asqa("The cats sat. The dog ran.")
    question = question._replace(extra={"answer": "The cat sat. A dog runs."})
    assert long_answers.rouge_lsum(question, outcome) == pytest.approx(4 / 6)


# MAUVE


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []

    def compute_mauve(**given: Any) -> SimpleNamespace:
        calls.append(given)
        return SimpleNamespace(mauve=0.25)

    module = ModuleType("mauve")
    module.compute_mauve = compute_mauve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mauve", module)
    return calls


def test_parity_of_what_mauve_compares(compared: list[dict[str, Any]]) -> None:
    def opening(question: Question, text: str) -> str:
        return " ".join((question.question + " " + text.strip()).split()[:100]).rstrip(".?!,")

    assert long_answers.official_mauve(ROWS) == long_answers.mauve(ROWS) == 0.25
    official, strict = compared
    human = [opening(q, q.extra["annotations"][0]["long_answer"]) for q, _ in ROWS]
    assert official["p_text"] == strict["p_text"] == human
    assert official["q_text"] == [opening(q, alce_text(o)) for q, o in ROWS]
    assert strict["q_text"] == [opening(q, strict_text(o)) for q, o in ROWS]
    assert official["q_text"] != strict["q_text"]
    assert (official["featurize_model_name"], official["max_text_length"]) == ("gpt2-large", 512)


def test_mauve_reads_a_hundred_words(compared: list[dict[str, Any]]) -> None:
    question, outcome = asqa("word " * 200)
    question = question._replace(extra={"answer": "x. " * 200})
    long_answers.mauve([(question, outcome)])
    (call,) = compared
    assert call["q_text"] == ["? " + " ".join(["word"] * 99)]
    assert call["p_text"][0].endswith("x. x")
    assert long_answers.mauve([asqa("no long answer")]) is None
    assert len(compared) == 1


def test_the_real_mauve_tells_like_answers_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mauve")
    folder = tmp_path / "gpt2-tiny"
    words = {word: i for i, word in enumerate(("<end>", "?", "amber", "birch", "cedar", "delta"))}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<end>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder)
    torch.manual_seed(0)
    sizes = GPT2Config(vocab_size=6, n_embd=16, n_layer=1, n_head=2, n_positions=512)
    GPT2Model(sizes).save_pretrained(folder)
    monkeypatch.setattr(long_answers, "MAUVE_MODEL", str(folder))
    rows = [asqa("cedar delta" if n % 2 else "delta cedar") for n in range(40)]

    def given(*answers: str) -> float:
        told = [
            (question._replace(extra={"answer": answers[n % len(answers)]}), outcome)
            for n, (question, outcome) in enumerate(rows)
        ]
        scored = score(told, "mauve")
        assert scored.rows == ()
        assert scored.value is not None
        return scored.value

    alike, unlike = given("delta cedar", "cedar delta"), given("amber birch", "birch amber")
    assert 0 <= unlike < 0.5 < alike <= 1


def test_missing_packages_are_named_with_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str, *args: Any, **kwargs: Any) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])

    long_answers._rouge_scorer.cache_clear()
    monkeypatch.setattr("selfcorrect_rag.errors.importlib.import_module", gone)
    question, outcome = asqa("Amber.")
    question = question._replace(extra={"answer": "Amber."})
    with pytest.raises(MissingExtra, match=r"rouge_score .*selfcorrect-rag\[evaluation\]"):
        long_answers.rouge_lsum(question, outcome)
    with pytest.raises(MissingExtra, match=r"mauve .*selfcorrect-rag\[mauve\]"):
        long_answers.mauve([(question, outcome)])
