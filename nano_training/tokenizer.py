"""The nano generator's tokenizer: byte-level BPE in which a word has one spelling in ids.

Every word is given a space before it: at the start of a text, after a line break, and, with a word
joiner (U+2060) that is dropped on decoding, after an opening bracket, quote, hyphen or slash. So a
name has the same pieces in a title, in a question and in parentheses, and can be copied by rote.
Digits stand alone. Control tokens are single ids.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from nano_training.rows import Mixture, new_row
from nano_training.world import World, lists
from selfcorrect_rag.reflection import CONTROL_TOKENS

PAD, BOS, EOS = "<pad>", "<s>", "</s>"
SPECIAL_TOKENS = (PAD, BOS, EOS, *CONTROL_TOKENS)
"""Ids 0, 1, 2 and the fifteen control tokens from 3 on."""
JOINER = "\u2060"
OPENERS = '([/-“‘«–"'
WORDS = Regex(
    r" ?#+| ?\p{L}[\p{L}\p{M}]*| ?\p{N}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}{JOINER}]{JOINER}?| ?\n|\s+"
)


def _corpus(rows: int, seed: int, mixtures: Sequence[Mixture]) -> Iterator[str]:
    world = World(f"tokenizer/{seed}")
    for mixture in mixtures:
        for _ in range(rows // len(mixtures)):
            made = new_row(world, mixture)
            text = "".join((made.text, *made.branches))
            for token in SPECIAL_TOKENS:
                text = text.replace(token, "\n")
            yield text
    for words in lists().values():
        yield from [" ".join(words)] * 20


def train_tokenizer(
    vocabulary: int, rows: int, seed: int, mixtures: Sequence[Mixture]
) -> PreTrainedTokenizerFast:
    """A tokenizer of `vocabulary` ids learned from `rows` training rows."""
    tokenizer = Tokenizer(models.BPE())
    joined = [
        normalizers.Replace(Regex(rf"\{c}(?=[\p{{L}}\p{{N}}])"), f"{c}{JOINER} ") for c in OPENERS
    ]
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), *joined, normalizers.Replace("\n", "\n "), normalizers.Prepend(" ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(WORDS, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.ByteLevel(),
            decoders.Replace(f"{JOINER} ", ""),
            decoders.Replace(JOINER, ""),  # one that a model wrote out of place
            decoders.Replace("\n ", "\n"),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        show_progress=False,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_corpus(rows, seed, mixtures), trainer)
    tokenizer.post_processor = TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        additional_special_tokens=list(CONTROL_TOKENS),
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer saved in `folder`."""
    loaded: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
    return loaded
