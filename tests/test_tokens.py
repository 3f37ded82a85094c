"""Ids of prompts and back, counted by hand: parts, cuts, what is kept, and tokenizers refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, processors
from transformers import PreTrainedTokenizerFast

from selfcorrect_rag.errors import NotAReflectionModel, PromptTooLong
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer, Encoded, hide_special_tokens
from selfcorrect_rag.prompts import Part, Prompt
from selfcorrect_rag.reflection import CONTROL_TOKENS, GROUP_OF, PARAGRAPH, RETRIEVAL

LETTERS = [*"abcdefghijklmnopqrstuvwxyz .<>/[]X\u3000"]


def letters(without: Any = (), merges: Any = (), more: Any = (), **options: Any) -> Any:
    """A tokenizer whose every letter is an id, so that ids can be counted by hand."""
    vocabulary = {piece: i for i, piece in enumerate(["<unk>", "<s>", "</s>", *LETTERS])}
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges), **options))
    made.decoder = decoders.Fuse()
    special = ["<s>", "</s>", *(t for t in CONTROL_TOKENS if t not in without)]
    made.add_tokens(list(more))
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    ends = [(t, made.token_to_id(t)) for t in ("<s>", "</s>")]
    made.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")


def parts(*given: tuple[str, int] | str) -> Prompt:
    """Control tokens by name, and texts with the rank in which they are cut."""
    made = (
        Part(p, "control") if isinstance(p, str) else Part(p[0], "untrusted", p[1]) for p in given
    )
    return Prompt(parts=tuple(made))


def encode(prompt: Prompt, limit: int | None = None) -> Encoded:
    (encoded,) = ControlledTokenizer(letters()).encode([prompt], limit)
    return encoded


def test_ids_are_counted_by_part() -> None:
    prompt = parts(("ab", 1), ("c", 0), PARAGRAPH, ("", 0), ("def", 0))
    encoded = encode(prompt)
    assert (encode(prompt, 100), encoded.shortened) == (encoded, 0)
    assert encoded.owners == [-1, 0, 0, 1, 2, 4, 4, 4]
    assert ControlledTokenizer(letters()).text(encoded.ids) == "abcdef"


def test_an_id_over_the_border_of_two_parts_goes_with_the_later_one() -> None:
    merged = ControlledTokenizer(letters(merges=(("b", "c"),)))
    (encoded,) = merged.encode([parts(("ab", 0), ("cd", 0), ("bc", 0))])
    assert encoded.counts == [1, 1, 2, 1]
    assert merged.text(encoded.ids) == "abcdbc"


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (26, "abcdefghij klmnop qrstu xyz"),
        (25, "abcdefghi klmnop qrstu xyz"),  # the longest of the first rank
        (22, "abcdef klmnop qrstu xyz"),  # down to the next one
        (20, "abcde klmno qrstu xyz"),  # and then by turns
        (19, "abcd klmno qrstu xyz"),
        (10, "  qrstu xyz"),  # the next rank
        (5, "   xyz"),
    ],
)
def test_ends_are_cut_by_rank_and_the_longest_first(limit: int, kept: str) -> None:
    prompt = parts(("abcdefghij", 1), ("klmnop", 1), PARAGRAPH, ("qrstu", 2), ("xyz", 0))
    encoded = encode(prompt, limit)
    first, second, third, last = map(len, kept.split(" "))
    assert encoded.counts == [1, first, second, 1, third, last]
    assert ControlledTokenizer(letters()).text(encoded.ids) == kept.replace(" ", "")
    assert (len(encoded.ids), encoded.shortened) == (limit, 26 - limit)


def test_what_may_not_be_cut_is_an_error_that_counts() -> None:
    prompt = Prompt(parts=(Part("abc", "untrusted", 1), Part(PARAGRAPH, "control", 1)))
    assert encode(prompt, 2).counts == [1, 0, 1]
    with pytest.raises(PromptTooLong, match="of 5 tokens leaves 1 too many for a limit of 1 after"):
        encode(prompt, 1)


def test_pieces_are_texts_and_control_tokens_in_order() -> None:
    tokenizer = letters()
    pieces = ["<s>", " ", "a", "b", RETRIEVAL, " ", RETRIEVAL, "a", "</s>", "c"]
    generated, controlled = tokenizer.convert_tokens_to_ids(pieces), ControlledTokenizer(tokenizer)
    given = [(piece["kind"], piece["text"]) for piece in controlled.pieces(generated)]
    control, texts = ("control", RETRIEVAL), [("text", text) for text in ("ab", "a", "c")]
    assert given == [texts[0], control, control, *texts[1:]]
    assert controlled.text(generated) == " ab ac"
    assert {*controlled.reflection_tokens.values()} == {*GROUP_OF}


def test_an_unknown_token_that_is_special_is_known_by_its_other_name() -> None:
    tokenizer = letters(unk_token="<unk>", more=(AddedToken("<unk>", special=True),))
    (encoded,) = ControlledTokenizer(tokenizer).encode([parts(("aZb", 0))])
    assert encoded.ids == tokenizer("aZb")["input_ids"][:-1]


def test_letters_cannot_spell_out_a_special_token() -> None:
    """A vocabulary may have it as a piece, with merges that lead there."""
    merges = [("<", "/"), ("s", ">"), ("</", "s>"), ("</s>", "</s>"), ("a", "</s>"), ("</s>", "b")]
    tokenizer = letters(merges=tuple(merges))
    (encoded,) = ControlledTokenizer(tokenizer).encode([parts(("a</s>b</s></s>", 0))])
    assert tokenizer.eos_token_id not in encoded.ids
    assert tokenizer.decode(encoded.ids[1:]) == "a</s>b</s></s>"


def test_added_white_space_keeps_its_name() -> None:
    tokenizer = letters(more=(AddedToken("  ", normalized=False),))
    (encoded,) = ControlledTokenizer(tokenizer).encode([parts(("a  b", 0))])
    assert tokenizer.convert_ids_to_tokens(encoded.ids) == ["<s>", "a", "  ", "b"]


def test_scored_pieces_keep_their_scores() -> None:
    pieces = [("<unk>", 0.0), ("<s>", -1.0), ("a", -2.0)]
    made = Tokenizer(models.Unigram(pieces, unk_id=0))
    made.add_special_tokens([AddedToken("<s>", special=True)])
    copy, names = hide_special_tokens(made)
    vocabulary = [["<unk>", 0.0], [names["<s>"], -1.0], ["a", -2.0]]
    assert json.loads(copy.to_str())["model"]["vocab"] == vocabulary
    assert names != hide_special_tokens(made)[1], "nobody can know them"


def test_a_slow_tokenizer_is_refused() -> None:
    class SlowTokenizer:
        pass

    message = r"^SlowTokenizer is not a fast .*; save it with a tokenizer.json"
    with pytest.raises(NotAReflectionModel, match=message):
        ControlledTokenizer(SlowTokenizer())  # type: ignore[arg-type]


def test_a_vocabulary_without_reflection_tokens_is_refused(tmp_path: Path) -> None:
    lacking = letters(without=CONTROL_TOKENS[3:6])
    with pytest.raises(NotAReflectionModel, match=r"^the vocabulary of this tokenizer has no"):
        ControlledTokenizer(lacking)
    lacking.save_pretrained(tmp_path)
    message = rf"of {tmp_path} has no \{CONTROL_TOKENS[3]} \(nor 2 others\): use a checkpoint"
    with pytest.raises(NotAReflectionModel, match=message):
        ControlledTokenizer.from_pretrained(tmp_path)
