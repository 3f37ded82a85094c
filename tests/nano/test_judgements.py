"""The nano critic's lessons: a rule's judgements, in the paper's prompts."""

from collections import Counter

from selfcorrect_rag.critic_prompts import ASPECTS
from selfcorrect_rag.nano.embedded import generator_path
from selfcorrect_rag.nano.judgements import WRITING, judgements
from selfcorrect_rag.nano.tokenizer import load_tokenizer
from selfcorrect_rag.nano.train_critic import CRITIC, CriticLessons, chat_tokenizer
from selfcorrect_rag.nano.world import World


def test_labels_are_those_of_the_tables_and_all_of_them_come() -> None:
    world = World("judged")
    given: Counter[tuple[str, str]] = Counter()
    for _ in range(30):
        for aspect, instance, label in judgements(world, 3):
            if aspect == WRITING:
                assert label.strip()
                continue
            assert ASPECTS[aspect].lacks(instance) == []
            judged = ASPECTS[aspect].read(label)
            assert judged is not None
            given[aspect, judged.token] += 1
    rare = {("utility", "[Utility:3]")}  # nothing here is merely acceptable
    every = {(name, token) for name, aspect in ASPECTS.items() for token in aspect.choices.values()}
    assert set(given) == every - rare


def test_a_supported_answer_stands_in_its_evidence() -> None:
    world = World("supported")
    for _ in range(30):
        by_label = {label: i for a, i, label in judgements(world, 3) if a == "groundness"}
        full, none = by_label["[Fully supported]"], by_label["[No support / Contradictory]"]
        assert full.evidence
        assert full.segment != none.segment or full.evidence != none.evidence


def test_only_labels_and_answers_are_learned() -> None:
    tokenizer = load_tokenizer(generator_path())
    batch = CriticLessons(CRITIC, tokenizer).batch(CRITIC.steps - 1)
    learned = batch.ids[batch.weights > 0]
    share = len(learned) / int((batch.ids > 0).sum())
    assert 0 < share < 0.3
    assert (learned == tokenizer.eos_token_id).sum() == batch.branch.amax(1).sum()


def test_reflection_tokens_are_text_to_a_chat_model() -> None:
    tokenizer = load_tokenizer(generator_path())
    chat = chat_tokenizer(tokenizer)
    asked = "Is it [Relevant] or 5?"
    ids = chat.apply_chat_template([{"role": "user", "content": asked}], return_dict=False)
    assert ids == tokenizer(f"{asked}\n")["input_ids"], "as it is trained"
    said = chat.decode(chat("[Fully supported]", add_special_tokens=False)["input_ids"])
    assert said.strip() == "[Fully supported]"
