"""A graph that refuses rather than state more wrong answers than you allow.

The threshold comes from labelled questions. Take a hundred or more of yours; these few allow one
wrong answer in three.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from selfcorrect_rag.evaluation.runner import calibrate_refusals
from selfcorrect_rag.serving import Parts, ServingConfig

LABELLED = {
    "Who wrote Middlemarch?": "George Eliot",
    "Who discovered penicillin?": "Alexander Fleming",
    "Who painted The Starry Night?": "van Gogh",
    "Who wrote The Great Gatsby?": "Fitzgerald",
    "Who painted Guernica?": "Picasso",
    "Where was Franz Kafka born?": "Prague",
    "Where was Thomas Mann born?": "Lübeck",
    "Who is the mayor of Lübeck?": None,  # no document says it: an answer is wrong
    "Who sold The Starry Night?": None,
    "Who was the doctor of Franz Kafka?": None,
    "Who translated The Great Gatsby into Danish?": None,
}


def main(*questions: str, max_wrong: float = 1 / 3) -> None:
    # The reader states its best answer, however unsure: the threshold alone refuses.
    config = ServingConfig(answer_above=0.0)
    with Parts(config) as parts, TemporaryDirectory() as folder:
        data = Path(folder) / "questions.jsonl"
        rows = [
            {"question": question, "answers": [answer], "unanswerable": answer is None}
            for question, answer in LABELLED.items()
        ]
        data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        found = calibrate_refusals(data, Path(folder) / "run", "self_rag", parts, max_wrong)
        stated = f"{found['answered']} of {found['questions']} labelled questions are answered"
        print(f"score_above={found['score_above']}: {stated}, {found['wrong']:g} of them wrongly")
        settings = parts.settings("self_rag", score_above=found["score_above"])
        graph = parts.graph("self_rag", settings)
        for question in questions:
            print(question, "->", graph.invoke({"question": question})["answer"])


if __name__ == "__main__":
    main("Who wrote Frankenstein?", "Who discovered penicillin?")
