"""The shipped evaluator: a cross-encoder for real text."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfcorrect_rag.errors import require
from selfcorrect_rag.models.evaluators.t5_evaluator import T5Evaluator
from selfcorrect_rag.search.minilm import ARCHITECTURE, minilm_tokenizer, minilm_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CROSS_ENCODER = Path(__file__).parent / "cross_encoder"
"""An adapter of all-MiniLM-L6-v2, and the configuration of the adapted model."""


def load_evaluator(**options: Any) -> T5Evaluator:
    """The offline default for real text: all-MiniLM-L6-v2 as a cross-encoder, by an adapter.

    Args:
        options: arguments of :class:`~selfcorrect_rag.models.T5Evaluator`.

    Raises:
        ModelNotFound: the weights of all-MiniLM-L6-v2 are not here.
        MissingExtra: torch, transformers or peft is not installed.
    """
    peft = require("peft", "demo")
    config = require("transformers", "local").BertConfig.from_pretrained(CROSS_ENCODER)
    model, tokenizer = cross_encoder_base(config)
    adapted = peft.PeftModel.from_pretrained(model, CROSS_ENCODER).merge_and_unload()
    named = {"name": "the cross-encoder on all-MiniLM-L6-v2", **options}
    return T5Evaluator(adapted, tokenizer, **named)


def cross_encoder_base(
    config: Any = None,
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """all-MiniLM-L6-v2 with a head of one label, which is random, and its tokenizer."""
    transformers = require("transformers", "local")
    config = config or transformers.BertConfig(**ARCHITECTURE, num_labels=1)
    model = transformers.BertForSequenceClassification(config)
    weights = minilm_weights()
    model.bert.load_state_dict({name: weights[name] for name in model.bert.state_dict()})
    tokenizer = minilm_tokenizer()
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return model, transformers.BertTokenizerFast(tokenizer_object=tokenizer, model_max_length=512)
