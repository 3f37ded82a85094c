"""Weighing a run differently: the form, and what another weight changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from selfcorrect_rag.errors import BadSettings
from selfcorrect_rag.render.markup import Html, element, folded, joined
from selfcorrect_rag.render.reading import (
    Result,
    action,
    decision,
    index,
    knowledge_of,
    records,
)
from selfcorrect_rag.render.reasons import written
from selfcorrect_rag.settings import GRAPHS, CRAGSettings, SelfRAGSettings, Settings
from selfcorrect_rag.ui import forms
from selfcorrect_rag.ui.replay import Replay, is_faithful, knobs_of, replay
from selfcorrect_rag.ui.store import Run

PLAYED = "played"
"""The field that says that a query string is one of this form."""
HIGHEST = {
    "weight_sequence": 3,
    "weight_isrel": 3,
    "weight_issup": 3,
    "weight_isuse": 3,
    "beam_width": 10,
    "strips": 10,
}
"""The upper end of a slider, where the bound is far; a number field takes more."""


@dataclass(frozen=True)
class Play:
    """A run, and the settings that it is looked at with."""

    run: Run
    settings: Settings
    """The run's own."""
    tried: Settings
    knobs: tuple[str, ...]
    """Those that can be changed; empty where nothing can."""
    replay: Replay | None
    """None where nothing was changed."""

    @property
    def result(self) -> Result:
        """What is shown."""
        return self.replay.result if self.replay else self.run.result

    @cached_property
    def changes(self) -> list[Html]:
        """What the other settings change."""
        return differences(self.run.result, self.replay.result) if self.replay else []


def settings_of(run: Run) -> Settings | None:
    """The settings that a run was made with; None where it does not say, or where this version
    has no such settings."""
    made = run.result.get("made")
    if not isinstance(made, Mapping) or run.graph not in GRAPHS:
        return None
    try:
        return GRAPHS[run.graph](**made["settings"])
    except BadSettings:
        return None


def play(run: Run, given: forms.Values) -> Play | None:
    """A run with the knobs that a query string gives; None for a run without settings.

    Raises:
        BadSettings: a value is out of bounds, or a knob cannot be changed without a model.
    """
    own = settings_of(run)
    if own is None:
        return None
    knobs = _knobs(run)
    told = forms.texts(own, knobs)
    if PLAYED in given:
        told |= {name: [] for name in knobs if forms.schema(run.graph)[name].get("items")}
    told |= {name: [*texts] for name, texts in given.items() if name != PLAYED}
    changed = forms.read(run.graph, told)
    if others := told.keys() - {*knobs}:
        raise BadSettings("only a new run can tell what it changes", min(others))
    named = {name: getattr(changed, name) for name in knobs}
    tried = type(own)(**{**own.model_dump(), **named})
    again = None
    if any(getattr(tried, name) != getattr(own, name) for name in knobs):
        again = replay(run.result, tried)
    return Play(run, own, tried, knobs, again)


@lru_cache(16)  # a slider asks many times, and what is over does not change
def _knobs(run: Run) -> tuple[str, ...]:
    """The knobs that say something about this run; none where it is not over, or where a replay
    with its own settings is not the run."""
    settings = settings_of(run)
    if settings is None or run.state != "done" or not is_faithful(run.result, settings):
        return ()
    reflects = bool(run.result.get("candidates"))
    several = any(index(c.get("depth")) for c in records(run.result, "candidates"))
    asked = (run.result.get("retrieval") or {}).get("probability") is not None
    graded = bool(run.result.get("thresholds"))
    known = forms.schema(run.graph)
    use = {
        "path_rule": several,
        "beam_width": several,
        "threshold": asked,
        "group_weights": reflects and "group_weights" in known,
        **dict.fromkeys(("upper", "lower", "strip_threshold", "strips"), graded),
    }
    return tuple(name for name in knobs_of(settings) if use.get(name, reflects))


def form(shown: Play) -> Html:
    """The knobs of a run, each with what it does; works without a script, too."""
    run, about = shown.run, forms.schema(shown.run.graph)
    fields = [_field(name, about[name], shown) for name in shown.knobs]
    return element(
        "form",
        element("input", type="hidden", name=PLAYED, value="1"),
        *fields,
        element(
            "div",
            element("button", "Weigh", class_="no-js"),
            element("a", "Reset", href=f"/runs/{run.id}", class_="button"),
            class_="row",
        ),
        action=f"/runs/{run.id}",
        method="get",
        id="play",
        aria_label="Weigh differently",
    )


def _field(name: str, about: Mapping[str, Any], shown: Play) -> Html:
    control = about["x_oap_ui_config"]
    value = forms.texts(shown.tried, [name])[name]
    if options := about.get("items", {}).get("enum"):
        return folded(forms.in_words(name), forms.tokens(name, options, value), is_open=bool(value))
    if control["type"] not in ("slider", "number"):
        return forms.field(name, about, shown.tried)
    own = _standing(name, shown)
    low, high = control["min"], control["max"]
    high = min(high, HIGHEST.get(name, high))
    step = 1 if control["step"] == 1 else 0.01
    number = {
        "type": "number",
        "name": name,
        "id": f"play-{name}",
        "step": "any" if step != 1 else 1,
    }
    return element(
        "div",
        element("label", forms.in_words(name), for_=f"play-{name}"),
        element(
            "input",
            type="range",
            min=low,
            max=max(high, own or 0),
            step=step,
            value=value[0] or (own if own is not None else low),
            data_for=f"play-{name}",
            aria_label=f"{forms.in_words(name)}, slider",
            class_="js",
        ),
        element(
            "input",
            min=control["min"],
            max=control["max"],
            value=value[0],
            placeholder="" if own is None else f"{own:.3g}",
            inputmode="decimal",
            title=about["description"],
            **number,
        ),
        class_="slider",
    )


def _standing(name: str, shown: Play) -> float | None:
    """What an empty field stands for: the run's own threshold."""
    value = getattr(shown.tried, name)
    if value is None and name in ("upper", "lower"):
        value = (shown.run.result.get("thresholds") or {}).get(name)
    return value if isinstance(value, int | float) else None


def verdict(shown: Play) -> Html | None:
    """What the other settings change, and what they leave unknown; None where nothing was
    changed."""
    if shown.replay is None:
        return None
    changes = shown.changes
    names = [n for n in shown.knobs if getattr(shown.tried, n) != getattr(shown.settings, n)]
    knobs = ", ".join(
        f"{forms.in_words(n)} {forms.told(getattr(shown.settings, n))} \u2192 "
        f"{forms.told(getattr(shown.tried, n))}"
        for n in names
    )
    lead = "With other settings" if changes else "With other settings, the same outcome"
    return element(
        "section",
        element("p", element("strong", lead), element("span", f" {knobs}", class_="aside")),
        element("ul", *(element("li", change) for change in changes), class_="notes")
        if changes
        else None,
        joined(
            [
                element("p", "What only a run can tell", class_="unknown-head"),
                element(
                    "ul", *(element("li", each) for each in shown.replay.unknown), class_="notes"
                ),
            ]
        )
        if shown.replay.unknown
        else None,
        class_="verdict",
        aria_label="What this changes",
    )


def differences(run: Result, now: Result) -> list[Html]:
    """What another result says otherwise: decision, action, strips, answer, score."""
    found: list[Html] = []

    def told(what: str, before: object, after: object) -> None:
        if before != after:
            found.append(
                joined([f"{what}: ", element("del", before), " \u2192 ", element("ins", after)])
            )

    told("Retrieval", *(_first(decision(r)) for r in (run, now)))
    told("Action", *(_first(action(r)) for r in (run, now)))
    for key, what in (("strips", "Strips kept"), ("web_strips", "Strips of the web kept")):
        told(what, *(sum(bool(s.get("kept")) for s in records(r, key)) for r in (run, now)))
    told("Answer", *(str(r.get("answer") or "none") for r in (run, now)))
    told("Written from", *(_sources(r) for r in (run, now)))
    scores = [r.get("score") for r in (run, now)]
    if None not in scores:
        told("Path score", *(written(score) for score in scores))
    return found


def _first(pair: tuple[str, str] | None) -> str:
    return pair[0] if pair else "none"


def _sources(result: Result) -> str:
    """The texts that the answer was written from."""
    _, texts = knowledge_of(result)
    chosen = [c for c in records(result, "candidates") if c.get("chosen")]
    read = [at for c in chosen if (at := index(c.get("passage"), texts)) is not None]
    return (
        ", ".join(dict.fromkeys(texts[at].title or f"passage {at + 1}" for at in read))
        or "no passage"
    )


def explained(settings: Settings) -> str:
    """Why nothing can be weighed, where that is so."""
    if not isinstance(settings, SelfRAGSettings | CRAGSettings):
        return "InstructRAG has no scores to weigh: each of its knobs takes the model."
    return "Nothing of this run can be weighed without a model."
