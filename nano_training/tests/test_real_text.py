"""What is learned from real text: facts that stand in it, and passages that are silent.

In the form of the real files by hand, and where they are at hand in the real ones.
"""

import json
import os
from pathlib import Path

import pytest

from nano_training.real_text import (
    RealRows,
    RealText,
    is_held_out,
    real_text,
    typed,
    with_real_text,
)
from nano_training.rows import MAIN, NOT_SAID, PASSAGE_PATTERN, Mixture, new_row
from nano_training.teacher import judgements_of
from nano_training.world import World
from selfcorrect_rag.reflection import GROUP_OF, IRRELEVANT, RELEVANT

REAL = Path(os.environ.get("SELFCORRECT_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.fixture(scope="module", params=["by hand", "real"])
def data(request: pytest.FixtureRequest, real_text_by_hand: Path) -> Path:
    if request.param == "by hand":
        return real_text_by_hand
    if not REAL.is_dir():
        pytest.skip(f"no real data in {REAL}: set SELFCORRECT_DATA")
    return REAL


@pytest.fixture(scope="module")
def found(data: Path) -> RealText:
    return real_text(data)


@pytest.fixture(scope="module")
def rows(data: Path) -> RealRows:
    return RealRows(data)


def test_facts_stand_in_their_passages(found: RealText) -> None:
    assert all(fact.value in fact.text for fact in found.facts)
    by_name = {(fact.name, fact.relation): fact.value for fact in found.facts if fact.kind}
    assert by_name["Rico Rex", "birth_place"] == "Chemnitz"
    assert by_name["Rico Rex", "occupation"] == "former pair skater"
    assert by_name["Wild Honey", "director"] == "Francis J. Grandon"


def test_what_figures_are_reported_on_is_not_learned(found: RealText, data: Path) -> None:
    lines = (data / "popqa_dev_741.jsonl").read_text(encoding="utf-8").splitlines()
    asked = {json.loads(line)["s_wiki_title"] for line in lines}
    assert not asked & {page.title for page in (*found.facts, *found.silences) if page.kind}
    questions = {fact.relation for fact in typed(data)}
    held_out = set(filter(is_held_out, questions))
    assert 0.1 <= len(held_out) / len(questions) <= 0.3
    assert {fact.relation for fact in found.facts if not fact.kind} == questions - held_out


def test_a_silent_passage_has_no_word_for_what_it_does_not_say(found: RealText) -> None:
    silent = {relation for _, relation, *_ in found.silences}
    assert {"father", "award", "composer"} <= silent
    births = [silence.text for silence in found.silences if silence.relation == "birth_place"]
    assert not any(" born " in text for text in births)


def test_there_is_much_of_it() -> None:
    if not REAL.is_dir():
        pytest.skip(f"no real data in {REAL}: set SELFCORRECT_DATA")
    found = real_text(REAL)
    assert len(found.facts) > 8000
    assert len(found.silences) > 10000


def test_rows_are_as_those_of_the_made_up_world(rows: RealRows) -> None:
    world = World("real")
    for _ in range(100):
        told = rows.answered(world, 3)
        passage = PASSAGE_PATTERN.search(told.text)
        assert passage
        assert told.answer
        assert told.answer in passage[2]
        right, *wrong = told.branches
        assert told.answer.lower() in right.lower()
        assert right.startswith(RELEVANT)
        assert right not in wrong
        for silent in (rows.unhelpful(world, 3), rows.unstated(world, 3)):
            (branch,) = silent.branches
            assert branch.startswith(IRRELEVANT)
            assert NOT_SAID in branch


def test_a_third_of_a_mixture_is_real_and_rows_are_judged_by_what_they_say(data: Path) -> None:
    mixture: Mixture = with_real_text(MAIN, data)
    real = [share for make, share in mixture.shares.items() if make not in MAIN.shares]
    assert sum(real) / sum(mixture.shares.values()) == pytest.approx(1 / 3)
    world = World("judged rows")
    judged = [made for _ in range(200) for made in judgements_of(new_row(world, mixture))]
    for made in judged:
        assert not any(token in str(made.instance) for token in GROUP_OF)
    labels = {(made.prompt, made.label) for made in judged}
    prompts = {"retrieval", "relevance", "groundness", "multi_retrieval", "utility"}
    assert {prompt for prompt, _ in labels} == prompts
    wants_more = {label for prompt, label in labels if prompt == "multi_retrieval"}
    assert wants_more == {"[Continue to Use Evidence]", "[Retrieval]"}
    assert {("relevance", "[Relevant]"), ("relevance", "[Irrelevant]")} <= labels
