"""Rows for the metrics: questions and outcomes made by chance, the same ones every time."""

import random
from collections.abc import Sequence
from typing import Any

from selfcorrect_rag.evaluation.rows import Outcome, Question

WORDS = (
    *("the", "a", "an", "The", "A", "paris", "Paris", "london", "U.S.", "us", "because"),
    *("true", "True", "false", "know", "no", "Bell", "Bell's", "1990-1995", "1990", "1995"),
    *("port", "river", "bridge", "SUPPORTS"),
)
SHORT = ("paris", "Paris", "us", "U.S.", "no", "true", "1990", "the Bell", "a", "london bridge")
FACTS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")


def short_rows(count: int = 300) -> list[tuple[Question, Outcome]]:
    """Short answers, rationales, refusals and failures; some questions have no answers."""
    draw = random.Random(1)
    return [(_short_question(draw, i), _short_outcome(draw, i)) for i in range(count)]


def _short_question(draw: random.Random, i: int) -> Question:
    return Question(str(i), "Which?", tuple(draw.sample(SHORT, draw.choice((0, 1, 1, 2, 3)))))


def _short_outcome(draw: random.Random, i: int) -> Outcome:
    kind = draw.random()
    answer = "" if kind < 0.1 else _text(draw, draw.randint(1, 5))
    return Outcome(
        str(i),
        "rag",
        answer,
        rationale=_text(draw, draw.randint(4, 12)) if draw.random() < 0.7 else "",
        refused=0.1 < kind < 0.2,
        error="the model is down" if kind < 0.05 else "",
    )


def _text(draw: random.Random, words: int) -> str:
    ends = ("", "", ",", ".", "!", " -")
    return " ".join(draw.choice(WORDS) + draw.choice(ends) for _ in range(words))


def long_rows(count: int = 200) -> list[tuple[Question, Outcome]]:
    """Cited answers of several sentences and lines, over passages that hold some of their facts."""
    draw = random.Random(2)
    return [_long_row(draw, i) for i in range(count)]


def _long_row(draw: random.Random, i: int) -> tuple[Question, Outcome]:
    passages = tuple(
        {"title": f"Page {n}", "text": " ".join(draw.sample(FACTS, draw.randint(1, 4)))}
        for n in range(draw.randint(1, 5))
    )
    kind = draw.random()
    cited = "" if kind < 0.1 else _cited(draw, len(passages))
    extra: dict[str, Any] = {
        "topic": f"Person {i}",
        "annotations": [{"long_answer": _sentences(draw)} for _ in range(3)],
        "qa_pairs": [
            {draw.choice(("short_answers", "answers")): draw.sample(FACTS, 2)}
            for _ in range(draw.choice((0, 1, 2, 3)))
        ],
    }
    outcome = Outcome(
        str(i),
        "rag",
        _plain(cited),
        cited_answer=cited,
        passages=passages,
        refused=0.1 < kind < 0.2,
        error="the model is down" if kind < 0.05 else "",
    )
    return Question(str(i), f"Who is {i}?", extra=extra), outcome


def _cited(draw: random.Random, passages: int) -> str:
    sentences = []
    for _ in range(draw.randint(1, 4)):
        facts = " ".join(draw.sample(FACTS, draw.choice((1, 1, 2, 2, 3))))
        marks = "".join(
            f" [{draw.randint(1, passages) if draw.random() < 0.95 else draw.choice((0, 9))}]"
            for _ in range(draw.choice((0, 1, 1, 2, 2, 3, 4)))
        )
        sentences.append(f"Item {facts}{marks}.")
    breaks = [draw.choice((" ", " ", " ", "\n")) for _ in sentences]
    return "".join(s + b for s, b in zip(sentences, breaks, strict=True)).strip()


def _sentences(draw: random.Random) -> str:
    return " ".join(f"Item {' '.join(draw.sample(FACTS, 2))}." for _ in range(draw.randint(1, 3)))


def _plain(cited: str) -> str:
    for number in range(10):
        cited = cited.replace(f" [{number}]", "")
    return cited


def entails(premise: str, hypothesis: str) -> bool:
    """A stand-in for an entailment model: all facts that are stated stand in the premise."""
    stated = {word for word in hypothesis.lower().strip(".").split() if word in FACTS}
    return bool(stated) and stated <= set(premise.split())


def vary(scores: Sequence[float | None], least: int) -> bool:
    """Whether rows differ enough for a formula to be seen."""
    return len(set(scores)) >= least


def component_rows(count: int = 80) -> list[tuple[Question, Outcome]]:
    """Graded documents, strips and segments; some questions label their passages, some fail."""
    draw = random.Random(3)
    return [_component_row(draw, i) for i in range(count)]


def _component_row(draw: random.Random, i: int) -> tuple[Question, Outcome]:
    facts = [" ".join(draw.sample(FACTS, 2)) for _ in range(draw.randint(1, 6))]
    passages = tuple({"title": "", "text": text} for text in facts)
    grades = tuple(round(draw.uniform(-1, 1), 1) for _ in facts)
    labels = {"relevant": [draw.random() < 0.5 for _ in facts]} if draw.random() < 0.5 else {}
    candidates = [
        {
            "passage": place,
            "text": draw.choice(FACTS),
            "critique": {name: round(draw.random(), 1) for name in ("ISREL", "ISSUP", "ISUSE")},
            "sequence_probability": round(draw.random(), 2),
            "chosen": place == 0,
        }
        for place in range(len(facts))
    ]
    strips = [
        {"text": text, "score": 0.0, "kept": draw.random() < 0.5}
        for fact in facts
        for text in fact.split()
    ]
    outcome = Outcome(
        str(i),
        "crag",
        str(candidates[0]["text"]),
        documents=passages,
        passages=passages,
        retrieved=True,
        grades=grades,
        thresholds={"upper": 0.4, "lower": -0.4},
        action=draw.choice(("correct", "incorrect", "ambiguous")),
        strips=tuple(strips),
        candidates=tuple(candidates),
        error="down" if draw.random() < 0.1 else "",
    )
    return Question(str(i), "Which?", tuple(draw.sample(FACTS, 2)), extra=labels), outcome
