"""What the nano base learns from, and what the nano generator's data begins as."""

from dataclasses import replace

from selfcorrect_rag.nano.embedded import generator_path
from selfcorrect_rag.nano.examples import NOT_SAID
from selfcorrect_rag.nano.outputs import outputs
from selfcorrect_rag.nano.tokenizer import load_tokenizer
from selfcorrect_rag.nano.train_base import BASE, EARLY, LATER, Reading
from selfcorrect_rag.reflection import CONTROL_TOKENS, GROUP_OF, PARAGRAPH


def test_outputs_come_with_pages_and_without_tokens() -> None:
    made = list(outputs(200, seed=3))
    assert made == list(outputs(200, seed=3))
    for one in made:
        for text in (*one.row[:3], *(page.page_content for page in one.pages)):
            assert not any(token in text for token in (*CONTROL_TOKENS, "</s>"))
        assert one.row.output.strip()
    asked = [one for one in made if one.pages]
    assert 0.8 < len(asked) / len(made) < 1
    silent = [one for one in asked if one.row.output == NOT_SAID]
    assert 0.2 < len(silent) / len(made) < 0.6


def test_the_base_sees_no_reflection_token() -> None:
    tokenizer = load_tokenizer(generator_path())
    reading = Reading(replace(BASE, tokens=512), tokenizer, [EARLY, LATER])
    reflection = set(tokenizer.convert_tokens_to_ids(list(GROUP_OF)))
    early, late = reading.batch(0), reading.batch(BASE.steps - 1)
    for batch in (early, late):
        assert not reflection & set(batch.ids.flatten().tolist())
        ends = batch.ids[batch.weights == 1]
        assert (ends == tokenizer.eos_token_id).any()
    copied = early.ids[(early.weights > 0) & (early.weights < 1)]
    assert len(copied) > 50, "the first steps learn the language of passages"
    assert tokenizer.convert_tokens_to_ids(PARAGRAPH) not in late.ids[late.weights > 0]
