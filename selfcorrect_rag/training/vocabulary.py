"""Grows a language model's vocabulary by the control tokens (Self-RAG, section 3.2.2)."""

from typing import TYPE_CHECKING, Any

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.reflection import CONTROL_TOKENS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def add_control_tokens(model: Any, tokenizer: "PreTrainedTokenizerBase") -> int:
    """Add those of the fifteen control tokens that ``tokenizer`` lacks, and say how many.

    Their rows of embedding and head, where these are two, begin as the mean of all earlier rows.
    Rows that a model has beyond its vocabulary are used first; rows of tokens that were there,
    control tokens among them, stay as they are.

    Args:
        model: a causal language model; changed in place.
        tokenizer: its own; changed in place.

    Raises:
        BadTrainingData: the tokenizer has no end token.
    """
    import torch
    from tokenizers import AddedToken

    if tokenizer.eos_token_id is None:
        raise BadTrainingData("the model's tokenizer has no end token (eos_token) to train")
    known = len(tokenizer)
    present = tokenizer.get_added_vocab()
    missing = [token for token in CONTROL_TOKENS if token not in present]
    if not missing:
        return 0
    tokenizer.add_tokens(
        [AddedToken(token, special=True, normalized=False) for token in missing],
        special_tokens=True,
    )
    if len(tokenizer) > len(model.get_input_embeddings().weight):
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    ids = tokenizer.convert_tokens_to_ids(missing)
    with torch.no_grad():
        for end in (model.get_input_embeddings(), model.get_output_embeddings()):
            for weights in (end.weight, getattr(end, "bias", None)):
                if weights is not None:
                    weights[ids] = weights[:known].float().mean(0).to(weights.dtype)
    return len(missing)
