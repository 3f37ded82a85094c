"""Fingerprints: they tell a model from all that may answer otherwise, for results that are kept."""

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
"""Fields of LangChain's models on which no answer depends."""
SAMPLE = 1024
"""Numbers read of each weight. Training changes them all, so that a few tell models apart."""

_objects: dict[int, str] = {}
_held: list[object] = []
"""Objects that cannot tell when they are gone, as with ``__slots__``: so that ids stay theirs."""
_lock = threading.Lock()


def identity(model: object) -> str:
    """The same for models that answer alike, as far as they tell, in any process.

    A model may say it itself, by an attribute ``identity``. Of LangChain's models it is what
    LangChain's own caches tell them apart by, and their class; of what wraps a model, such as
    bound options, retries and fallbacks, the model's with those. Whatever tells nothing of the
    kind, such as a function, is itself alone.
    """
    # What wraps a model passes attributes on to it.
    if isinstance(model, RunnableBindingBase):
        options = {"kwargs": model.kwargs, "configurable": model.config.get("configurable")}
        return _joined("bound", identity(model.bound), options)
    if isinstance(model, RunnableWithFallbacks):
        models = [identity(runnable) for runnable in (model.runnable, *model.fallbacks)]
        return _joined("fallbacks", models, model.exceptions_to_handle, model.exception_key)
    if isinstance(model, RunnableSequence):
        return _joined("sequence", [identity(step) for step in model.steps])
    if isinstance(model, RunnableLambda):
        functions = (vars(model).get(name) for name in ("func", "afunc"))
        return _joined("lambda", [f and identity_of_object(f) for f in functions])
    if isinstance(own := getattr(model, "identity", None), str):
        return own
    if isinstance(model, BaseChatModel) and model.is_lc_serializable():
        return model._get_llm_string()
    if isinstance(model, BaseChatModel | BaseLLM) and model._identifying_params:
        return _joined(_name(type(model)), model.asdict())
    if isinstance(model, Serializable) and model.is_lc_serializable():
        return dumps(model)
    return identity_of_object(model)


def described(model: BaseChatModel | BaseLLM, *weights: str) -> str:
    """A model by its class, what identifies it, its fields, and perhaps its :func:`weights`.

    Itself alone where there is neither a word that identifies it nor weights.
    """
    if not weights and not model._identifying_params:
        return identity_of_object(model)
    given = {name: getattr(model, name) for name in model.model_fields_set - ABOUT_CALLS}
    return _joined(_name(type(model)), model.asdict(), given, *weights)


def identity_of_object(thing: object) -> str:
    """The fingerprint of an object for as long as it lives; no other ever has the same."""
    with _lock:
        if id(thing) not in _objects:
            try:
                weakref.finalize(thing, _objects.pop, id(thing), None).atexit = False
            except TypeError:
                _held.append(thing)
            _objects[id(thing)] = f"{_name(type(thing))} {uuid.uuid4().hex}"
        return _objects[id(thing)]


def weights(model: Any) -> str:
    """A digest of some numbers of each weight of a torch model."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        numbers = tensor.detach().flatten()
        sample = numbers[:: max(1, len(numbers) // SAMPLE)].float().cpu().numpy()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode() + sample.tobytes())
    return digest.hexdigest()


def _joined(*parts: object) -> str:
    return json.dumps(parts, default=_part, sort_keys=True)


def _part(value: object) -> str:
    if isinstance(value, type):
        return _name(value)
    if isinstance(value, Runnable):
        return identity(value)
    said = repr(value)
    # Where it gives an address, another object may have the same text tomorrow.
    return identity_of_object(value) if " at 0x" in said else f"{_name(type(value))} {said}"


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
