"""Whether a name is on the Hugging Face hub, asked once: its client retries for a minute."""

from pathlib import Path

from selfcorrect_rag.errors import ModelNotFound, require, safe_message

SECONDS = 5
"""How long the hub may take to say whether it has a model."""


def refuse_unknown(name: str | Path) -> None:
    """Raise where ``name`` can only be a model of the hub, and the hub does not give it.

    What is in the cache is not asked for.

    Raises:
        MissingExtra: huggingface_hub is not installed.
        ModelNotFound: the hub does not have it, or does not answer.
    """
    if Path(name).exists():
        return
    hub = require("huggingface_hub", "local")
    names = ("config.json", "tokenizer.json", "tokenizer_config.json")
    try:
        if any(isinstance(hub.try_to_load_from_cache(str(name), file), str) for file in names):
            return
        hub.HfApi().model_info(str(name), timeout=SECONDS)
    except Exception as error:  # the client's, and those of what it sends by
        raise ModelNotFound(
            f"{name} is no folder here, and no model that the hub gives: {safe_message(error)}"
        ) from error
