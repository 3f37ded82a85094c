"""The critique prompts are the paper's, hold hostile text, and their answers are read strictly."""

import hashlib

import pytest

from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS, ISSUP, ISUSE, RETRIEVE, Instance
from selfcorrect_rag.reflection import TOKENS, Group

AUSTEN = Instance(
    "Who wrote Emma?",
    output="Jane Austen wrote Emma. It came in 1815.",
    preceding_sentences="Jane Austen wrote Emma.",
    segment="It came in 1815.",
    evidence="Emma\nEmma is a novel of 1815.",
)


DIGESTS = {
    "retrieval": "5c339d6893306eb8",
    "multi_retrieval": "ec96a9102ada00e1",
    "relevance": "8732b1e34c38a099",
    "groundness": "1c51e471bbcc7fe9",
    "utility": "902b695c8f9bdc52",
}
"""Digests of the prompts about Austen: tables 8 to 12 as printed, a line ``##``, and the case in
the fields of the table's demonstrations."""


@pytest.mark.parametrize("name", CRITIQUE_PROMPTS)
def test_the_papers_tables_with_and_without_preceding_sentences(name: str) -> None:
    whole = CRITIQUE_PROMPTS[name].prompt(AUSTEN)
    assert hashlib.sha256(whole.encode()).hexdigest().startswith(DIGESTS[name])
    alone = CRITIQUE_PROMPTS[name].prompt(AUSTEN._replace(preceding_sentences=""))
    assert alone == whole.replace("Preceding sentences: Jane Austen wrote Emma.\n", "")


def test_what_lacks_a_field_is_not_asked_about() -> None:
    bare = Instance("Who wrote Emma?", evidence=" \n")
    assert [RETRIEVE.lacks(bare), ISUSE.lacks(bare)] == [[], ["output"]]
    with pytest.raises(ValueError, match="ISSUP needs the fields segment, evidence"):
        ISSUP.prompt(bare)


def test_labels_and_tokens() -> None:
    """Every token of a group can be given, and no other."""
    given: dict[str, set[str]] = {group: set() for group in Group}
    for aspect in CRITIQUE_PROMPTS.values():
        given[aspect.group] |= {*aspect.tokens_by_label.values()}
        for label, token in aspect.tokens_by_label.items():
            assert aspect.read(f"{label}\nExplanation: So.") == token
    assert given == {group: set(TOKENS[group]) for group in Group}


NO = "[No Retrieval]"


@pytest.mark.parametrize(
    ("name", "answer", "token"),
    [
        ("retrieval", "No", NO),
        ("retrieval", " [ NO ] ", NO),
        ("retrieval", "**[No]**\n**Explanation:** It is sums.", NO),
        ("retrieval", "Need retrieval?\n[No]\nExplanation: It is sums.", NO),
        ("retrieval", "Rating: [No] Explanation: It is sums.", NO),
        ("retrieval", "[No] Explanation: No.\n\n##\nInstruction: Why?\nNeed retrieval? [Yes]", NO),
        ("relevance", "[Relevant]\nExplanation: 5, not [Irrelevant].", "[Relevant]"),
        ("utility", "Perceived utility: 2\nExplanation: It answers 1 of 5.", "[Utility:2]"),
        ("retrieval", "", None),
        ("retrieval", "No idea.", None),
        ("retrieval", "No, but yes", None),
        ("retrieval", "[Yes] or [No]", None),
        ("retrieval", "I think that [Yes] is right.", None),
        ("retrieval", "Explanation: It is sums.\nNeed retrieval? [No]", None),
        ("groundness", "[No support]", None),
        ("utility", "4.5", None),
        ("utility", "45", None),
        ("utility", "5 or 4", None),
        ("utility", "As an AI language model, I rate this 3.", None),
    ],
)
def test_forms_of_an_answer(name: str, answer: str, token: str | None) -> None:
    assert CRITIQUE_PROMPTS[name].read(answer) == token
