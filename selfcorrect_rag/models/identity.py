"""Fingerprints of models, for cached results: models that may answer differently differ in them."""

import hashlib
import json
import uuid
import weakref
from typing import Any

from langchain_core.language_models import BaseChatModel, BaseLLM
from langchain_core.runnables import Runnable, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

ABOUT_CALLS = {"cache", "callbacks", "custom_get_token_ids", "metadata", "rate_limiter", "tags"}
"""Fields of LangChain's models that do not affect answers."""
SAMPLE = 1024
"""Numbers sampled of each weight. Training changes them all, so a few tell models apart."""

_objects: dict[int, str] = {}


def identity(model: object) -> str:
    """Return a model's fingerprint; equal for models that answer alike, in any process.

    A model may define it by an attribute ``identity``. For LangChain's models it is the key of
    LangChain's own caches; for bound options, retries and fallbacks, their models' with those.
    Anything else, such as a chain or a function, equals only itself.
    """
    if isinstance(model, RunnableBindingBase):  # it passes attributes on to its model
        configurable = model.config.get("configurable")
        return joined("bound", identity(model.bound), model.kwargs, configurable)
    if isinstance(model, RunnableWithFallbacks):
        return joined("fallbacks", [model.runnable, *model.fallbacks], model.exceptions_to_handle)
    if isinstance(own := getattr(model, "identity", None), str):
        return own
    if isinstance(model, BaseChatModel) and model.is_lc_serializable():
        return model._get_llm_string()
    if isinstance(model, BaseChatModel | BaseLLM) and model._identifying_params:
        return joined(type(model), model.asdict())
    return identity_of_object(model)


def described(model: BaseChatModel | BaseLLM, *weights: str) -> str:
    """Return a fingerprint of a model's class, parameters, fields, and perhaps :func:`weights`.

    The object's own if it has neither identifying parameters nor weights.
    """
    if not weights and not model._identifying_params:
        return identity_of_object(model)
    given = {name: getattr(model, name) for name in model.model_fields_set - ABOUT_CALLS}
    return joined(type(model), model.asdict(), given, *weights)


def identity_of_object(thing: object) -> str:
    """Return an object's own fingerprint while it lives, never reused."""
    fresh = f"{_name(type(thing))} {uuid.uuid4().hex}"
    if id(thing) not in _objects:
        try:
            weakref.finalize(thing, _objects.pop, id(thing), None).atexit = False
        except TypeError:  # with __slots__: never cached
            return fresh
    return _objects.setdefault(id(thing), fresh)


def weights(model: Any) -> str:
    """Return a digest of samples of each weight of a torch model."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        numbers = tensor.detach().flatten()
        sample = numbers[:: max(1, len(numbers) // SAMPLE)].float().cpu().numpy()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode() + sample.tobytes())
    return digest.hexdigest()


def joined(*parts: object) -> str:
    """Join any values to one text; equal for equal values, as far as their ``repr`` tells."""
    return json.dumps(parts, default=_part, sort_keys=True)


def _part(value: object) -> str:
    if isinstance(value, type):
        return _name(value)
    if isinstance(value, Runnable):
        return identity(value)
    # A repr with an address is not unique over time.
    return (
        identity_of_object(value) if " at 0x" in repr(value) else f"{_name(type(value))} {value!r}"
    )


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
