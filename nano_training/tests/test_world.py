"""The made-up world: fixed by its seed, with names and wordings kept out of training."""

import re

from nano_training.language import kinds
from nano_training.questions import new_question
from nano_training.rows import EARLY, MAIN, new_row, task, tasks
from nano_training.world import World, is_held_out


def test_a_seed_fixes_every_row() -> None:
    for mixture in (EARLY, MAIN):
        one, same, other = World("a"), World("a"), World("b")
        rows = [new_row(one, mixture) for _ in range(20)]
        assert rows == [new_row(same, mixture) for _ in range(20)]
        assert rows != [new_row(other, mixture) for _ in range(20)]


def test_subjects_are_on_one_side_of_the_held_out_line() -> None:
    for held_out in (False, True):
        world = World("names", held_out=held_out)
        cases = [new_question(world, 4, held_out=held_out) for _ in range(200)]
        assert all(is_held_out(case.entity.name) is held_out for case in cases)


def test_a_held_out_wording_is_held_out_of_every_relation() -> None:
    """One wording may serve several relations: all of them train with it, or none."""
    relations = [r for kind in kinds() for r in kind.relations.values()]
    trained = {wording for relation in relations for wording in relation.asks}
    held_out = {wording for relation in relations for wording in relation.held_out}
    assert not trained & held_out
    for relation in relations:
        assert len(relation.asks) >= 4, relation.name
        assert relation.held_out, relation.name


def test_questions_and_tasks_use_the_wordings_of_their_side() -> None:
    for held_out in (False, True):
        world = World("wordings", held_out=held_out)
        for _ in range(300):
            case = new_question(world, 1, held_out)
            sides = case.relation.held_out if held_out else case.relation.asks
            assert any(fits(wording, case.question) for wording in sides), case.question
            asked, _ = task(world, held_out)
            wordings = [
                w for row in tasks()["task"] for w in row["held_out" if held_out else "asks"]
            ]
            assert any(fits(wording, asked) for wording in wordings), asked


def fits(wording: str, text: str) -> bool:
    """Whether `text` is `wording` with something in its slots; "an" counts as "a"."""
    pieces = [re.sub(r"\ban\b", "a", piece) for piece in re.split(r"\{\w+\}", wording)]
    text = re.sub(r"\ban\b", "a", text)
    return bool(re.fullmatch(".+".join(map(re.escape, pieces)), text, re.IGNORECASE | re.DOTALL))


def test_every_relation_can_be_asked_in_the_words_it_shares() -> None:
    film = next(kind for kind in kinds() if kind.name == "film")
    director = film.relations["director"]
    every = {*director.asks, *director.held_out}
    assert {"By whom was {name} directed?", "Name the director of {name}."} <= every
    assert not any(" - " in wording for wording in every)


def test_the_gold_passage_states_the_answer_and_the_missing_one_does_not() -> None:
    world = World("gold")
    for _ in range(200):
        case = new_question(world, 5)
        assert case.target.lower() in case.gold.text.lower()
        assert case.relation.slot not in case.missing().stated


def test_rows_have_the_form_of_the_papers() -> None:
    world = World("form")
    rows = [new_row(world, MAIN) for _ in range(300)]
    texts = [made.text + branch for made in rows for branch in made.branches]
    for text in texts:
        assert text.startswith("### Instruction:\n")
        assert text.endswith("]</s>")
        assert text.count("<paragraph>") == text.count("</paragraph>")
        assert not re.search(r"\[Irrelevant\][^\[]*\[(Fully|Partially|No support)", text), text
    assert any(text.count("<paragraph>") > 1 for text in texts)
    assert any("[Continue to Use Evidence]" in text for text in texts)


def test_the_branches_of_a_row_are_one_right_answer_and_wrong_ones() -> None:
    world = World("branches")
    rows = [new_row(world, MAIN) for _ in range(300)]
    several = [made.branches for made in rows if len(made.branches) > 1]
    assert several
    for branches in several:
        assert len(set(branches)) == len(branches)
        assert sum("[Fully supported]" in branch for branch in branches) == 1
        assert all(branch.startswith("[Relevant]") for branch in branches)
