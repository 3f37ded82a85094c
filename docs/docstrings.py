"""Lets mkdocstrings read this package's docstrings: their references, and what its knobs say."""

import re
from typing import Any

import griffe

ROLE = re.compile(r":\w+:`~?((?:\w+\.)*)(\w+)`")
LINK = r'<autoref optional identifier="\1\2"><code>\2</code></autoref>'
SIGNS = {"ge": "at least", "le": "at most"}


class Docstrings(griffe.Extension):
    """``:func:`~package.module.name` `` becomes its last part, as a link if it has a place."""

    def on_object(self, *, obj: griffe.Object, **options: Any) -> None:
        if obj.docstring:
            obj.docstring.value = ROLE.sub(LINK, obj.docstring.value)

    def on_attribute(self, *, attr: griffe.Attribute, **options: Any) -> None:
        """The fields of settings are calls of ``knob``, whose ``ge`` and ``le`` are bounds."""
        call = attr.value
        if not isinstance(call, griffe.ExprCall) or str(call.function) != "knob":
            return
        default, *others = call.arguments
        given = [other for other in others if isinstance(other, griffe.ExprKeyword)]
        bounds = " and ".join(
            f"{SIGNS[b.name]} {number(attr, b.value)}" for b in given if b.name in SIGNS
        )
        if attr.docstring and bounds:
            attr.docstring.value += f" It is {bounds}."
        attr.value = default


def number(attr: griffe.Attribute, bound: str | griffe.Expr) -> str | griffe.Expr | None:
    """A bound as it is written, or the value of the constant that it names."""
    if not isinstance(bound, griffe.ExprName):
        return bound
    constant = attr.modules_collection[bound.canonical_path]
    return constant.value
