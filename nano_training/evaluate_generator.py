"""Held-out figures of the nano generator, as its card gives them.

    python -m nano_training.evaluate_generator [--model DIR] [--cases 500] [--data DIR]

Prints a line a figure, then all of them as one line of JSON. Every figure is a share of at least
``--cases`` fresh cases, measured through the library's own model interface and scores. With
``--data`` PopQA's development questions are read too, with their gold paragraph given; nothing of
it was trained on.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from langchain_core.documents import Document

from nano_training.language import Passage, answer
from nano_training.questions import WorldQuestion, document, new_question
from nano_training.rows import task
from nano_training.world import World
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.nano import generator_path
from selfcorrect_rag.prompts.parts import Part, Prompt
from selfcorrect_rag.prompts.self_rag import decision_prompt, segment_prompt
from selfcorrect_rag.reflection import (
    RELEVANT,
    Group,
    critique,
    critique_score,
    retrieval_probability,
)
from selfcorrect_rag.self_rag import create_self_rag
from selfcorrect_rag.state.self_rag import Segment

THRESHOLD = 0.2
"""The library's default threshold of the retrieval decision."""
SENTENCES = 5
"""About how many sentences a passage has beside its lead."""
TOKENS = 60


class Evaluation:
    """A model and a stream of held-out cases."""

    def __init__(
        self, llm: TransformersReflectionLLM, cases: int, seed: str = "evaluation"
    ) -> None:
        self.llm = llm
        self.world = World(seed, held_out=True)
        self.cases = [new_question(self.world, SENTENCES, held_out=True) for _ in range(cases)]

    def report(self) -> dict[str, float]:
        """All figures on the made-up world, each in [0, 1]."""
        figures: dict[str, float] = {}
        for part in (self.decisions, self.relevance, self.support, self.best_of_five):
            for name, value in part().items():
                figures[name] = round(value, 3)
                print(f"{name:32} {value:.3f}", flush=True)
        return figures

    def decisions(self) -> dict[str, float]:
        """Whether to retrieve: questions of fact against tasks that need no passage."""
        tasks = [task(self.world, held_out=True)[0] for _ in self.cases]
        return {
            "retrieve_for_facts": fmean(p > THRESHOLD for p in self._retrieval(self._questions())),
            "no_retrieval_for_tasks": fmean(p <= THRESHOLD for p in self._retrieval(tasks)),
        }

    def relevance(self) -> dict[str, float]:
        """ISREL on five sorts of passages, and the answer from the gold one."""
        gold = self._write([case.gold for case in self.cases])
        figures = {
            "isrel_gold": fmean(_isrel(segment) > 0.5 for segment in gold),
            "answer_from_gold": fmean(
                case.target in segment["text"]
                for case, segment in zip(self.cases, gold, strict=True)
            ),
        }
        sorts: dict[str, Callable[[WorldQuestion], Passage]] = {
            "other_entity": WorldQuestion.other,
            "similar_name": WorldQuestion.similar,
            "attribute_missing": WorldQuestion.missing,
            "any_other": WorldQuestion.stranger,
        }
        for name, draw in sorts.items():
            segments = self._write([draw(case) for case in self.cases])
            figures[f"isrel_{name}"] = fmean(_isrel(segment) < 0.5 for segment in segments)
        return figures

    def support(self) -> dict[str, float]:
        """ISSUP of a right answer, a wrong one, and a wrong one from the same passage."""
        wrong = [(case, case.wrong_answer()) for case in self.cases]
        nearby = [(case, text) for case in self._with_nearby() if (text := _nearby(case))]
        right = [(case, case.answer) for case in self.cases]
        return {
            "issup_right": fmean(score > 0.5 for score in self._issup(right)),
            "issup_wrong": fmean(score < 0.5 for score in self._issup(wrong)),
            "issup_wrong_same_passage": fmean(score < 0.5 for score in self._issup(nearby)),
        }

    def best_of_five(self) -> dict[str, float]:
        """The answer that the graph chooses among one gold passage and four that mislead."""
        graph = create_self_rag(self.llm, lambda query: [])
        chosen, first, best = [], [], []
        for case in self.cases:
            given: Any = {"question": case.question, "documents": case.documents()}
            context: Any = {"mode": "always", "depth": 1, "segment_tokens": TOKENS}
            result = graph.invoke(given, context=context)
            right = [case.target in candidate["text"] for candidate in result["candidates"]]
            chosen.append(case.target in result["answer"])
            first.append(right[0])
            best.append(any(right))
        return {
            "best_of_5": fmean(chosen),
            "first_of_5": fmean(first),
            "any_of_5": fmean(best),
        }

    def _questions(self) -> list[str]:
        return [case.question for case in self.cases]

    def _retrieval(self, questions: Iterable[str]) -> list[float]:
        segments = self.llm.choose([decision_prompt(q) for q in questions], Group.RETRIEVE)
        return [retrieval_probability(segment["reflections"][0]) for segment in segments]

    def _write(self, passages: Sequence[Passage]) -> list[Segment]:
        prompts = [
            segment_prompt(question, [], [document(passage)], "retrieve", 0)
            for question, passage in zip(self._questions(), passages, strict=True)
        ]
        return self.llm.generate_segments(prompts, max_tokens=TOKENS)

    def _issup(self, answers: Sequence[tuple[WorldQuestion, str]]) -> list[float]:
        """ISSUP scores of given answers to the gold passage."""
        prompts = []
        for case, text in answers:
            prompt = segment_prompt(case.question, [], [document(case.gold)], "retrieve", 0)
            given = (Part(RELEVANT, "control"), Part(text, "untrusted"))
            prompts.append(Prompt(parts=(*prompt.parts, *given)))
        judged = self.llm.choose(prompts, Group.ISSUP)
        return [critique_score(segment["reflections"][0]) for segment in judged]

    def _with_nearby(self) -> list[WorldQuestion]:
        """As many cases as ever whose passage holds another value of the kind that is asked."""
        cases: list[WorldQuestion] = []
        while len(cases) < len(self.cases):
            case = new_question(self.world, SENTENCES, held_out=True)
            if _nearby(case):
                cases.append(case)
        return cases


def popqa(llm: TransformersReflectionLLM, file: Path) -> dict[str, float]:
    """PopQA's development questions with the gold paragraph given."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    pairs = [
        (row, paragraph)
        for row in rows
        for paragraph in row["paragraphs"]
        if paragraph["title"] == row["s_wiki_title"]  # the subject's own page
    ]
    documents = [Document(p["text"], metadata={"title": p["title"]}) for _, p in pairs]
    prompts = [
        segment_prompt(row["question"], [], [document], "retrieve", 0)
        for (row, _), document in zip(pairs, documents, strict=True)
    ]
    segments = llm.generate_segments(prompts, max_tokens=TOKENS)
    right = [
        contains(segment["text"], row["answers"])
        for (row, _), segment in zip(pairs, segments, strict=True)
    ]
    stated = [contains(paragraph["text"], row["answers"]) for row, paragraph in pairs]
    return {
        "popqa_gold_paragraphs": len(pairs),
        "popqa_isrel_gold": round(fmean(_isrel(segment) > 0.5 for segment in segments), 3),
        "popqa_answer": round(fmean(right), 3),
        "popqa_answer_where_stated": round(
            fmean(r for r, s in zip(right, stated, strict=True) if s), 3
        ),
    }


def contains(text: str, answers: Iterable[str]) -> bool:
    """Whether one of the answers stands in the text as whole words, without case."""
    return any(
        re.search(rf"(?<!\w){re.escape(answer.lower())}(?!\w)", text.lower()) for answer in answers
    )


def _isrel(segment: Segment) -> float:
    """ISREL in [0, 1]; a model that gives none calls nothing relevant."""
    return critique(segment["reflections"])["ISREL"] or 0.0


def _nearby(case: WorldQuestion) -> str | None:
    """A wrong answer whose value stands in the gold passage, where there is one."""
    if not case.relation.forward:
        return None
    kind = case.relation.value.removeprefix("later_")
    values = [v for v in case.gold.mentions.get(kind, []) if v not in case.target]
    return answer(case.entity, case.relation, values[0]) if values else None


def main() -> None:
    """Measure a generator."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=generator_path())
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--data", type=Path, help="folder of popqa_dev_741.jsonl")
    args = parser.parse_args()
    llm = TransformersReflectionLLM.from_pretrained(args.model)
    figures = Evaluation(llm, args.cases).report()
    if args.data:
        real = popqa(llm, args.data / "popqa_dev_741.jsonl")
        print("".join(f"{name:32} {value:g}\n" for name, value in real.items()), end="")
        figures |= real
    print(json.dumps({"cases": args.cases, **figures}))


if __name__ == "__main__":
    main()
