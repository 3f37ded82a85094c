"""Prompts longer than the model's context still get an answer."""

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts import decision_prompt, segment_prompt
from tests.conftest import byte_level_tokenizer, talkative
from tests.scripted import document


def test_passages_are_cut_first_and_the_earlier_ones_before_the_newest() -> None:
    tokenizer = ControlledTokenizer(byte_level_tokenizer())
    old, new = document("O", "old " * 50), document("N", "new " * 50)
    written = {"step": "retrieve", "passage": 0, "pieces": [{"kind": "text", "text": "said " * 9}]}
    prompt = segment_prompt("Who? " * 10, [written], [old, new], "retrieve", 1)  # type: ignore[list-item]
    whole = tokenizer.encode([prompt])[0]
    text = tokenizer.text(whole.ids)
    for kept in (len(whole.ids) - 50, len(whole.ids) - 420):
        short = tokenizer.encode([prompt], limit=kept)[0]
        assert len(short.ids) == kept
        assert short.shortened == len(whole.ids) - kept
        now = tokenizer.text(short.ids)
        assert "### Response:" in now
        assert now.count("Who?") == 10, "the question is cut last"
        assert now.count("old") < text.count("old")
        if now.count("old"):
            assert now.count("new") == text.count("new"), "earlier passages are cut first"
        controls = [i for i in whole.ids if i in tokenizer._special]
        assert [i for i in short.ids if i in tokenizer._special] == controls


def test_a_question_longer_than_the_context_still_gets_an_answer() -> None:
    llm = talkative()
    (segment,) = llm.generate_segments([decision_prompt("word " * 3000)], max_tokens=10)
    assert segment["shortened"] > 2000
    assert segment["prompt_tokens"] + segment["tokens"] <= llm.context_tokens
    assert segment["tokens"] >= 1


def test_a_run_says_what_was_cut() -> None:
    graph = create_self_rag(talkative(), lambda query: [document("A", "very long " * 500)])
    result = graph.invoke({"question": "Who?"}, context={"mode": "always", "depth": 1})  # type: ignore[arg-type]
    assert any("longer than the model's context" in note for note in result["notes"])
    assert result["usage"]["generated_tokens"] > 0
