"""docs/evidence.md, written from its figures alone."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.evidence.figures import ALIKE, AS_SHIPPED, CURVES, ORDER, REMOVED, SHARES
from benchmarks.evidence.runs import NAMED, PASSAGES
from selfcorrect_rag.evaluation.plots import Line, plot
from selfcorrect_rag.evaluation.tables import shown_interval

NAMES = {
    "no_retrieval": "the reader without passages",
    "rag_first": "plain RAG, first passage",
    "rag": "plain RAG, all passages",
    "ralm": "in-context RALM",
    "likelihood": "Self-RAG, likelihood alone",
    "self_rag": "Self-RAG",
    "crag": "CRAG",
    "self_crag": "Self-CRAG",
    "instruct_rag": "InstructRAG",
}
PAPERS = (
    ("Self-RAG (Table 2), 7B", "Llama2 with retrieval", "38.2", "Self-RAG", "54.9"),
    ("CRAG (Table 1), SelfRAG-LLaMA2-7b", "RAG", "40.3", "CRAG", "59.3"),
    ("CRAG (Table 1), SelfRAG-LLaMA2-7b", "Self-RAG", "54.9", "Self-CRAG", "61.8"),
    ("CRAG (Table 1), LLaMA2-hf-7b", "RAG", "37.7", "CRAG", "39.8"),
    ("CRAG (Table 1), LLaMA2-hf-7b", "Self-RAG", "29.0", "Self-CRAG", "49.0"),
    ("InstructRAG (Table 3), Llama-3-Instruct 8B", "RALM", "62.3", "InstructRAG-ICL", "64.2"),
    ("InstructRAG (Table 3), Llama-3-Instruct 8B", "RALM", "62.3", "InstructRAG-FT", "66.2"),
)
"""Accuracy on PopQA's 1,399 long-tail questions, in percent."""
Figures = Mapping[str, Any]


def render(made: Figures, folder: str) -> str:
    """The page.

    Args:
        made: ``about``, and ``sets``: the figures of each set by name.
        folder: where the plots lie, as the page links them.
    """
    sets: Figures = made["sets"]
    parts = [
        _opening(made),
        _answer(sets),
        _matches(sets, "whole", "## The whole index", WHOLE),
        _matches(sets, "removed", f"## {REMOVED:.0%} of the gold passages removed", REMOVED_SAYS),
        _by_share(sets, folder),
        _shipped(sets),
        _why(made),
        _components(sets),
        _sweeps(made, folder),
        _costs(sets),
        _papers(),
        _data(made),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def draw(made: Figures) -> dict[str, str]:
    """The plots by file name, as SVG."""
    drawn = {}
    for name, found in made["sets"].items():
        lines = [_line(NAMES[m], SHARES, found["by_share"][m]) for m in CURVES]
        x = "share of questions whose gold passages are removed"
        drawn[f"{name}-removed.svg"] = plot(lines, x, "match")
        for knob in dict.fromkeys(_numeric(found)):
            swept = [s for s in found["sweeps"] if s["knob"] == knob]
            lines = [
                _line(sweep["method"].split(":")[0], _values(sweep), sweep["points"])
                for sweep in swept
            ]
            if knob == "threshold":
                retrieved = [(float(p["at"]), p["retrieved"]) for p in swept[0]["points"]]
                lines.append(Line("share retrieved", retrieved))
            drawn[f"{name}-{knob}.svg"] = plot(lines, knob, "match")
    return drawn


def write(made: Figures, out: Path) -> None:
    """Write the page, and its plots into the folder of its name."""
    folder = out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for name, svg in draw(made).items():
        (folder / name).write_text(svg, encoding="utf-8")
    out.write_text(render(made, folder.name), encoding="utf-8")


WHOLE = (
    "Retrieval may find everything. Every question is answered: the reader's confidence, below "
    "which it would refuse, is set to 0, since the papers' models do not refuse either."
)
REMOVED_SAYS = (
    "As in CRAG's figure 3: of a share of the questions, drawn by their words, the passages that "
    "answer are removed from the index. What plays the web still has them, in an index of all "
    "passages; a real web has more noise and may lack them, so this is CRAG's best case."
)


def _opening(made: Figures) -> str:
    models = (
        "the models that ship, a reader of 22 million parameters"
        if _is_shipped(made)
        else ", ".join(f"{name} {value}" for name, value in made["about"]["options"].items())
    )
    return (
        "# Evidence\n\nWritten by `make evidence`; do not edit. What self-correction is worth "
        f"with {models}, on questions that no training of this project saw. Match: the answer "
        "contains an accepted one (what the papers call accuracy). In brackets 95 % intervals "
        "by bootstrap over questions. Every method reads the same "
        f"{PASSAGES} passages, found by all-MiniLM-L6-v2."
    )


def _answer(sets: Figures) -> str:
    """Whether the papers' order is there, pair by pair."""
    rows = []
    for better, worse in ORDER:
        cells = [_verdict(found, better, worse) for found in sets.values()]
        rows.append([f"{NAMES[better]} > {NAMES[worse]}", *cells])
    said = (
        "Does the papers' order hold? Two figures a cell, the difference of match over the whole "
        f"index and with {REMOVED:.0%} of the gold passages removed; bold where its interval "
        "excludes zero and McNemar's test agrees."
    )
    return (
        f"## In short\n\n{said}\n\n{_table(['', *_titles(sets)], rows)}\n\n"
        f"Told apart:\n\n{_failing(sets)}"
    )


def _verdict(found: Figures, better: str, worse: str) -> str:
    return "; ".join(_difference(_pair(found[where], better, worse)) for where in CONDITIONS)


CONDITIONS = {"whole": "over the whole index", "removed": f"with {REMOVED:.0%} removed"}


def _pair(compared: Figures, better: str, worse: str) -> Figures | None:
    for pair in compared["pairs"]:
        if (pair["first"], pair["second"]) == (better, worse):
            return dict(pair)
    return None


def _difference(pair: Figures | None) -> str:
    if pair is None:
        return "–"
    text = f"{pair['difference']:+.3f}"
    return f"**{text}**" if pair["told_apart"] else text


def _failing(sets: Figures) -> str:
    """Where each pair is told apart, in words."""
    lines = []
    for better, worse in ORDER:
        said = [_told(sets, where, better, worse) for where in CONDITIONS]
        lines.append(f"- {NAMES[better]} > {NAMES[worse]}: {'; '.join(said)}.")
    return "\n".join(lines)


def _told(sets: Figures, where: str, better: str, worse: str) -> str:
    """On which sets a pair is told apart in one condition."""
    pairs = {s["title"]: _pair(s[where], better, worse) for s in sets.values()}
    told = {
        title: pair["difference"] for title, pair in pairs.items() if pair and pair["told_apart"]
    }
    held = [title for title, difference in told.items() if difference > 0]
    reversed_ = [title for title, difference in told.items() if difference < 0]
    said = f"on {_listed(held)}" if held else "on no set"
    return f"{CONDITIONS[where]} {said}" + (
        f", reversed on {_listed(reversed_)}" if reversed_ else ""
    )


def _matches(sets: Figures, where: str, heading: str, said: str) -> str:
    rows = [
        [NAMES[method], *(_value(found[where]["methods"][method]) for found in sets.values())]
        for method in NAMED
    ]
    compared = [
        [
            f"{NAMES[better]} − {NAMES[worse]}",
            *(_with_interval(_pair(found[where], better, worse)) for found in sets.values()),
        ]
        for better, worse in ORDER
    ]
    heads = [f"{found['title']} ({found['answerable']})" for found in sets.values()]
    table = _table(["match (questions)", *heads], rows)
    return (
        f"{heading}\n\n{said}\n\n{table}\n\n{_table(['difference, p', *_titles(sets)], compared)}"
    )


def _with_interval(pair: Figures | None) -> str:
    if pair is None:
        return "–"
    p = "" if pair["mcnemar"] is None else f", p {pair['mcnemar']:.2g}"
    told = "" if pair["told_apart"] else " (cannot be told apart)"
    return f"{pair['difference']:+.3f} {shown_interval(pair['interval'])}{p}{told}"


def _by_share(sets: Figures, folder: str) -> str:
    images = [_image(folder, f"{name}-removed.svg", s["title"]) for name, s in sets.items()]
    said = (
        "CRAG's figure 3. Each question was asked of the whole index and of one without gold; a "
        "share is a choice between these two answers."
    )
    return f"## When retrieval gets worse\n\n{said}\n\n" + "\n".join(images)


def _shipped(sets: Figures) -> str:
    rows = [
        [
            NAMES[method],
            *(
                " / ".join(f"{found['shipped'][method][k]['value']:.3f}" for k in SHIPPED)
                for found in sets.values()
            ),
        ]
        for method in AS_SHIPPED
    ]
    said = (
        "By default the reader refuses below a confidence of 0.7. Shares of all questions, those "
        "that nothing answers included: right / wrong / refused, over the whole index."
    )
    return f"## As the package ships\n\n{said}\n\n{_table(['', *_titles(sets)], rows)}"


SHIPPED = ("right", "wrong", "refused")


def _why(made: Figures) -> str:
    """Where self-correction does not help, and why, with the figures that say so."""
    sets = made["sets"]
    words = {
        "retrieved": "a passage that answers is among the five",
        "read": "some passage's answer is right",
        "chosen": "Self-RAG's answer is right",
    }
    rows = [
        [words[stage], *(_value(found["stages"][stage]) for found in sets.values())]
        for stage in words
    ]
    for at, (one, other) in enumerate(ALIKE):
        cells = (_value(found["alike"][at]) for found in sets.values())
        rows.append([f"{NAMES[one]} and {NAMES[other]} give equal answers", *cells])
    table = _table(["over the whole index", *_titles(sets)], rows)
    reasons = f"\n\n{WHY}" if _is_shipped(made) else ""
    return f"## Where it does not help, and why\n\n{table}{reasons}"


def _is_shipped(made: Figures) -> bool:
    """Whether the models are those that the package ships."""
    return not made["about"]["options"]


WHY = (
    "- **Most is lost in reading.** Between the first and the second line of the table lies what "
    "the reader reads wrong in a passage that answers. No graph mends that; a larger model does. "
    "Self-correction works on what lies between the second and the third.\n"
    "- **The reader's reflection tokens say little that its likelihood does not.** Both come from "
    "the same scores of spans, so Self-RAG chooses much as the likelihood alone does. The papers' "
    "critic is another model's judgement, learned.\n"
    "- **With everything in the index there is little to correct.** CRAG then costs an evaluator "
    "and a search, and changes few answers. It pays where retrieval fails.\n"
    "- **Two hops need passages that are read together.** Plain RAG and RALM read all passages as "
    "one text. The graphs have the reader read each by itself, so on HotpotQA they lose what two "
    "passages say only together.\n"
    "- **The graphs are alike on the reader**, which quotes one span and writes no text: "
    "InstructRAG's rationale is made from Self-RAG's reading, and Self-CRAG reads CRAG's "
    "knowledge. With a model that writes they differ more."
)
"""Of the reader."""


PARTS = {
    ("crag", "grade_auc"): "evaluator's grades: AUC",
    ("crag", "evaluator_accuracy"): "documents on the right side of the upper threshold",
    ("crag", "action_accuracy"): "actions that are right, of correct and incorrect ones",
    ("crag", "ambiguous"): "actions that are ambiguous",
    ("crag", "relevant_strips"): "strips that contain an answer",
    ("crag", "strip_precision"): "kept strips that contain an answer",
    ("crag", "strip_recall"): "strips with an answer that are kept",
    ("self_rag", "ISREL_auc"): "ISREL: AUC",
    ("self_rag", "ISSUP_auc"): "ISSUP: AUC",
}


def _components(sets: Figures) -> str:
    rows = [
        [words, *(_value(found["components"][method]["parts"][part]) for found in sets.values())]
        for (method, part), words in PARTS.items()
    ]
    for method, score in (("crag", "grade"), ("self_rag", "ISREL"), ("self_rag", "ISSUP")):
        cells = []
        for found in sets.values():
            curve = found["components"][method]["calibration"][score]
            cells.append("–" if curve is None else f"{curve['error']:.3f}")
        rows.append([f"{score}: expected calibration error", *cells])
    said = (
        "Over the whole index. A document or strip counts as relevant that contains an accepted "
        "answer, which is less than relevance: names and dates stand in texts that say something "
        "else."
    )
    return f"## The parts\n\n{said}\n\n{_table(['', *_titles(sets)], rows)}"


def _sweeps(made: Figures, folder: str) -> str:
    one_segment = (
        " Beam width and depth have no plot: the reader writes one segment, so that there is "
        "nothing to search."
    )
    parts = [
        "## Knobs\n\nWeights, thresholds, numbers of passages over the whole index. Re-weighting "
        "asks the model nothing: the same calls are weighed anew. CRAG's ablations (its tables 2 "
        f"and 3) with {REMOVED:.0%} of the gold passages removed." + one_segment * _is_shipped(made)
    ]
    swept = {name: found for name, found in made["sets"].items() if found["sweeps"]}
    for name, found in swept.items():
        images = [
            _image(folder, f"{name}-{knob}.svg", f"{found['title']}, {knob}")
            for knob in dict.fromkeys(_numeric(found))
        ]
        parts.append(f"### {found['title']}\n\n" + "\n".join(images))
    ablated = {
        sweep["method"]: [point["at"] for point in sweep["points"]]
        for found in swept.values()
        for sweep in found["sweeps"]
        if sweep["knob"] == "ablations"
    }
    for method, steps in ablated.items():
        rows = [
            [step, *(_value(_point(found, method, step)) for found in swept.values())]
            for step in steps
        ]
        parts.append(_table([NAMES[method], *(f["title"] for f in swept.values())], rows))
    if ablated:
        refinement = (
            " The reader quotes the same words from a passage and from a strip of it, so that "
            "refinement shows little; the papers' models write from what they are given."
        )
        parts.append(_ablations_said(swept, ablated) + refinement * _is_shipped(made))
    return "\n\n".join(parts)


def _ablations_said(swept: Figures, ablated: dict[str, list[str]]) -> str:
    changes: dict[bool, list[float]] = {True: [], False: []}
    for method, (whole, *others) in ablated.items():
        for step in others:
            changes[step == "no search"] += (
                _point(found, method, step)["value"] - _point(found, method, whole)["value"]
                for found in swept.values()
            )
    without, other = (f"{min(c):+.3f} to {max(c):+.3f}" for c in changes.values())
    return (
        f"Without the search, match changes by {without}; without any other one step, by {other}."
    )


def _point(found: Figures, method: str, step: str) -> Figures:
    (sweep,) = (s for s in found["sweeps"] if (s["method"], s["knob"]) == (method, "ablations"))
    (point,) = (p for p in sweep["points"] if p["at"] == step)
    return dict(point)


def _numeric(found: Figures) -> list[str]:
    return [sweep["knob"] for sweep in found["sweeps"] if sweep["knob"] != "ablations"]


def _values(sweep: Figures) -> list[float]:
    return [float(point["at"]) for point in sweep["points"]]


def _costs(sets: Figures) -> str:
    rows = []
    for method in NAMED:
        cells = []
        for found in sets.values():
            cost, plain = found["costs"][method], found["costs"]["rag"]
            cells.append(f"{cost['calls']:.1f}, {cost['seconds'] / plain['seconds']:.2f}")
        rows.append([NAMES[method], *cells])
    said = (
        "Model calls a question, the evaluator's among them, and seconds as a multiple of plain "
        "RAG's: twenty questions, one at a time, with nothing remembered."
    )
    return f"## What it costs\n\n{said}\n\n{_table(['', *_titles(sets)], rows)}"


def _papers() -> str:
    said = (
        "With 7B and 8B models, accuracy on PopQA's 1,399 long-tail questions in percent, as the "
        "papers report it. Nobody here could run these models. With a checkpoint and a GPU the "
        "same command fills this page with them:\n\n"
        "```\npython -m benchmarks.evidence --engine vllm --model selfrag/selfrag_llama2_7b \\\n"
        "  --work build/evidence-7b --out docs/evidence-7b.md\n```"
    )
    rows = [[source, f"{a} {x}", f"{b} {y}"] for source, a, x, b, y in PAPERS]
    return f"## What the papers report\n\n{said}\n\n{_table(['', 'baseline', 'method'], rows)}"


def _data(made: Figures) -> str:
    rows = [
        [found["title"], str(found["questions"]), str(found["answerable"]), found["seen"]]
        for found in made["sets"].values()
    ]
    about = made["about"]
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    said = (
        "`evidence.json` in the folder of the plots has all figures, and of each set the first 16 "
        "digits of the SHA-256 of each question's words (`question_hash`). PopQA, NQ-open and "
        "HotpotQA share one index of 12,683 passages: NQ-open's, HotpotQA's, MuSiQue's, PopQA's "
        "and 6,119 more of Wikipedia."
    )
    made_with = (
        f"Reader {about['reader']}; {versions}; {about['machine']}. Command: `make evidence`."
    )
    table = _table(["", "questions", "answerable", "training"], rows)
    return f"## Data and machine\n\n{said}\n\n{table}\n\n{made_with}"


def _line(name: str, xs: Sequence[float], points: Sequence[Figures]) -> Line:
    return Line(
        name,
        [(x, point["value"]) for x, point in zip(xs, points, strict=True)],
        [(point["interval"][0], point["interval"][1]) for point in points],
    )


def _image(folder: str, file: str, title: str) -> str:
    return f"![{title}]({folder}/{file})"


def _titles(sets: Figures) -> list[str]:
    return [found["title"] for found in sets.values()]


def _value(figure: Figures | None) -> str:
    return "–" if figure is None else f"{figure['value']:.3f} {shown_interval(figure['interval'])}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
