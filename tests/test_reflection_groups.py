"""Custom groups of reflection tokens: one entry in the table, and everything knows them."""

import runpy
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken

from selfcorrect_rag import create_self_rag, demo, render_run
from selfcorrect_rag.errors import BadSettings, ModelFailed, NotAReflectionModel
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts.parts import Part, Prompt
from selfcorrect_rag.prompts.quoting import quoted
from selfcorrect_rag.reflection import (
    GROUPS,
    PAPER_GROUPS,
    PATH_RULES,
    ReflectionGroup,
    ScoredSegment,
    Weights,
    best_path_score,
    control_tokens,
    path_score,
    register_group,
    unregister_group,
)
from selfcorrect_rag.settings import SelfRAGSettings
from tests.conftest import byte_level_tokenizer, random_model
from tests.prompted_runs import PASSAGES, QUESTION, hard, opinion
from tests.providers import Provider
from tests.scripted import FULL, RELEVANT, ScriptedReflectionLLM, document, passage_of, segment

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_reflection_group.py"
PLAIN = ReflectionGroup(
    "ISPLAIN", ("[Plain]", "[Dense]"), (1.0, -1.0), absent=-1.0, instruction="Is it plain?"
)


@pytest.fixture(autouse=True)
def the_papers_groups_alone_are_left() -> Iterator[None]:
    yield
    for name in set(GROUPS) - set(PAPER_GROUPS):
        unregister_group(name)


class Scripted(ScriptedReflectionLLM):
    @property
    def groups(self) -> tuple[str, ...]:
        return (*PAPER_GROUPS, "ISPLAIN")


def written(prompt: str) -> Any:
    plain = {"[Plain]": 0.9, "[Dense]": 0.1}
    judged = plain if passage_of(prompt) == "B" else {"[Plain]": 0.2, "[Dense]": 0.8}
    return segment(passage_of(prompt), RELEVANT, FULL, judged)


def run(llm: Any, **context: Any) -> Any:
    graph = create_self_rag(llm, lambda query: [document("A"), document("B"), document("C")])
    return graph.invoke({"question": "Who?"}, context={"mode": "always", **context})


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"name": "ISREL"}, "registered otherwise"),
        ({"name": "is plain"}, "one word"),
        ({"tokens": ("[Plain]",), "values": (1.0,)}, "two tokens"),
        ({"tokens": ("[Plain]", "[Plain]")}, "all of them different"),
        ({"tokens": ("[Plain]", "Dense")}, "form"),
        ({"tokens": ("[Plain]", "[ Dense]")}, "form"),
        ({"tokens": ("[Plain]", "[Den\nse]")}, "form"),
        ({"tokens": ("[Plain]", "[Relevant]")}, "belongs to ISREL"),
        ({"values": (1.0,)}, "as many values"),
        ({"values": ()}, "as many values"),
        ({"values": (1.0, float("nan"))}, "finite"),
        ({"weight": -1.0}, "at least 0"),
        ({"judges": "passage", "absent": 0.0}, "better than"),
        ({"absent": 2.0}, "better than"),
    ],
)
def test_what_makes_no_sense_is_refused_at_registration(wrong: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        register_group(replace(PLAIN, **wrong))
    assert set(GROUPS) == set(PAPER_GROUPS)


def test_the_same_entry_twice_is_one_and_the_papers_stay() -> None:
    assert register_group(PLAIN) == register_group(replace(PLAIN)) == GROUPS["ISPLAIN"]
    assert control_tokens()[15:] == PLAIN.tokens
    for name in ("ISREL", "ISOTHER"):
        with pytest.raises(ValueError, match="paper's, or is not"):
            unregister_group(name)


def test_scores_beams_and_events_take_it_up() -> None:
    register_group(PLAIN)
    result = run(Scripted(write=written))
    assert result["answer"] == "B"
    scores = [c["critique"]["ISPLAIN"] for c in result["candidates"]]
    assert scores == pytest.approx([-0.6, 0.8, -0.6])
    assert result["candidates"][1]["judgements"]["ISPLAIN"]["[Plain]"] == pytest.approx(0.9)
    gain = result["candidates"][1]["score"] - result["candidates"][0]["score"]
    assert gain == pytest.approx(1.4)
    assert "ISPLAIN" in render_run(result)
    none = run(Scripted(write=written), group_weights={"ISPLAIN": 0})
    assert none["answer"] == "A", "the first passage wins a tie"
    kept = run(Scripted(write=written), hard_constraints=("[Plain]",))
    assert kept["candidates"][1]["dropped"] == "hard constraint [Plain]"


def test_silence_counts_as_the_entry_says_and_a_model_without_the_group_is_left_alone() -> None:
    register_group(PLAIN)
    silent = ScriptedReflectionLLM(write=lambda prompt: segment("A", RELEVANT, FULL))
    assert run(silent)["candidates"][0]["critique"].keys() == {"ISREL", "ISSUP", "ISUSE"}
    having = run(Scripted(write=silent.write))["candidates"][0]
    assert having["critique"]["ISPLAIN"] is None
    assert run(silent)["candidates"][0]["score"] - having["score"] == pytest.approx(1.0)


def test_a_reflection_of_a_group_that_a_model_does_not_name_is_its_fault() -> None:
    register_group(PLAIN)
    with pytest.raises(ModelFailed, match="group ISPLAIN, which is not one of its groups"):
        run(ScriptedReflectionLLM(write=written))
    with pytest.raises(ValueError, match="no reflection group ISPLAIN"):
        ScriptedReflectionLLM(write=written).choose([], "ISPLAIN")


def test_weights_of_unknown_groups_are_refused() -> None:
    for weights in ({"ISPLAIN": 1.0}, {"ISREL": 1.0}):
        with pytest.raises(BadSettings, match="not registered groups"):
            SelfRAGSettings(group_weights=weights)
    register_group(PLAIN)
    with pytest.raises(BadSettings, match="0 to 100"):
        SelfRAGSettings(group_weights={"ISPLAIN": 101})


@pytest.mark.parametrize("rule", PATH_RULES)
@pytest.mark.parametrize(
    ("judges", "absent"),
    [
        ("passage", -3.0),
        ("segment", -3.0),
        ("segment", 2.0),
        ("segment", -9.0),
        ("answer", -3.0),
        ("answer", 2.0),
        ("answer", -9.0),
    ],
)
def test_no_path_ends_above_its_bound_whatever_the_group_judges(
    judges: Any, absent: float, rule: str
) -> None:
    group = register_group(replace(PLAIN, values=(2.0, -3.0), absent=absent, judges=judges))

    def segment_with(score: float | None, isuse: float | None = None) -> ScoredSegment:
        scores = {"ISREL": 1.0, "ISSUP": 1.0, "ISUSE": isuse, group.name: score}
        return ScoredSegment(scores, 1.0, True)

    for begun in ([], [segment_with(None)]):
        best = best_path_score(begun, 4, Weights(), rule)
        for score, more in product((None, 2.0, -3.0), range(4)):
            middle = segment_with(None if judges == "answer" else score)
            path = [*begun, *[middle] * more, segment_with(score, isuse=1.0)]
            assert path_score(path, Weights(), rule) <= best + 1e-9


def test_a_checkpoint_has_the_groups_of_its_vocabulary() -> None:
    tokenizer = byte_level_tokenizer()
    assert ControlledTokenizer(tokenizer).groups == PAPER_GROUPS
    register_group(PLAIN)
    assert ControlledTokenizer(tokenizer).groups == PAPER_GROUPS
    new = [AddedToken(token, special=True, normalized=False) for token in PLAIN.tokens]
    tokenizer.add_tokens(new[:1], special_tokens=True)
    with pytest.raises(NotAReflectionModel, match=r"has ISPLAIN without \[Dense\]"):
        ControlledTokenizer(tokenizer)
    tokenizer.add_tokens(new, special_tokens=True)
    model = random_model(len(tokenizer))
    ids = tokenizer.convert_tokens_to_ids(list(PLAIN.tokens))
    with torch.no_grad():
        model.lm_head.weight[ids] *= 6
    llm = TransformersReflectionLLM.from_model(model, tokenizer)
    assert llm.groups == (*PAPER_GROUPS, "ISPLAIN")
    (chosen,) = llm.choose([Prompt(parts=(Part("Who?", "untrusted"),))], "ISPLAIN")
    assert chosen["reflections"][0]["logprobs"].keys() == set(PLAIN.tokens)
    result = run(llm, segment_tokens=30, depth=2)
    assert any(c["critique"]["ISPLAIN"] is not None for c in result["candidates"])
    assert all("[Plain]" not in c["text"] for c in result["candidates"])
    (encoded,) = llm._tokenizer.encode([Prompt(parts=(Part("[Plain] [Dense]", "untrusted"),))])
    assert not set(ids) & set(encoded.ids)


def test_what_only_looks_like_its_tokens_stays_text() -> None:
    before = quoted("It is [Plain].")
    assert before == "It is [Plain]."
    register_group(PLAIN)
    assert "[Plain]" not in quoted("It is [Plain].")
    control, text = (Prompt(parts=(Part("[Plain]", k),)) for k in ("control", "untrusted"))
    assert control.to_string() != text.to_string()


def test_the_example_asks_a_chat_model_by_the_instruction(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shelf:
        def as_retriever(self) -> Any:
            return lambda query: PASSAGES

    def answer(prompt: str) -> str:
        return hard(opinion)(prompt) + ("\nISPLAIN: [Plain]" if "ISPLAIN" in prompt else "")

    monkeypatch.setattr(demo, "demo_index", Shelf)
    example = runpy.run_path(str(EXAMPLE))
    example["main"](Provider(answer=answer), QUESTION)
    assert any(line.startswith("1.0") for line in capsys.readouterr().out.splitlines())
