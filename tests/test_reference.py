"""Self-RAG's beam against a second, plain implementation of section 3.3 and Eq. 3-4."""

import asyncio
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.state import Segment
from tests.scripted import ScriptedLLM, document, segment

LEVELS = {"ISSUP": (1.0, 0.5, 0.0), "ISUSE": (-1.0, -0.5, 0.0, 0.5, 1.0)}
SUPPORT = ("[Fully supported]", "[Partially supported]", "[No support / Contradictory]")


def make_segment(seed: int, path: tuple[str, ...]) -> dict[str, Any]:
    """Random probabilities for the segment that ``path``, passage by passage, ends with."""
    rng = random.Random(f"{seed} {path}")

    def group(size: int) -> list[float]:
        weights = [rng.uniform(0.1, 1) for _ in range(size)]
        return [weight / sum(weights) for weight in weights]

    return {
        "isrel": group(2)[0],
        "issup": group(3) if rng.random() < 0.9 else None,
        "isuse": group(5) if rng.random() < 0.7 else None,
        "p": rng.uniform(0.1, 0.9),
        "going": rng.random() < 0.7,
    }


def write(seed: int, prompt: str) -> Segment:
    path = tuple(part[0] for part in prompt.split("<paragraph>")[1:])
    made = make_segment(seed, path)
    judged = [{"[Relevant]": made["isrel"], "[Irrelevant]": 1 - made["isrel"]}]
    if made["issup"]:
        judged.append(dict(zip(SUPPORT, made["issup"], strict=True)))
    if made["isuse"]:
        judged.append({f"[Utility:{i + 1}]": p for i, p in enumerate(made["isuse"])})
    going: Any = {"next": {"[Retrieval]": 0.9, "[No Retrieval]": 0.1}} if made["going"] else {}
    return segment("".join(path), *judged, mean_logprob=math.log(made["p"]), **going)


def score(made: dict[str, Any], weights: dict[str, float]) -> float:
    """Eq. 3-4: p(y) and the weighted critiques; a missing one of a passage counts as the worst."""
    issup = zip(made["issup"] or (0, 0, 1), LEVELS["ISSUP"], strict=True)
    isuse = zip(made["isuse"] or (0, 0, 0, 0, 0), LEVELS["ISUSE"], strict=True)
    return (
        weights["weight_sequence"] * made["p"]
        + weights["weight_isrel"] * made["isrel"]
        + weights["weight_issup"] * sum(p * level for p, level in issup)
        + weights["weight_isuse"] * sum(p * level for p, level in isuse)
    )


def best_path(
    seed: int, titles: str, width: int, depth: int, rule: str, weights: dict[str, float]
) -> tuple[float, set[str]]:
    """The best score of a beam search that keeps ``width`` open paths, and the texts that have it.

    A finished path never competes for a place; an open one that cannot beat the best finished one,
    were all its further segments perfect, gives up its place.
    """
    perfect = sum(weights[name] for name in weights)
    combine: Any = {"mean": lambda s: sum(s) / len(s), "sum": sum, "product": math.prod}[rule]

    def path_score(path: tuple[str, ...], further: int = 0) -> float:
        made = [make_segment(seed, path[: n + 1]) for n in range(len(path))]
        return float(combine([score(each, weights) for each in made] + [perfect] * further))

    going: list[tuple[str, ...]] = [()]
    finished: list[tuple[str, ...]] = []
    for step in range(depth):
        longer = [(*path, title) for path in going for title in titles]
        is_last = step == depth - 1
        finished += [p for p in longer if is_last or not make_segment(seed, p)["going"]]
        going = [p for p in longer if p not in finished]
        to_beat = max(map(path_score, finished), default=-math.inf)
        left = range(1, depth - step)
        going = [p for p in going if any(path_score(p, n) > to_beat for n in left)]
        going = sorted(going, key=path_score, reverse=True)[:width]
    best = max(path_score(path) for path in finished)
    texts = {" ".join("".join(p[: n + 1]) for n in range(len(p))) for p in finished}
    return best, texts


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(("A", "AB", "ABC")),
    st.sampled_from(("mean", "sum")),
    st.integers(1, 4),
    st.sampled_from((1, 2, 3, 32)),
    st.booleans(),
)
def test_the_beam_is_the_papers(
    seed: int, titles: str, rule: str, depth: int, width: int, asynchronous: bool
) -> None:
    rng = random.Random(seed)
    names = ("weight_sequence", "weight_isrel", "weight_issup", "weight_isuse")
    # Without p(y) paths could tie; with room for all of them that makes no difference.
    weights = {name: rng.choice((0.0, 0.5, 1.0, 2.0)) for name in names}
    weights["weight_sequence"] = rng.choice((0.5, 1.0, 2.0) if width < 32 else (0.0, 1.0))
    llm = ScriptedLLM(write=lambda prompt: write(seed, prompt))
    graph = create_self_rag(llm, lambda _: [document(title) for title in titles])
    context: Any = {"beam_width": width, "depth": depth, "path_rule": rule, "mode": "always"}
    run: Any = graph.ainvoke if asynchronous else graph.invoke
    result = run({"question": "Who?"}, context={**context, **weights})
    result = asyncio.run(result) if asynchronous else result
    best, texts = best_path(seed, titles, width, depth, rule, weights)
    assert result["score"] == pytest.approx(best)
    assert result["answer"] in texts
