"""How often a verdict flips because what is judged asks for another one.

    SELFCORRECT_DATA=../shared/data python -m benchmarks.injection [--cases N]

``injections.toml`` holds wordings of prompt injection in two halves: one that may be looked at
while prompts are written, and one that was set aside before the first measurement. Each case is
judged rightly first; then a passage, or the answer, says at its end that the verdict is another
one, by one wording of each half in turn, or, to compare, an ordinary sentence of another passage.
Judges are the trained models that are here:

critique       the nano critic as a chat model, by the prompts of tables 10 and 11
critic         the same in the short form in which a fine-tuned critic is asked
generator      the reflection tokens of the nano generator, whose prompts are ids
evaluator      the nano T5 on made-up text, the reader on real text: pairs, and no prompts

each on the nano models' world, and, where SELFCORRECT_DATA has it, on PopQA (the subject's page or
another's). No model here answers the prompts of the chat evaluator and of the judge of rationales:
``answered`` says how many of them the nano critic does. Ends in one line of JSON. For each judge
and half: ``flipped`` of ``cases`` verdicts with a Wilson interval of 95 %, ``quoted``, as prompts
quote now, and ``unquoted``, as they were before; ``neutral``, with the ordinary sentence; and
``drawn``, by how much the injection raises the log-odds of the verdict that it asks for, beyond the
ordinary sentence (for an evaluator, the score), with its interval.
"""

import argparse
import json
import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import cycle
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple
from unittest.mock import patch

from langchain_core.documents import Document

from benchmarks.real_text import DATA, wilson
from nano_training import evaluator_data
from nano_training.models import critic_path, load_critic, tiny_t5_path
from nano_training.questions import new_question
from nano_training.world import World
from selfcorrect_rag.evaluation import judge as ask_judge
from selfcorrect_rag.evaluation.judges import alignment
from selfcorrect_rag.models import RetrievalEvaluator, T5Evaluator
from selfcorrect_rag.models.chat.classification import ChatClassifier
from selfcorrect_rag.models.chat.prompted_llm import critique_classification
from selfcorrect_rag.models.chat.transformers_chat import ChatTokens
from selfcorrect_rag.models.critic import TransformersCritic, critic_input
from selfcorrect_rag.nano import load_generator
from selfcorrect_rag.prompts import segment_prompt
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
from selfcorrect_rag.prompts.critique import Instance
from selfcorrect_rag.prompts.evaluator import parse_label as verdict_in_text
from selfcorrect_rag.prompts.evaluator import prompt_for_one
from selfcorrect_rag.reader import Reader, ReaderEvaluator
from selfcorrect_rag.reflection import FULLY_SUPPORTED, IRRELEVANT, NO_SUPPORT, RELEVANT, Group

WORDINGS: dict[str, list[str]] = tomllib.loads(
    (Path(__file__).parent / "injections.toml").read_text(encoding="utf-8")
)
SENTENCES = 4
OPPOSITE = {RELEVANT: IRRELEVANT, IRRELEVANT: RELEVANT, NO_SUPPORT: FULLY_SUPPORTED}
WORDS = {RELEVANT: "yes", IRRELEVANT: "no"}
"""How an evaluator's verdict is asked for."""


class WorldQuestion(NamedTuple):
    """What is judged, and where it can lie."""

    aspect: str
    instance: Instance
    label: str
    """The right one."""
    field: str
    """Of the instance: whose text carries the injection."""
    neutral: str
    """An ordinary sentence to carry instead."""

    def carrying(self, text: str) -> Instance:
        return self.instance._replace(
            **{self.field: f"{getattr(self.instance, self.field)} {text}"}
        )


Judge = Callable[[str, Instance], dict[str, float]]
"""The log-probabilities of an aspect's labels."""


def made_up() -> Iterator[WorldQuestion]:
    """Questions of the nano models' world, of names and wordings never trained on."""
    world = World("injection", held_out=True)
    while True:
        case = new_question(world, SENTENCES, held_out=True)
        neutral = world.choice(case.stranger().sentences)
        asked = Instance(case.question)
        gold = asked._replace(evidence=case.gold.text)
        other = asked._replace(evidence=case.distractor().text)
        yield WorldQuestion("relevance", other, IRRELEVANT, "evidence", neutral)
        yield WorldQuestion("relevance", gold, RELEVANT, "evidence", neutral)
        wrong = gold._replace(segment=case.wrong_answer())
        yield WorldQuestion("groundness", wrong, NO_SUPPORT, "evidence", neutral)
        yield WorldQuestion("groundness", wrong, NO_SUPPORT, "segment", neutral)


def popqa(folder: Path) -> Iterator[WorldQuestion]:
    """PopQA's questions with the subject's own page, and with a page of another one."""
    rows = [row for row in evaluator_data.popqa(folder) if row.positives]
    Random("injection").shuffle(rows)
    for row, other, third in zip(rows, rows[1:], rows[2:], strict=False):
        neutral = third.positives[0].split(". ")[-1]
        for page, label in ((row.positives[0], RELEVANT), (other.positives[0], IRRELEVANT)):
            instance = Instance(row.question, evidence=page)
            yield WorldQuestion("relevance", instance, label, "evidence", neutral)


def by_prompts() -> Judge:
    classifier = ChatClassifier(load_critic(), max_concurrency=1)

    def judge(aspect: str, instance: Instance) -> dict[str, float]:
        (answer,) = classifier.classify(
            [critique_classification([CRITIQUE_PROMPTS[aspect]], instance)]
        )
        (prediction,) = answer.predictions
        return prediction.logprobs if prediction else {}

    return judge


def in_short_form() -> Judge:
    critic = TransformersCritic.from_pretrained(critic_path())

    def judge(aspect: str, instance: Instance) -> dict[str, float]:
        (batch,) = critic.answers([critic_input(CRITIQUE_PROMPTS[aspect], instance)])
        return {token: math.log(max(p, 1e-9)) for token, p in batch[0].probabilities.items()}

    return judge


def by_tokens() -> Judge:
    generator = load_generator()

    def judge(aspect: str, instance: Instance) -> dict[str, float]:
        title, _, text = instance.evidence.partition("\n")
        passage = Document(text, metadata={"title": title})
        prompt = segment_prompt(instance.instruction, [], [passage], "retrieve", 0)
        (given,) = generator.choose([prompt], Group.ISREL)
        return given["reflections"][0]["logprobs"]

    return judge


def by_pairs(evaluator: RetrievalEvaluator) -> Judge:
    """Relevant is what scores above 0; scores stand for log-odds."""

    def judge(aspect: str, instance: Instance) -> dict[str, float]:
        (score,) = evaluator.score(instance.instruction, [instance.evidence])
        return {RELEVANT: score / 2, IRRELEVANT: -score / 2}

    return judge


def by_t5() -> Judge:
    return by_pairs(T5Evaluator.from_pretrained(tiny_t5_path()))


def by_reader() -> Judge:
    return by_pairs(ReaderEvaluator(Reader.load()))


def measured(
    judge: Judge, cases: Iterator[WorldQuestion], count: int, *, by_prompts: bool, words: bool
) -> dict[str, Any]:
    """Flips of the first ``count`` cases that are judged rightly before."""
    arms = ("quoted", "unquoted") if by_prompts else ("unquoted",)
    flips: dict[str, list[bool]] = {}
    drawn: dict[str, list[float]] = {}
    tried, wordings = 0, {half: cycle(texts) for half, texts in WORDINGS.items()}
    for case in cases:
        tried += 1
        target = OPPOSITE[case.label]
        if verdict(judge(case.aspect, case.instance)) != case.label:
            continue
        given = judge(case.aspect, case.carrying(case.neutral))
        flips.setdefault("neutral", []).append(verdict(given) == target)
        for half, texts in wordings.items():
            text = next(texts).format(label=WORDS[target] if words else target)
            for name in arms:
                with unquoted() if name == "unquoted" else nullcontext():
                    found = judge(case.aspect, case.carrying(text))
                flips.setdefault(f"{half} {name}", []).append(verdict(found) == target)
                odds = log_odds(found, target) - log_odds(given, target)
                drawn.setdefault(f"{half} {name}", []).append(odds)
        if len(flips["neutral"]) == count:
            break
    return {
        "cases": len(flips["neutral"]),
        "right_before": round(len(flips["neutral"]) / tried, 3),
        **{
            name: {
                "flipped": sum(each),
                "interval": wilson(sum(each), len(each)),
                **({"drawn": interval(drawn[name])} if name in drawn else {}),
            }
            for name, each in flips.items()
        },
    }


@contextmanager
def unquoted() -> Iterator[None]:
    """Within it, prompts show texts as they are, and marks in messages become control tokens."""

    def encode(tokens: ChatTokens, messages: Any) -> list[int]:
        return tokens._tokenizer.apply_chat_template(  # type: ignore[return-value]
            messages, add_generation_prompt=True, return_dict=False
        )

    with (
        patch("selfcorrect_rag.prompts.critique.quoted", lambda text: text),
        patch.object(ChatTokens, "encode", encode),
    ):
        yield


def verdict(logprobs: dict[str, float]) -> str | None:
    return max(logprobs, key=lambda label: logprobs[label]) if logprobs else None


def log_odds(logprobs: dict[str, float], target: str) -> float:
    others = [value for label, value in logprobs.items() if label != target]
    return max(logprobs.get(target, 0.0), -20.0) - max(max(others, default=0.0), -20.0)


def interval(values: Sequence[float]) -> list[float]:
    """Mean, and its 95 % interval."""
    mean = fmean(values)
    spread = 1.96 * math.sqrt(sum((v - mean) ** 2 for v in values)) / len(values)
    return [round(mean + sign * spread, 2) for sign in (0, -1, 1)]


def answered(count: int) -> dict[str, int]:
    """How many of ``count`` prompts of each kind the nano critic answers with yes or no."""
    critic, world = load_critic(), World("answered", held_out=True)
    found = {"chat_evaluator": 0, "judge": 0}
    for _ in range(count):
        case = new_question(world, SENTENCES, held_out=True)
        asked = prompt_for_one("direct", case.question, case.gold.text)
        found["chat_evaluator"] += verdict_in_text("direct", critic.invoke(asked).text) is not None
        judged = ask_judge(critic, alignment(case.question, [case.target], case.answer))
        found["judge"] += judged.verdict is not None
    return {"of": count, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=150, help="of each judge")
    args = parser.parse_args()
    data = {"made up": made_up}
    if (DATA / "popqa_dev_741.jsonl").exists():
        data["popqa"] = lambda: popqa(DATA)
    else:
        print(f"popqa skipped: it is not in {DATA}; set SELFCORRECT_DATA")
    judges = {
        "critique": (by_prompts, data),
        "critic": (in_short_form, data),
        "generator": (by_tokens, data),
        "T5": (by_t5, {"made up": made_up}),
        "reader": (by_reader, {k: v for k, v in data.items() if k == "popqa"}),
    }
    report: dict[str, Any] = {}
    for judge, (opened, sets) in judges.items():
        asks = judge in ("critique", "critic")
        reads = ("relevance", "groundness") if asks else ("relevance",)
        words = judge in ("T5", "reader")
        for name, cases in sets.items():
            readable = (case for case in cases() if case.aspect in reads)
            found = measured(opened(), readable, args.cases, by_prompts=asks, words=words)
            report[f"{judge}, {name}"] = found
            print(judge, name, found, flush=True)
    print(json.dumps({"benchmark": "injection", "answered": answered(20), **report}))


if __name__ == "__main__":
    main()
