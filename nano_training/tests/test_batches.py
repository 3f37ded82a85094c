"""What is learned in a row, token by token, and how text becomes ids."""

import pytest
import torch

from nano_training import architecture
from nano_training.architecture import build
from nano_training.batches import Weights, collate, encode, token_weights
from nano_training.rows import MAIN, TrainingRow, evidence, new_row, prompt
from nano_training.tokenizer import SPECIAL_TOKENS, load_tokenizer
from nano_training.world import World
from selfcorrect_rag.demo import generator_path
from selfcorrect_rag.reflection import CONTROL_TOKENS

WEIGHTS = Weights(reflection=3.0, passage=0.25)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(generator_path())


def test_masks_of_a_row_with_two_passages() -> None:
    row_with_weights = [
        ("Question", 0),
        ("[Retrieval]", 3),
        ("<paragraph>", 1),
        ("first", 0.25),
        ("</paragraph>", 0),
        ("[Relevant]", 3),
        ("right", 1),
        ("[Fully supported]", 3),
        ("[Continue to Use Evidence]", 3),
        ("invented", 0),
        ("[No support / Contradictory]", 3),
        ("[Retrieval]", 3),
        ("<paragraph>", 1),
        ("second", 0.25),
        ("text", 0.25),
        ("</paragraph>", 0),
        ("[Relevant]", 3),
        ("more", 1),
        ("[Fully supported]", 3),
        ("[Utility:5]", 3),
        ("</s>", 1),
    ]
    tokens = [token for token, _ in row_with_weights]
    assert token_weights(tokens, WEIGHTS) == [weight for _, weight in row_with_weights]


def test_partly_supported_text_is_read_not_learned() -> None:
    tokens = ["[Retrieval]", "[Relevant]", "a", "b", "[Partially supported]", "[Utility:4]"]
    assert token_weights(tokens, WEIGHTS) == [3, 3, 0, 0, 3, 3]


def test_text_after_an_irrelevant_passage_is_learned() -> None:
    tokens = ["[Retrieval]", "[Irrelevant]", "not", "said", "[Utility:1]"]
    assert token_weights(tokens, WEIGHTS) == [3, 3, 1, 1, 3]


def test_real_rows_count_nothing_before_the_response_and_in_passages(tokenizer) -> None:
    world = World("weights")
    rows = [new_row(world, MAIN) for _ in range(60)]
    opening, closing = tokenizer.convert_tokens_to_ids(["<paragraph>", "</paragraph>"])
    for made, encoded in zip(rows, encode(tokenizer, rows, Weights()), strict=True):
        ids, weights, text = encoded.ids, encoded.weights, made.text
        instruction = text[: text.index("### Response:\n") + len("### Response:\n")]
        assert set(weights[: len(tokenizer(instruction)["input_ids"])]) == {0.0}
        for start in (i for i, token in enumerate(ids) if token == opening):
            end = ids.index(closing, start)
            assert set(weights[start + 1 : end + 1]) == {0.0}


@pytest.mark.parametrize("short", [0, 10_000])
def test_a_branch_sees_what_it_follows_and_no_other_branch(
    tokenizer, monkeypatch: pytest.MonkeyPatch, short: int
) -> None:
    """Every branch gets the hidden states that it has as a row of its own."""
    monkeypatch.setattr(architecture, "SHORT", short)
    world = World("branches")
    rows = [r for r in (new_row(world, MAIN) for _ in range(40)) if len(r.branches) > 1][:4]
    model = build(len(tokenizer)).eval()
    model.set_attn_implementation(architecture.BY_BRANCH)
    encoded = encode(tokenizer, rows, Weights())
    batch = collate(encoded)
    with torch.no_grad():
        together = model.model(
            input_ids=batch.ids, position_ids=batch.positions, branch=batch.branch
        ).last_hidden_state
        model.set_attn_implementation("sdpa")
        for states, of_row, made in zip(together, encoded, rows, strict=True):
            for number, branch in enumerate(made.branches, start=1):
                ids = tokenizer(made.text + branch, return_tensors="pt")["input_ids"]
                alone = model.model(input_ids=ids).last_hidden_state[0]
                seen = [i for i, b in enumerate(of_row.branch) if b in (0, number)]
                assert [of_row.ids[i] for i in seen] == ids[0].tolist()
                torch.testing.assert_close(states[seen], alone, atol=1e-4, rtol=1e-4)


def test_the_first_token_of_a_further_branch_is_not_predicted_from_the_branch_before(
    tokenizer,
) -> None:
    world = World("first")
    for encoded in encode(tokenizer, [new_row(world, MAIN) for _ in range(40)], Weights()):
        for i in range(1, len(encoded)):
            if encoded.branch[i] > 1 and encoded.branch[i - 1] != encoded.branch[i]:
                assert encoded.weights[i] == 0
            elif encoded.branch[i] == 1 and encoded.branch[i - 1] == 0:
                assert encoded.weights[i] > 0


def test_the_answer_in_a_passage_is_marked_where_it_stands_and_nowhere_else(tokenizer) -> None:
    head = prompt("Who wrote Emma Stone?")
    text = evidence("Emma Stone\nEmma Stone is a novel by Zoë Lund. Zoë Lund-Berg read it in 1815.")
    rows = [
        TrainingRow(
            head + text, ("[Relevant]It was written by Zoë Lund.[Fully supported]</s>",), "Zoë Lund"
        ),
        TrainingRow(head + text, ("[Irrelevant]The passage does not say.</s>",), ""),
        TrainingRow(head + text, ("[Irrelevant]The passage does not say.</s>",)),
    ]
    found, nowhere, untold = encode(tokenizer, rows, Weights())
    marked = [i for i, answer in zip(found.ids, found.hints, strict=True) if answer == 1]
    assert tokenizer.decode(marked).split() == ["Zoë", "Lund", "Zoë", "Lund"]
    assert set(nowhere.hints) == {-1.0, 0.0}
    assert set(untold.hints) == {-1.0}
    begun = len(tokenizer(head)["input_ids"]) + 2
    assert set(found.hints[:begun]) == {-1.0}
    assert set(found.hints[-10:]) == {-1.0}


def test_rows_name_the_answer_that_their_gold_passage_holds(tokenizer) -> None:
    world = World("answers")
    rows = [made for made in (new_row(world, MAIN) for _ in range(200)) if made.answer]
    assert len(rows) > 50
    for encoded in encode(tokenizer, rows, Weights()):
        assert 1.0 in encoded.hints


def test_control_tokens_are_single_ids_in_checkpoint_order(tokenizer) -> None:
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(18))
    for token in CONTROL_TOKENS:
        assert tokenizer(token)["input_ids"] == [
            tokenizer.bos_token_id,
            tokenizer.convert_tokens_to_ids(token),
        ]


@pytest.mark.parametrize(
    "text",
    [
        "Zoë Müller-Štefić (born 1 May 1952 in Łódź – died 2001)",
        '"Ænima" is a song by O\'Brien & Sons; it cost 1,200.50 in 1887–1950.',
        "First line\nsecond line\n\nfourth line",
        "東京 and Москва [Fully sup",
    ],
)
def test_text_survives_the_tokenizer(tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_a_name_has_the_same_ids_wherever_it_stands(tokenizer) -> None:
    name = tokenizer("Quimpor Žilvać", add_special_tokens=False)["input_ids"]
    text = prompt("Who was Quimpor Žilvać?") + evidence(
        'Quimpor Žilvać\nHe ("Quimpor Žilvać") met Anna-Quimpor Žilvać (Quimpor Žilvać).'
    )
    ids = tokenizer(text)["input_ids"]
    found = sum(ids[i : i + len(name)] == name for i in range(len(ids)))
    assert found == 5


def test_a_row_in_one_call_equals_its_prompt_and_its_continuation(tokenizer) -> None:
    head = prompt("Who wrote Emma?") + evidence("Emma\nEmma is a novel by Jane Austen.")
    whole = tokenizer(head + "[Relevant]Emma was written by Jane Austen.")["input_ids"]
    begun = tokenizer(head)["input_ids"]
    assert whole[: len(begun)] == begun
