"""The made-up world: fixed by its seed, with names and wordings kept out of training."""

import re

from selfcorrect_rag.nano.cases import new_case
from selfcorrect_rag.nano.examples import EARLY, MAIN, SHARP, row
from selfcorrect_rag.nano.language import kinds
from selfcorrect_rag.nano.names import is_held_out
from selfcorrect_rag.nano.world import World


def test_a_seed_fixes_every_row() -> None:
    for mixture in (EARLY, MAIN, SHARP):
        one, same, other = World("a"), World("a"), World("b")
        rows = [row(one, mixture) for _ in range(20)]
        assert rows == [row(same, mixture) for _ in range(20)]
        assert rows != [row(other, mixture) for _ in range(20)]


def test_subjects_are_on_one_side_of_the_held_out_line() -> None:
    for held_out in (False, True):
        world = World("names", held_out=held_out)
        cases = [new_case(world, 4, held_out=held_out) for _ in range(200)]
        assert all(is_held_out(case.entity.name) is held_out for case in cases)


def test_the_held_out_wording_of_every_relation_is_never_trained_on() -> None:
    """The last wording of each relation is only asked where the held-out one is wanted."""
    for kind in kinds():
        for relation in kind.relations.values():
            assert len(relation.asks) >= 2, (kind.name, relation.name)
            assert relation.asks[-1] not in relation.asks[:-1]


def test_the_gold_passage_states_the_answer_and_the_missing_one_does_not() -> None:
    world = World("gold")
    for _ in range(200):
        case = new_case(world, 5)
        assert case.target.lower() in case.gold.text.lower()
        assert case.relation.slot not in case.missing().stated


def test_rows_have_the_form_of_the_papers() -> None:
    world = World("form")
    rows = [row(world, MAIN) for _ in range(300)]
    for text in rows:
        assert text.startswith("### Instruction:\n")
        assert text.endswith("]</s>")
        assert text.count("<paragraph>") == text.count("</paragraph>")
        assert not re.search(r"\[Irrelevant\][^\[]*\[(Fully|Partially|No support)", text), text
    assert any(text.count("<paragraph>") > 1 for text in rows)
    assert any("[Continue to Use Evidence]" in text for text in rows)
