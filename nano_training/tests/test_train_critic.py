"""The nano critic's batches: a rule's judgements, asked for in the paper's prompts."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from nano_training.teacher import WRITING, Teacher, judgements, labelled_by_teacher
from nano_training.tokenizer import load_tokenizer
from nano_training.train_critic import (
    CRITIC,
    LABEL,
    STAGES,
    CriticBatches,
    chat_tokenizer,
    critic_cases,
)
from nano_training.world import World
from selfcorrect_rag.models.critic import critic_input, critic_prompt
from selfcorrect_rag.nano import generator_path
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS


def test_labels_are_those_of_the_tables_and_all_of_them_come() -> None:
    world = World("judged")
    given: Counter[tuple[str, str]] = Counter()
    for _ in range(30):
        for prompt, instance, label, _ in judgements(world, 3):
            if prompt == WRITING:
                assert label.strip()
                continue
            assert CRITIQUE_PROMPTS[prompt].lacks(instance) == []
            judged = CRITIQUE_PROMPTS[prompt].read(label)
            assert judged is not None
            given[prompt, judged.token] += 1
    rare = {("utility", "[Utility:3]")}  # nothing here is merely acceptable
    every = {
        (name, token)
        for name, prompt in CRITIQUE_PROMPTS.items()
        for token in prompt.tokens_by_label.values()
    }
    assert set(given) == every - rare


def test_a_supported_answer_stands_in_its_evidence() -> None:
    world = World("supported")
    for _ in range(30):
        made = [one for one in judgements(world, 3) if one.prompt == "groundness"]
        by_label = {one.label: one.instance for one in made}
        full, none = by_label["[Fully supported]"], by_label["[No support / Contradictory]"]
        assert full.evidence
        assert full.segment != none.segment or full.evidence != none.evidence


def test_the_teacher_is_asked_once_and_labels_as_the_rule_does(tmp_path: Path) -> None:
    made = [one for case in critic_cases(12, seed=3) for one in case]
    asked: list[str] = []
    labelled = labelled_by_teacher(made, tmp_path, lambda: asked.append("once"))
    assert labelled == made
    judged = {(one.prompt, one.instance) for one in made if one.prompt != WRITING}
    assert len(asked) == len(judged)
    assert labelled_by_teacher(made, tmp_path, lambda: pytest.fail("asked again")) == made
    with pytest.raises(KeyError):
        Teacher(answers={}).invoke("What is not of its world?")


def test_only_labels_and_answers_are_learned_and_the_evidence_is_told_where() -> None:
    tokenizer = load_tokenizer(generator_path())
    batches = CriticBatches(CRITIC, tokenizer, critic_cases(64, seed=3), STAGES[0])
    batch = batches.batch(CRITIC.steps - 1)
    learned = batch.ids[batch.weights > 0]
    share = len(learned) / int((batch.ids > 0).sum())
    assert 0 < share < 0.3
    assert (learned == tokenizer.eos_token_id).sum() == batch.branch.amax(1).sum()
    told = torch.cat([batches.batch(step).hints.flatten() for step in range(64)])
    assert (told == 1).sum() > 100
    assert (told == 0).sum() > (told == 1).sum()


def test_half_of_the_lessons_are_a_fine_tuned_critics() -> None:
    tokenizer = load_tokenizer(generator_path())
    cases = critic_cases(64, seed=3)
    rows = CriticBatches(CRITIC, tokenizer, cases, STAGES[0]).rows(World("either"), early=False)
    text = "\n".join(tokenizer.decode(row.ids) for row in rows)
    asked = critic_input(CRITIQUE_PROMPTS["relevance"], cases[0][0].instance._replace(evidence="x"))
    opening, *_ = critic_prompt(asked).split(" and possibly")
    assert opening in text, "as Critic asks"
    assert "Explanation: The evidence only discusses" in text, "the tables' demonstrations"


def test_reflection_tokens_are_text_to_a_chat_model() -> None:
    tokenizer = load_tokenizer(generator_path())
    chat = chat_tokenizer(tokenizer)
    asked = "Is it [Relevant] or 5?"
    ids = chat.apply_chat_template([{"role": "user", "content": asked}], return_dict=False)
    assert ids == tokenizer(f"{asked}\n")["input_ids"], "as it is trained"
    said = chat.decode(chat("[Fully supported]", add_special_tokens=False)["input_ids"])
    assert said.strip() == "[Fully supported]"


def test_the_second_stage_learns_every_answer_and_few_judgements() -> None:
    tokenizer = load_tokenizer(generator_path())
    cases = critic_cases(64, seed=3)
    written = []
    for stage in STAGES:
        batches = CriticBatches(stage.settings, tokenizer, cases, stage)
        rows = [row for n in range(4) for row in batches.rows(World(f"stage {n}"), early=False)]
        labels = sum(row.weights.count(LABEL) > 0 and max(row.branch) for row in rows)
        answers = sum(max(row.branch) for row in rows if LABEL not in row.weights)
        written.append((labels, answers))
    (all_labels, some_answers), (few_labels, other_answers) = written
    assert 0.15 < few_labels / all_labels < 0.35
    assert 0.5 < other_answers / some_answers < 2
