"""Conditions on metadata, in the language of Chroma's ``where``."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from selfcorrect_rag.errors import SelfCorrectError

Filter = Mapping[str, Any]
"""``{"owner": "ada"}``, ``{"year": {"$gte": 2024}}``, ``{"$and": [...]}``, ``{"$or": [...]}``."""
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


def normal(filter: object) -> Filter:
    """Return a filter with one condition on each level, as Chroma takes it.

    Raises:
        BadFilter: it is not a filter.
    """
    if not isinstance(filter, Mapping) or not filter:
        raise BadFilter(f"a filter is an object of conditions on metadata, got {filter!r:.200}")
    if len(filter) > 1:
        return {"$and": [normal({key: wanted}) for key, wanted in filter.items()]}
    ((key, wanted),) = filter.items()
    if key in ("$and", "$or"):
        if not isinstance(wanted, list) or not wanted:
            raise BadFilter(f"{key} takes a list of filters, got {wanted!r:.200}")
        return {key: [normal(part) for part in wanted]} if wanted[1:] else normal(wanted[0])
    if not isinstance(key, str) or key.startswith("$"):
        raise BadFilter(f"a filter's key is a metadata field, $and or $or, got {key!r:.200}")
    if isinstance(wanted, Mapping):
        if len(wanted) != 1 or next(iter(wanted)) not in _OPERATORS:
            known = ", ".join(_OPERATORS)
            raise BadFilter(f"a condition on {key} has one of {known}; got {wanted!r:.200}")
        ((name, value),) = wanted.items()
        if name in ("$gt", "$gte", "$lt", "$lte") and not isinstance(value, int | float):
            raise BadFilter(f"{name} compares numbers, got {value!r:.200}")
    elif not isinstance(wanted, str | int | float):
        raise BadFilter(
            f"{key} is compared with a text, a number or a boolean; got {wanted!r:.200}"
        )
    return {key: wanted}


def matches(filter: Filter, metadata: Mapping[str, Any]) -> bool:
    """Return whether metadata satisfy a `normal` filter; a missing field satisfies nothing."""
    ((key, wanted),) = filter.items()
    if key == "$and":
        return all(matches(part, metadata) for part in wanted)
    if key == "$or":
        return any(matches(part, metadata) for part in wanted)
    if key not in metadata:
        return False
    ((name, value),) = wanted.items() if isinstance(wanted, Mapping) else (("$eq", wanted),)
    try:
        return _OPERATORS[name](metadata[key], value)
    except TypeError:  # text against a number
        return False
