"""Sweeps: variants of a method that differ in one knob, and plots of what it does."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from selfcorrect_rag.errors import MissingExtra
from selfcorrect_rag.evaluation.methods import BadMethod, Spec, read_spec, read_specs
from selfcorrect_rag.evaluation.plots import Line, plot
from selfcorrect_rag.render.markup import Html, element, joined, labelled

ABLATIONS = {
    "all steps": "",
    "no correct": "without_action=correct",
    "no incorrect": "without_action=incorrect",
    "no ambiguous": "without_action=ambiguous",
    "no refinement": "refine=false",
    "no rewriting": "rewrite=false",
    "no selection": "select=false",
    "no search": "upper=-1,lower=-1",
}
"""CRAG's ablations by name: those of Tables 2 and 3, and without search, where whatever is
retrieved counts as correct."""
_CRAG = ("crag", "self_crag")
_SWEEP = re.compile(r"(?P<base>.+):(?:ablations|(?P<knob>\w+)\s*=(?P<values>.+))", re.DOTALL)


class Sweep(NamedTuple):
    """The variants of one sweep."""

    kind: str
    """The method's key in ``KINDS``."""
    method: str
    """The name of the variant that is swept."""
    knob: str
    """The setting; ``ablations`` for CRAG's."""
    values: tuple[str, ...]
    """As they were given, one a variant."""
    variants: tuple[str, ...]
    """Names of the variants."""
    reference: str
    """The variant that the others are compared with: the method with its own settings where it is
    in the run, else the first."""


class Variants(NamedTuple):
    """What one run asks."""

    specs: list[Spec]
    sweeps: list[Sweep]
    pairs: list[tuple[str, str]]
    """Those to compare: all pairs of methods, and of a sweep each variant with its reference."""


def read_variants(
    methods: Sequence[str], sweeps: Sequence[str] = (), passages: int | None = None
) -> Variants:
    """The variants of methods and sweeps; one that stands in several is asked once.

    Args:
        methods: see :func:`~selfcorrect_rag.evaluation.methods.read_spec`.
        sweeps: ``METHOD[:KNOB=VALUE,...]:KNOB=V1,V2,...``, where values are as in a method, or
            ``METHOD[:KNOB=VALUE,...]:ablations`` of CRAG or Self-CRAG.
        passages: for those that do not say how many.

    Raises:
        BadMethod: there is no variant, or one cannot be read.
    """
    specs = read_specs(methods, passages) if methods or not sweeps else []
    pairs = list(combinations([spec.name for spec in specs], 2))
    found: list[Sweep] = []
    for text in sweeps:
        sweep, variants = read_sweep(text, passages)
        if sweep.method in [spec.name for spec in specs]:
            sweep = sweep._replace(reference=sweep.method)
        found.append(sweep)
        for variant in variants:
            same = [spec for spec in specs if spec.name == variant.name]
            if same and same[0] != variant:
                raise BadMethod(f"--sweep {text}: {variant.name} is already another variant")
            specs += [] if same else [variant]
        pairs += [(sweep.reference, name) for name in sweep.variants if name != sweep.reference]
    return Variants(specs, found, list(dict.fromkeys(pairs)))


def read_sweep(text: str, passages: int | None = None) -> tuple[Sweep, list[Spec]]:
    """One sweep and its variants; see :func:`read_variants`."""
    read = _SWEEP.fullmatch(text.strip())
    if read is None:
        raise BadMethod(f"--sweep {text}: give METHOD:KNOB=V1,V2,... or METHOD:ablations")
    base = read_spec(read["base"], passages)
    if read["knob"]:
        knobs = {value: f"{read['knob']}={value}" for value in _values(read["values"])}
    elif base.kind in _CRAG:
        knobs = ABLATIONS
    else:
        raise BadMethod(f"--sweep {text}: ablations are of {' or '.join(_CRAG)}")
    specs = [_changed(read["base"], base, change, passages) for change in knobs.values()]
    names = tuple(spec.name for spec in specs)
    same = [spec.name for spec in specs if spec.settings == base.settings]
    reference = same[0] if same else names[0]
    knob = read["knob"] or "ablations"
    return Sweep(base.kind, base.name, knob, tuple(knobs), names, reference), specs


def _values(text: str) -> list[str]:
    """The values between commas, each as a specification has it."""
    try:
        given = json.loads(f"[{text}]")
    except ValueError:  # some are plain text
        return [value.strip() for value in text.split(",")]
    return [value if isinstance(value, str) else json.dumps(value) for value in given]


def _changed(text: str, base: Spec, change: str, passages: int | None) -> Spec:
    """The variant at ``text``, which is ``base``, with other knobs."""
    if not change:
        return base
    given, name = ("," if ":" in each else ":" for each in (text, base.name))
    return read_spec(f"{text}{given}{change}", passages)._replace(name=f"{base.name}{name}{change}")


def render_sweeps(sweeps: Sequence[Mapping[str, Any]], methods: Mapping[str, Any]) -> Html:
    """A plot of each sweep: metrics with their 95 % intervals, and what the knob moves besides.

    Args:
        sweeps: of a summary, each the fields of a :class:`Sweep`.
        methods: of the same summary.
    """
    try:
        return joined(part for sweep in sweeps for part in _plots(Sweep(**sweep), methods))
    except MissingExtra as error:
        return joined([labelled(f"No plots: {error}", "notice")])


def _plots(sweep: Sweep, methods: Mapping[str, Any]) -> list[Html]:
    made = [(value, methods[name]) for value, name in _placed(sweep) if name in methods]
    xs = [x for x, _ in made]
    named = None if _numbers(sweep) else list(sweep.values)
    lines = []
    for metric in dict.fromkeys(name for _, method in made for name in method["metrics"]):
        scored = [(x, method["metrics"][metric]) for x, method in made]
        scored = [(x, figure) for x, figure in scored if figure["value"] is not None]
        ends = [tuple(figure["interval"]) for _, figure in scored]
        known = all(end is not None for pair in ends for end in pair)
        points = [(x, figure["value"]) for x, figure in scored]
        lines += [Line(metric, points, ends if known else ())] if points else []
    for count in _shares(sweep):
        shares = [method[count] / method["rows"] for _, method in made]
        lines.append(Line(f"share {count}", list(zip(xs, shares, strict=True))))
    words = Line("words", [(x, method["words"]) for x, method in made])
    plots = [plot(lines, sweep.knob, "mean over questions", at=named)] if lines else []
    if sweep.knob.startswith("weight"):
        plots.append(plot([words], sweep.knob, "mean words of an answer", at=named))
    return [element("h3", f"{sweep.method}: {sweep.knob}"), *map(Html, plots)]


def _placed(sweep: Sweep) -> list[tuple[float, str]]:
    """Each variant's place on the axis, from left to right."""
    places = _numbers(sweep) or range(len(sweep.values))
    return sorted(zip(places, sweep.variants, strict=True))


def _numbers(sweep: Sweep) -> list[float]:
    """The values, where all are numbers; else none."""
    try:
        return [float(value) for value in sweep.values]
    except ValueError:
        return []


def _shares(sweep: Sweep) -> list[str]:
    """The counts that show what the sweep moves."""
    retrieved = ["retrieved"] if sweep.knob in ("threshold", "mode") else []
    return [*retrieved, *(["answered", "refused", "searched"] if sweep.kind in _CRAG else [])]
