"""Fingerprints of models, for cached results: models that may answer differently differ in them."""

import json
import uuid
import weakref

from langchain_core.language_models import BaseChatModel, BaseLLM
from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBindingBase

ABOUT_CALLS = {"cache", "callbacks", "custom_get_token_ids", "metadata", "rate_limiter", "tags"}
"""Fields of LangChain's models that do not affect answers."""

_objects: dict[int, str] = {}
"""Fingerprints of living objects, by their id."""


def identity(model: object) -> str:
    """Return a model's fingerprint; equal for models that answer alike, in any process.

    A model may define it by an attribute ``identity``. For LangChain's models it is the key of
    LangChain's own caches; for bound options and retries, their model's with those. Anything else,
    such as a chain or a function, equals only itself.
    """
    if isinstance(model, RunnableBindingBase):  # it passes attributes on to its model
        bound = [model.bound, model.kwargs, model.config.get("configurable")]
        return json.dumps(bound, default=_part, sort_keys=True)
    if isinstance(own := getattr(model, "identity", None), str):
        return own
    if isinstance(model, BaseChatModel) and model.is_lc_serializable():
        return model._get_llm_string()
    if isinstance(model, BaseChatModel | BaseLLM):
        return described(model)
    return identity_of_object(model)


def described(model: BaseChatModel | BaseLLM) -> str:
    """Return a fingerprint of a model's class, parameters and fields; the object's own if it has no
    identifying parameters."""
    if not model._identifying_params:
        return identity_of_object(model)
    given = {name: getattr(model, name) for name in model.model_fields_set - ABOUT_CALLS}
    return json.dumps([type(model), model.asdict(), given], default=_part, sort_keys=True)


def identity_of_object(thing: object) -> str:
    """Return an object's own fingerprint while it lives, never reused."""
    fresh = f"{type(thing).__qualname__} {uuid.uuid4().hex}"
    if id(thing) not in _objects:
        try:
            weakref.finalize(thing, _objects.pop, id(thing), None).atexit = False
        except TypeError:  # such as object(): never cached
            return fresh
    return _objects.setdefault(id(thing), fresh)


def _part(value: object) -> str:
    if isinstance(value, Runnable):
        return identity(value)
    # A repr with an address is not unique over time.
    return repr(value) if " at 0x" not in repr(value) else identity_of_object(value)
