"""Print the tables of a page from the figures of ``python -m benchmarks.evidence``:
``python docs/evidence_tables.py [FILE]``, by default docs/evidence/evidence.json."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parent / "evidence" / "evidence.json"
SETS = {
    "popqa": "PopQA, long tail",
    "triviaqa": "TriviaQA",
    "multihop": "Two hops",
    "nq": "NQ-open",
    "hotpotqa": "HotpotQA",
    "files": "Own documents",
}
METHODS = {
    "no_retrieval": "no passages",
    "rag_first": "plain RAG, first passage",
    "rag": "plain RAG, all passages",
    "ralm": "in-context RALM",
    "likelihood": "Self-RAG, likelihood alone",
    "self_rag": "Self-RAG",
    "crag": "CRAG",
    "self_crag": "Self-CRAG",
    "instruct_rag": "InstructRAG",
}
SHIPPED = ("right", "wrong", "refused")
EVALUATOR = {
    "grades": "AUC of the reader's grades",
    "title_rule": "AUC of the title rule",
    "difference": "the reader minus the title rule",
}
SEGMENTS = {
    "p(y)": "p(y)",
    "ISREL": "ISREL",
    "ISSUP": "ISSUP",
    "ISUSE": "ISUSE",
    "score": "score, all of them",
    "difference": "p(y) minus score",
}
SWEPT, WEIGHTS = "self_rag:weight_{}={}", ("0", "0.5", "1", "2")
Sets = Mapping[str, Any]


def tables(made: Mapping[str, Any]) -> dict[str, str]:
    """Return each table as Markdown, by its subject, for the sets that were measured."""
    sets = {name: made["sets"][name] for name in SETS if name in made["sets"]}
    removed = {name: found for name, found in sets.items() if found["removed"]}
    made_tables = {
        "sets": _table(
            "set",
            ("questions", "with an answer", "answerable: one of the five passages holds it"),
            [(SETS[name], _set_cells(found)) for name, found in sets.items()],
        ),
        "match": _match(sets, "whole"),
        "differences": _differences(sets, "whole"),
        "shipped": _by_method(sets, _shipped),
        "cost": _by_method(sets, _cost),
    }
    if all(found["confidence"] for found in sets.values()):
        made_tables["confidence"] = _table(
            "Self-RAG's answers",
            ("mean confidence", "right", "expected calibration error"),
            [(SETS[name], _confidence(found["confidence"])) for name, found in sets.items()],
        )
    if all((found.get("isrel") or {}).get("isrel") for found in sets.values()):
        cells = [interval(found["isrel"]["isrel"]) for found in sets.values()]
        rows = [("AUC of ISREL", cells)]
        made_tables["relevance"] = _table("Self-RAG", [SETS[name] for name in sets], rows)
    if all(found.get("segments") for found in sets.values()):
        made_tables["segments"] = _table(
            "AUC for right segments",
            [SETS[name] for name in sets],
            [
                (title, [interval(found["segments"][key]) for found in sets.values()])
                for key, title in SEGMENTS.items()
            ],
        )
    if all(SWEPT.format("isrel", 0) in found["whole"]["methods"] for found in sets.values()):
        made_tables["sweeps"] = _sweeps(sets)
    if all(found["evaluator"] for found in sets.values()):
        made_tables["evaluator"] = _table(
            "",
            [SETS[name] for name in sets],
            [
                (title, [interval(found["evaluator"][key]) for found in sets.values()])
                for key, title in EVALUATOR.items()
            ],
        )
    if removed:
        made_tables["match, removed"] = _match(removed, "removed")
        made_tables["differences, removed"] = _differences(removed, "removed")
    return made_tables


def interval(found: Sequence[float], sign: str = "") -> str:
    """A mean with its 95 % interval."""
    value, low, high = found
    return f"{value:{sign}.3f} [{low:.3f}, {high:.3f}]"


def _table(corner: str, head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    lines = [(corner, *head), ("---",) * (len(head) + 1), *((first, *rest) for first, rest in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _by_method(sets: Sets, cell: Callable[[Any, str], str], corner: str = "") -> str:
    asked = set.intersection(*({*found["whole"]["methods"]} for found in sets.values()))
    rows = [(METHODS[m], [cell(f, m) for f in sets.values()]) for m in METHODS if m in asked]
    return _table(corner, [SETS[name] for name in sets], rows)


def _set_cells(found: Mapping[str, Any]) -> list[str]:
    return [str(found["questions"]), str(found["with_answers"]), interval(found["answerable"])]


def _match(sets: Sets, kind: str) -> str:
    return _by_method(sets, lambda found, m: interval(found[kind]["methods"][m]["match"]), "match")


def _differences(sets: Sets, kind: str) -> str:
    rows: dict[str, list[str]] = {}
    for found in sets.values():
        for pair in found[kind]["pairs"]:
            name = f"{METHODS[pair['first']]} − {METHODS[pair['second']]}"
            shown = interval([pair["difference"], *pair["interval"]], "+")
            rows.setdefault(name, []).append(f"**{shown}**" if pair["significant"] else shown)
    return _table("difference of match", [SETS[name] for name in sets], list(rows.items()))


def _sweeps(sets: Sets) -> str:
    rows = []
    for group in ("isrel", "issup", "isuse"):
        for name, found in sets.items():
            methods = [found["whole"]["methods"][SWEPT.format(group, w)] for w in WEIGHTS]
            rows.append((group.upper(), [SETS[name], *(interval(m["match"]) for m in methods)]))
    return _table("weight of", ["set", *WEIGHTS], rows)


def _shipped(found: Mapping[str, Any], method: str) -> str:
    shares = found["shipped"][method]
    unheld = shares.get("refused_unheld")
    where_none = f"{unheld[0]:.3f} of {shares['unheld']}" if unheld else "none"
    return " / ".join([*(f"{shares[key][0]:.3f}" for key in SHIPPED), where_none])


def _confidence(found: Mapping[str, Any]) -> list[str]:
    return [interval(found["confidence"]), interval(found["right"]), f"{found['error']:.3f}"]


def _cost(found: Mapping[str, Any], method: str) -> str:
    seconds = found["seconds"]
    if method not in seconds:
        return "Self-RAG's, weighed again"
    calls = found["whole"]["methods"][method]["calls"]
    share = f" ({seconds[method] / seconds['rag']:.2f})" if "rag" in seconds else ""
    return f"{calls:.1f}, {seconds[method]:.2f} s{share}"


if __name__ == "__main__":
    figures = Path(sys.argv[1]) if sys.argv[1:] else FIGURES
    for subject, table in tables(json.loads(figures.read_text(encoding="utf-8"))).items():
        print(f"{subject}\n\n{table}\n")
