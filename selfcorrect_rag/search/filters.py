"""Conditions on metadata, in the language of Chroma's ``where``."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from selfcorrect_rag.errors import SelfCorrectError

Filter = Mapping[str, Any]
"""``{"owner": "ada"}``, ``{"year": {"$gte": 2024}}``, ``{"$and": [...]}``, ``{"$or": [...]}``."""
Test = Callable[[Mapping[str, Any]], bool]
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
    "$in": lambda value, wanted: value in wanted,
    "$nin": lambda value, wanted: value not in wanted,
    "$contains": lambda value, wanted: isinstance(value, list) and wanted in value,
    "$not_contains": lambda value, wanted: isinstance(value, list) and wanted not in value,
}


class BadFilter(SelfCorrectError, ValueError):
    """A filter is not in Chroma's language, or cannot be applied."""


def compile_filter(filter: object) -> Test:
    """Return a function that tells whether metadata satisfy a filter.

    A missing field satisfies nothing.

    Raises:
        BadFilter: it is not a filter.
    """
    if not isinstance(filter, Mapping) or not filter:
        raise BadFilter(f"a filter is an object of conditions on metadata, got {filter!r:.200}")
    tests = [_compile_condition(key, wanted) for key, wanted in filter.items()]
    return lambda metadata: all(test(metadata) for test in tests)


def _compile_condition(key: object, wanted: Any) -> Test:
    if key in ("$and", "$or"):
        if not isinstance(wanted, list) or not wanted:
            raise BadFilter(f"{key} takes a list of filters, got {wanted!r:.200}")
        parts = [compile_filter(part) for part in wanted]
        join = all if key == "$and" else any
        return lambda metadata: join(part(metadata) for part in parts)
    if not isinstance(key, str) or key.startswith("$"):
        raise BadFilter(f"a filter's key is a metadata field, $and or $or, got {key!r:.200}")
    condition = wanted if isinstance(wanted, Mapping) else {"$eq": wanted}
    name, value = next(iter(condition.items()), ("", None))
    if len(condition) != 1 or name not in _OPERATORS:
        known = ", ".join(_OPERATORS)
        raise BadFilter(f"a condition on {key} has one of {known}; got {wanted!r:.200}")
    takes_list = name in ("$in", "$nin")
    if not isinstance(value, list | tuple if takes_list else str | int | float):
        kind = "a list" if takes_list else "a text, a number or a boolean"
        raise BadFilter(f"{name} compares {key} with {kind}, got {value!r:.200}")

    def test(metadata: Mapping[str, Any]) -> bool:
        try:
            return key in metadata and bool(_OPERATORS[name](metadata[key], value))
        except TypeError:  # text against a number
            return False

    return test
