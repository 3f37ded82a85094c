"""Tokenizers with the special tokens and the chat templates of model families, made here."""

from collections.abc import Iterable
from functools import cache

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from selfcorrect_rag.prompts.parts import FAMILIES
from selfcorrect_rag.reflection import CONTROL_TOKENS

_LOOP = "{% for m in messages %}BODY{% endfor %}"
_TEMPLATES = {
    "Llama 2": "<s>" + _LOOP.replace("BODY", "[INST] {{ m.content.strip() }} [/INST]"),
    "ChatML": _LOOP.replace("BODY", "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"),
    "DeepSeek": _LOOP.replace("BODY", "<\uff5cUser\uff5c>{{ m.content }}")
    + "<\uff5cAssistant\uff5c>",
    "Zephyr": _LOOP.replace("BODY", "<|{{ m.role }}|>\n{{ m.content }}</s>\n"),
}
"""Shortened to what they write for plain turns."""
TEMPLATES = tuple(_TEMPLATES)

NORMALIZERS = {
    "none": lambda: None,
    "nfkc and case": lambda: normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
    "sentencepiece": lambda: normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(" ", "\u2581")]
    ),
    "bert": lambda: normalizers.BertNormalizer(),
}
"""As T5 and BERT have them."""

SPECIAL = tuple(dict.fromkeys(token for tokens in FAMILIES.values() for token in tokens))


@cache
def tokenizer(family: str, normalizer: str = "none") -> PreTrainedTokenizerFast:
    """One with all families' special tokens and reflection tokens, and one family's template."""
    made = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    normalize = NORMALIZERS[normalizer]()
    if normalize is not None:
        made.normalizer = normalize
    tokens = dict.fromkeys([*SPECIAL, *CONTROL_TOKENS])
    is_normalized = normalize is not None
    made.add_special_tokens([AddedToken(t, normalized=is_normalized, special=True) for t in tokens])
    return PreTrainedTokenizerFast(tokenizer_object=made, chat_template=_TEMPLATES[family])


def control_ids(ids: Iterable[int]) -> list[int]:
    """All but the one of text."""
    return [i for i in ids if i]
