"""What made a result: graph, model, index, settings, versions, date, and the cost of each step."""

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from selfcorrect_rag.render.markup import Html, element, excerpt, folded, joined
from selfcorrect_rag.render.reading import Result, index, number, record
from selfcorrect_rag.render.reasons import written
from selfcorrect_rag.render.route import in_words

PACKAGES = ("selfcorrect-rag", "langgraph", "langchain-core", "torch", "transformers", "vllm")
NAMES = ("graph", "model", "index", "date")


def versions() -> dict[str, str]:
    """Python's and those of the packages that decide answers, where they are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def made(result: Result) -> Html | None:
    """What ``ask`` saved of what made the result, and the cost of each step."""
    by = record(result, "made")
    costs = record(result, "costs")
    parts = [
        _table({name: by[name] for name in NAMES if by.get(name)}),
        folded("Cost by step", _costs(costs)) if costs else None,
        *(
            folded(heading, _table(record(by, key)))
            for heading, key in (
                ("Settings", "settings"),
                ("Models and index", "config"),
                ("Versions", "versions"),
            )
            if record(by, key)
        ),
        element("p", "Again: ", element("code", "selfcorrect-rag ask --again RESULT.json"))
        if by
        else None,
    ]
    return joined(parts) if any(parts) else None


def _table(values: Mapping[str, Any]) -> Html | None:
    rows = (
        element(
            "tr",
            element("th", excerpt(name, 60), scope="row"),
            element("td", element("bdi", excerpt(_said(value), 500))),
        )
        for name, value in values.items()
    )
    return element("table", *rows) if values else None


def _said(value: object) -> object:
    if value is None or value in ([], {}):
        return "none"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _costs(costs: Mapping[str, Any]) -> Html:
    heads = ("step", "calls", "tokens read", "tokens written", "seconds")
    rows = []
    for step in costs:
        cost = record(costs, step)
        counts = (index(cost.get(k)) for k in ("model_calls", "prompt_tokens", "generated_tokens"))
        cells = ["\u2013" if count is None else f"{count:,}" for count in counts]
        cells.append(written(number(cost.get("seconds")), 3))
        name = element("th", in_words(step), scope="row", title=excerpt(step, 60))
        rows.append(element("tr", name, *(element("td", cell) for cell in cells)))
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    return element("div", element("table", head, *rows), class_="figures")
