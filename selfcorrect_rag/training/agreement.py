"""Agreement of a model with given reflection tokens, group by group (Self-RAG, figure 5)."""

from collections.abc import Iterable
from typing import Any

from selfcorrect_rag.reflection import GROUP_OF, TOKENS, Group, registered_groups

FIGURE_5 = (Group.RETRIEVE, Group.ISSUP, Group.ISREL, Group.ISUSE)
"""The paper's groups in the order of its figure; registered ones follow."""

Confusion = dict[str, dict[str, int]]
"""How often the model gave each token of a group (inner), by the right token (outer)."""


def agreement_of(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Compare pairs of the right token and the one of its group that was given.

    Returns:
        By group: the ``accuracy`` (None without pairs), the ``base_rate`` of always giving the
        commonest token, both in [0, 1], and the ``confusion``.
    """
    groups = [group.value for group in FIGURE_5] + [group.name for group in registered_groups()]
    confusion: dict[str, Confusion] = {
        group: {token: dict.fromkeys(TOKENS[group], 0) for token in TOKENS[group]}
        for group in groups
    }
    for right, given in pairs:
        confusion[GROUP_OF[right]][right][given] += 1
    return {
        "accuracy": {group: _accuracy(table) for group, table in confusion.items()},
        "base_rate": {group: _base_rate(table) for group, table in confusion.items()},
        "confusion": confusion,
    }


def agreement_in_words(agreement: dict[str, Any], names: tuple[str, str]) -> list[str]:
    """The paper's figure 5 as lines; ``names`` are of the accuracy and of the base rate."""
    shares = dict(zip(names, (agreement["accuracy"], agreement["base_rate"]), strict=True))
    lines = [" " * 16 + "".join(f"{group:>10}" for group in agreement["accuracy"])]
    for name, by_group in shares.items():
        cells = ["-" if share is None else f"{100 * share:.1f}" for share in by_group.values()]
        lines.append(f"{name:<16}" + "".join(f"{cell:>10}" for cell in cells))
    return lines


def _accuracy(confusion: Confusion) -> float | None:
    total = sum(sum(given.values()) for given in confusion.values())
    return sum(confusion[token][token] for token in confusion) / total if total else None


def _base_rate(confusion: Confusion) -> float | None:
    totals = [sum(given.values()) for given in confusion.values()]
    return max(totals) / sum(totals) if any(totals) else None
