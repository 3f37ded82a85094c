"""What the nano generator's data begins as."""

from nano_training.examples import NOT_SAID
from nano_training.outputs import outputs
from selfcorrect_rag.reflection import CONTROL_TOKENS


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
