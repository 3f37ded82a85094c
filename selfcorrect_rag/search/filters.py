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
    """Return a function that tells whether metadata satisfy a filter; a missing field does not.

    Raises:
        BadFilter: it is not a filter.
    """
    if not isinstance(filter, Mapping) or not filter:
        raise BadFilter(f"a filter is an object of conditions on metadata, got {filter!r:.200}")
    tests = [_compile_condition(key, wanted) for key, wanted in filter.items()]
    return lambda metadata: all(test(metadata) for test in tests)


def _compile_condition(key: object, wanted: Any) -> Test:
    if key in ("$and", "$or"):
        parts = [compile_filter(part) for part in (wanted if isinstance(wanted, list) else ())]
        if not parts:
            raise BadFilter(f"{key} takes a list of filters, got {wanted!r:.200}")
        join = all if key == "$and" else any
        return lambda metadata: join(part(metadata) for part in parts)
    condition = wanted if isinstance(wanted, Mapping) else {"$eq": wanted}
    name, value = next(iter(condition.items()), ("", None))
    kinds = list if name in ("$in", "$nin") else str | int | float
    if len(condition) != 1 or name not in _OPERATORS or not isinstance(value, kinds):
        raise BadFilter(
            f"a condition on {key} is a text, a number, a boolean, or an object with one of "
            f"{', '.join(_OPERATORS)} ($in and $nin with a list); got {wanted!r:.200}"
        )
    if not isinstance(key, str) or key.startswith("$"):
        raise BadFilter(f"a filter's key is a metadata field, $and or $or, got {key!r:.200}")

    def test(metadata: Mapping[str, Any]) -> bool:
        try:
            return key in metadata and bool(_OPERATORS[name](metadata[key], value))
        except TypeError:  # text against a number
            return False

    return test
