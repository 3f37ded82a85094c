"""Llama's and Mistral's tokenizer from ``tokenizer.model``, as the official inference reads it.

Self-RAG's authors ran their checkpoints on vLLM 0.2.6 with transformers 4.36.2, whose fast Llama
tokenizer puts a space before the text behind every special token, whatever ``legacy`` says.
Transformers 5 does so only where ``legacy`` is true, and takes its absence for false.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfcorrect_rag.errors import MissingExtra

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CLASSES = frozenset({"LlamaTokenizer", "LlamaTokenizerFast"})
"""As ``tokenizer_config.json`` names them; Mistral's is one of them."""
MODEL_TYPES = frozenset({"llama", "mistral"})
"""As ``config.json`` names models that have this tokenizer where nothing else is said."""
_FIRST = ("<unk>", "<s>", "</s>")
"""The first pieces, by whatever name a model file has them."""


class NotSentencePiece(ValueError):
    """A file that is no byte-pair model of sentencepiece."""


def tokenizer_of_pieces(path: Path, extra: str) -> "Tokenizer":
    """The tokenizer in a ``tokenizer.model``, without tokens that were added to it.

    Args:
        path: the file.
        extra: of this package, to be named where a package is missing.

    Raises:
        MissingExtra: sentencepiece is not installed.
        NotSentencePiece: it is another kind of file, such as tiktoken's of Llama 3.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    scores = _scores(path, extra)
    ids = {piece: i for i, piece in enumerate(scores)}
    model = models.BPE(
        vocab=ids,
        merges=_merges(scores, ids),
        unk_token=_FIRST[0],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(p, normalized=False, special=True) for p in _FIRST])
    return tokenizer


def add_tokens(
    tokenizer: "Tokenizer", config: Mapping[str, Any], files: Mapping[str, Path | None]
) -> None:
    """Add what a checkpoint added to its vocabulary, in the order of ids.

    Since transformers 4.34 ``tokenizer_config.json`` lists these tokens. Before,
    ``added_tokens.json`` had the ids, and ``special_tokens_map.json`` said which are special.
    """
    from tokenizers import AddedToken

    listed = config.get("added_tokens_decoder")
    if listed:
        tokens = {int(i): AddedToken(**token) for i, token in listed.items()}
    else:
        special = set(special_tokens(config, files).values())
        named = _json(files["special_tokens_map.json"]).get("additional_special_tokens") or []
        special |= {_content(token) for token in named}
        tokens = {
            i: AddedToken(text, special=text in special, normalized=text not in special)
            for text, i in _json(files["added_tokens.json"]).items()
        }
    for i in sorted(tokens):
        # One by one: a token's id is the next free one, or that of the piece of its name.
        add = tokenizer.add_special_tokens if tokens[i].special else tokenizer.add_tokens
        add([tokens[i]])


def special_tokens(config: Mapping[str, Any], files: Mapping[str, Path | None]) -> dict[str, str]:
    """A checkpoint's ``bos_token``, ``eos_token``, ``unk_token`` and ``pad_token``, as far as it
    names them."""
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": None}
    for source in (config, _json(files["special_tokens_map.json"])):
        named |= {key: _content(source[key]) for key in named if source.get(key)}
    return {key: token for key, token in named.items() if token}


def put_ends(tokenizer: "Tokenizer", config: Mapping[str, Any], named: Mapping[str, str]) -> None:
    """Let a tokenizer put ``<s>`` before a text, and ``</s>`` after it, where its checkpoint says.

    Llama's says so in ``add_bos_token`` (true where it is absent) and ``add_eos_token`` (false).
    """
    from tokenizers.processors import TemplateProcessing

    before = [named["bos_token"]] if config.get("add_bos_token", True) else []
    after = [named["eos_token"]] if config.get("add_eos_token", False) else []
    tokenizer.post_processor = TemplateProcessing(
        single=[*before, "$A", *after],
        pair=[*before, "$A", *after, *(f"{token}:1" for token in before), "$B:1"]
        + [f"{token}:1" for token in after],
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in {*before, *after}],
    )


def _scores(path: Path, extra: str) -> dict[str, float]:
    """The pieces of a model file in the order of their ids, with the best score for the first
    merge."""
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError as error:
        raise MissingExtra(
            f"{path.name} is read with sentencepiece ({error}): "
            f'pip install "selfcorrect-rag[{extra}]"'
        ) from error
    read = SentencePieceProcessor()
    try:
        read.Load(str(path))
    except (OSError, RuntimeError) as error:
        raise NotSentencePiece(f"{path} is no sentencepiece model") from error
    scores = dict.fromkeys(_FIRST, 0.0)
    scores |= {read.IdToPiece(i): read.GetScore(i) for i in range(len(_FIRST), read.GetPieceSize())}
    if not all(score.is_integer() for score in scores.values()):
        # Merges are numbered from 0 down; other models' scores are log-probabilities.
        raise NotSentencePiece(f"{path} is no byte-pair model of sentencepiece")
    return scores


def _merges(scores: Mapping[str, float], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """The pairs that make up pieces, best piece first, and the pairs of one piece by their ids.

    Their order decides where two ways to merge overlap, as in runs of spaces or dashes.
    """
    ordered = sorted(scores, key=lambda piece: -scores[piece])
    return [
        pair
        for piece in ordered
        for pair in sorted(
            (
                (piece[:cut], piece[cut:])
                for cut in range(1, len(piece))
                if piece[:cut] in ids and piece[cut:] in ids
            ),
            key=lambda pair: (ids[pair[0]], ids[pair[1]]),
        )
    ]


def _content(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else str(token)


def _json(path: Path | None) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path else {}
