"""Label the critic's rows from gold knowledge: ``python -m smollm2_training.labels --out FILE``.

Self-RAG's labels come from GPT-4 (section 3.2.1). Here they come from sets that know the answer:
a passage is relevant if it states one, a sentence is supported if its passage states it, an output
is useful if it is right. README.md says what each rule is worth. Of questions with passages as they
were retrieved only splits 0 and 1 are read.
"""

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reader_training.mixture import requests_without_evidence
from reader_training.negatives import Negatives
from reader_training.rows import (
    DATA,
    Row,
    encyclopedia,
    lines,
    mentions,
    real_rows,
    retrieved,
    retrieved_rows,
)
from selfcorrect_rag.journal import digest, write_rows
from selfcorrect_rag.models.critic import critic_input
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS, Instance
from selfcorrect_rag.reader.reader import compare_title
from selfcorrect_rag.reflection import (
    CONTINUE,
    FULLY_SUPPORTED,
    IRRELEVANT,
    NO_RETRIEVAL,
    NO_SUPPORT,
    PARTIALLY_SUPPORTED,
    RELEVANT,
    RETRIEVAL,
    UTILITY,
)
from selfcorrect_rag.training.critic import CriticRow
from selfcorrect_rag.training.rows import part_of
from smollm2_training.questions import PARAGRAPHS, arc_rows, plain_output, strategy_rows

MOST = 400
"""Rows of a prompt's token, by default."""
NQ = 300
"""Questions of NQ-open, each with the passage that answers and one that BM25 found."""
IRRELEVANT_AS_RETRIEVED = 400
"""Passages retrieved for other questions that state no answer; some 300 state one."""
REFUSALS = ("The passages do not say.", "I do not know.", "It is unknown.")
WORDS = 120
"""Most words of a passage of WiCE, whose pages are long."""
SUPPORT = {
    "supported": FULLY_SUPPORTED,
    "partially_supported": PARTIALLY_SUPPORTED,
    "not_supported": NO_SUPPORT,
}
"""ISSUP by WiCE's labels."""


class Case(NamedTuple):
    """A judgement that is known."""

    prompt: str
    """A key of ``CRITIQUE_PROMPTS``."""
    instance: Instance
    token: str
    about: str
    """The question or page that decides the part: training, development or test."""


def label_passage(row: Row, answer: str, wrong: str) -> Iterator[Case]:
    """Label a question's passage, which states ``row.answers`` or, if that is empty, no answer.

    ``answer`` is the right one, and ``wrong`` one of another question of the same set.
    """
    evidence = f"{row.title}\n{row.passage}" if row.title else row.passage
    states = bool(row.answers)

    def case(prompt: str, output: str, token: str) -> Case:
        asked = Instance(row.question, output=output, segment=output, evidence=evidence)
        return Case(prompt, asked, token, row.question)

    yield case("relevance", "", RELEVANT if states else IRRELEVANT)
    yield case("groundness", answer, FULLY_SUPPORTED if states else NO_SUPPORT)
    if states and not mentions(wrong, row.passage):
        yield case("groundness", wrong, NO_SUPPORT)
    yield case("multi_retrieval", answer, CONTINUE if states else RETRIEVAL)


def label_output(question: str, answer: str, wrong: str, other: str) -> Iterator[Case]:
    """Label outputs by whether they are right: the answer 5, that of another question of the same
    set 2, and 1 for a refusal and for ``other``, an answer of another set (Table 12)."""
    refusal = REFUSALS[len(question) % len(REFUSALS)]
    for output, token in (
        (answer, UTILITY[4]), (wrong, UTILITY[1]), (other, UTILITY[0]), (refusal, UTILITY[0])
    ):  # fmt: skip
        asked = Instance(question, output=output, segment=output)
        yield Case("utility", asked, token, question)


def label_request(request: str, token: str, output: str = "", evidence: str = "") -> Iterator[Case]:
    """Label whether a request needs evidence; the output of one that does not needs none either,
    whatever passage it is shown with."""
    yield Case("retrieval", Instance(request), token, request)
    if token == NO_RETRIEVAL:
        asked = Instance(request, segment=output, evidence=evidence)
        yield Case("multi_retrieval", asked, token, request)


def label_claim(row: dict[str, Any]) -> Case:
    """Label a claim of WiCE and the sentences of its page that support it or share its words.

    The sentences are chosen alike for every label, so that their number says nothing.
    """
    page, claim = row["evidence"], row["claim"]
    wanted = {*re.findall(r"\w{4,}", claim.lower())}
    supporting = {*row["supporting_sentences"][0]}

    def rank(number: int) -> tuple[bool, int]:
        shared = wanted & {*re.findall(r"\w{4,}", page[number].lower())}
        return number not in supporting, -len(shared)

    kept, words = set[int](), 0
    for number in sorted(range(len(page)), key=rank):
        words += len(page[number].split())
        if words <= WORDS or not kept:
            kept.add(number)
    title = page[0].removeprefix("(meta data) TITLE: ")
    text = " ".join(" ".join(page[i] for i in sorted(kept - {0})).split()[:WORDS])
    asked = Instance(
        "Continue the article.", output=claim, segment=claim, evidence=f"{title}\n{text}"
    )
    return Case("groundness", asked, SUPPORT[row["label"]], title)


_READ = re.compile(
    r"<paragraph>(.*?)</paragraph>(\[[IR]\w+\])([^\[]*)(\[[FPN][^\]]*\])?", re.DOTALL
)


def label_sample(row: dict[str, Any]) -> Iterator[Case]:
    """Take the labels of a row of Self-RAG's own training set, which its critic gave."""
    question, output = row["instruction"], row["output"]
    plain = PARAGRAPHS.sub("", output)
    token = RETRIEVAL if RETRIEVAL in plain else NO_RETRIEVAL
    yield from label_request(question, token)
    if grade := re.search(r"\[Utility:\d\]", plain):
        text = plain_output(output)
        asked = Instance(question, output=text, segment=text)
        yield Case("utility", asked, grade[0], question)
    for evidence, relevant, segment, support in _READ.findall(output):
        asked = Instance(question, segment=segment, output=segment, evidence=evidence)
        yield Case("relevance", asked, relevant, question)
        if support in SUPPORT.values() and segment.strip():
            yield Case("groundness", asked, support, question)


def all_cases(seed: int = 0) -> Iterator[Case]:
    """Yield every judgement that the sets give; rows of one question come together."""
    chance = random.Random(seed)
    nq = chance.sample([row for row in real_rows().train if row.source == "nq"], NQ)
    answers = {row.question: row.answers[0] for row in nq}
    answers |= {asked.question: asked.answers[0] for asked in retrieved(0, 1)}
    found = [row for row in retrieved_rows(0, 1) if not _is_first_hop(row)]
    near = Negatives(nq, encyclopedia()).find(nq)
    without = chance.sample([row for row in found if not row.answers], IRRELEVANT_AS_RETRIEVED)
    passages = [*(row for row in found if row.answers), *without, *nq]
    passages += [each for some in near for each in some[:1]]
    by_set: dict[str, list[str]] = {}
    for row in passages:
        if row.answers:
            by_set.setdefault(row.source, []).append(row.answers[0])
    asked = set[str]()
    for row in passages:
        answer, kind = answers[row.question], row.source if row.source in by_set else "nq"
        wrong = _another(by_set[kind], answer, chance)
        yield from label_passage(row, answer, wrong)
        if row.question not in asked:
            asked.add(row.question)
            rest = [text for name, some in by_set.items() if name != kind for text in some]
            other = _another(rest, answer, chance)
            yield from label_output(row.question, answer, wrong, other)
            yield from label_request(row.question, RETRIEVAL)
    for request in strategy_rows():
        yield from label_request(request["instruction"], RETRIEVAL)
    for text in requests_without_evidence():
        yield from label_request(text, NO_RETRIEVAL)
    for request in arc_rows():
        shown = f"{(row := chance.choice(passages)).title}\n{row.passage}"
        yield from label_request(request["instruction"], NO_RETRIEVAL, request["output"], shown)
    for claim in lines(DATA / "reading" / "wice_dev.jsonl.gz"):
        yield label_claim(claim)
    for sample in lines(DATA / "selfrag_generator_train_50samples.jsonl"):
        yield from label_sample(sample)


def _is_first_hop(row: Row) -> bool:
    """Whether a question of two hops names the passage's title: it helps without an answer."""
    return row.source == "retrieved: multihop" and compare_title(row.question, row.title)[0] > 0


def _another(answers: Sequence[str], right: str, chance: random.Random) -> str:
    return chance.choice([answer for answer in answers if answer.lower() != right.lower()])


def critic_rows(cases: Iterable[Case], most: int) -> list[tuple[str, CriticRow]]:
    """Return prompts with rows as ``train critic`` reads them: of each prompt and token the
    ``most`` that come first by their hash, so that no token is far commoner than another."""
    rows: dict[str, tuple[str, CriticRow]] = {}
    for case in cases:
        if CRITIQUE_PROMPTS[case.prompt].lacks(case.instance):
            continue
        given = critic_input(CRITIQUE_PROMPTS[case.prompt], case.instance)
        key, part = digest([given.group, given.instruction, given.input]), part_of(case.about)
        fields = {"instruction": given.instruction, "input": given.input, "token": case.token}
        rows.setdefault(key, (case.prompt, CriticRow(key=key, part=part, **fields)))
    counts, kept = Counter[tuple[str, str]](), []
    for _, (prompt, row) in sorted(rows.items()):
        counts[prompt, row.token] += 1
        if counts[prompt, row.token] <= most:
            kept.append((prompt, row))
    return kept


def main() -> None:
    """Write the rows, and print how many there are of each token."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=MOST, help="rows of a prompt's token")
    args = parser.parse_args()
    rows = critic_rows(all_cases(), args.most)
    write_rows(args.out, ({**row.model_dump(), "task": task} for task, row in rows))
    for (task, token), number in sorted(Counter((t, row.token) for t, row in rows).items()):
        print(f"{task} {token}: {number}")


if __name__ == "__main__":
    main()
