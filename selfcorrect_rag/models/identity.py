"""Fingerprints of models, for cached results: models that may answer differently differ in them."""

import hashlib
import json
import threading
import uuid
import weakref
from typing import Any

from langchain_core.language_models import BaseChatModel, BaseLLM
from langchain_core.load import dumps
from langchain_core.load.serializable import Serializable
from langchain_core.runnables import (
    Runnable,
    RunnableLambda,
    RunnableSequence,
    RunnableWithFallbacks,
)
from langchain_core.runnables.base import RunnableBindingBase

ABOUT_CALLS = {"cache", "callbacks", "custom_get_token_ids", "metadata", "rate_limiter", "tags"}
"""Fields of LangChain's models that do not affect answers."""
SAMPLE = 1024
"""Numbers sampled of each weight. Training changes them all, so a few tell models apart."""

_objects: dict[int, str] = {}
_held: list[object] = []
"""Objects without weak references (``__slots__``), kept alive so that their ids are not reused."""
_lock = threading.Lock()


def identity(model: object) -> str:
    """Return a model's fingerprint; equal for models that answer alike, in any process.

    A model may define it by an attribute ``identity``. For LangChain's models it is their class and
    the key of LangChain's own caches; for wrappers, such as bound options, retries and fallbacks,
    the model's with those. Anything else, such as a function, equals only itself.
    """
    # Wrappers pass attributes on to their model.
    if isinstance(model, RunnableBindingBase):
        options = {"kwargs": model.kwargs, "configurable": model.config.get("configurable")}
        return joined("bound", identity(model.bound), options)
    if isinstance(model, RunnableWithFallbacks):
        models = [identity(runnable) for runnable in (model.runnable, *model.fallbacks)]
        return joined("fallbacks", models, model.exceptions_to_handle, model.exception_key)
    if isinstance(model, RunnableSequence):
        return joined("sequence", [identity(step) for step in model.steps])
    if isinstance(model, RunnableLambda):
        functions = (vars(model).get(name) for name in ("func", "afunc"))
        return joined("lambda", [f and identity_of_object(f) for f in functions])
    if isinstance(own := getattr(model, "identity", None), str):
        return own
    if isinstance(model, BaseChatModel) and model.is_lc_serializable():
        return model._get_llm_string()
    if isinstance(model, BaseChatModel | BaseLLM) and model._identifying_params:
        return joined(_name(type(model)), model.asdict())
    if isinstance(model, Serializable) and model.is_lc_serializable():
        return dumps(model)
    return identity_of_object(model)


def described(model: BaseChatModel | BaseLLM, *weights: str) -> str:
    """Return a fingerprint of a model's class, parameters, fields, and perhaps :func:`weights`.

    The object's own if it has neither identifying parameters nor weights.
    """
    if not weights and not model._identifying_params:
        return identity_of_object(model)
    given = {name: getattr(model, name) for name in model.model_fields_set - ABOUT_CALLS}
    return joined(_name(type(model)), model.asdict(), given, *weights)


def identity_of_object(thing: object) -> str:
    """Return an object's own fingerprint while it lives, never reused."""
    with _lock:
        if id(thing) not in _objects:
            try:
                weakref.finalize(thing, _objects.pop, id(thing), None).atexit = False
            except TypeError:
                _held.append(thing)
            _objects[id(thing)] = f"{_name(type(thing))} {uuid.uuid4().hex}"
        return _objects[id(thing)]


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
    said = repr(value)
    # A repr with an address is not unique over time.
    return identity_of_object(value) if " at 0x" in said else f"{_name(type(value))} {said}"


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
