"""Choose again with other weights of Self-RAG: its recorded candidates, weighed again.

No model is asked. In short form and in closed sets this is exact. In long form other weights may
continue a beam that the run did not write: such a question is left out, not guessed.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from selfcorrect_rag.evaluation.methods import Spec, labelled_options
from selfcorrect_rag.evaluation.tasks import Outcome, Question, Run
from selfcorrect_rag.prompts.reading import closed_answer, is_refusal
from selfcorrect_rag.reflection import ScoredSegment, best_path_score, path_score
from selfcorrect_rag.settings import SelfRAGSettings

Candidates = Sequence[Mapping[str, Any]]
Path = tuple[int, ...]
"""Indices of the candidates of a partial answer."""


def reweigh_run(run: Run, specs: Sequence[Spec]) -> Run:
    """Add the outcomes of the specs that weigh another method's candidates again."""
    questions = {question.id: question for question in run.questions}
    outcomes = [*run.outcomes]
    for spec in specs:
        for outcome in run.of(spec.reweighs):
            found = reweigh(questions[outcome.id], outcome, spec.settings)
            outcomes += [] if found is None else [found._replace(method=spec.name)]
    return run._replace(outcomes=outcomes)


def reweigh(question: Question, outcome: Outcome, settings: Any) -> Outcome | None:
    """The outcome with Self-RAG's ``settings``, at no cost; None if the run does not tell.

    An outcome without candidates stays as it is. Citations and marks are those of the run, so only
    the answer, its refusal and what was chosen are new.
    """
    if settings.score_above is not None:  # a threshold for scores of other weights
        return None
    free = outcome._replace(model_calls=0, prompt_tokens=0, generated_tokens=0, seconds=0.0)
    if outcome.error or not outcome.candidates:
        return free
    found = choose(outcome.candidates, settings, labelled_options(question))
    if found is None:
        return None
    answer, path = found
    if answer != outcome.answer:
        free = free._replace(answer=answer, cited_answer=answer, citations=())
    return free._replace(
        score=None,
        refused=not answer.strip() or is_refusal(answer),
        candidates=tuple({**c, "chosen": i in path} for i, c in enumerate(outcome.candidates)),
    )


def choose(
    candidates: Candidates, settings: SelfRAGSettings, options: Sequence[str] = ()
) -> tuple[str, Path] | None:
    """Choose among the candidates of a run: the answer, and the indices of its candidates.

    ``options`` are those of a closed set, if the settings name none. None if a path that might be
    better was not continued.
    """
    allowed = list(settings.options) or list(options)
    if settings.closed or allowed:
        return _choose_option(candidates, allowed, settings)
    path = _choose_path(candidates, settings)
    return None if path is None else (" ".join(candidates[i]["text"] for i in path), path)


def scored_segment(candidate: Mapping[str, Any]) -> ScoredSegment:
    """Return what the score of a candidate is made of."""
    retrieved = candidate["step"] == "retrieve"
    return ScoredSegment(candidate["critique"], candidate["sequence_probability"], retrieved)


def _choose_option(
    candidates: Candidates, options: Sequence[str], settings: SelfRAGSettings
) -> tuple[str, Path]:
    """The option whose candidates' scores sum to most (section 3.3), and its best candidate."""
    rule = settings.weights, settings.path_rule
    scores = [path_score([scored_segment(candidate)], *rule) for candidate in candidates]
    allowed = [i for i, c in enumerate(candidates) if not c["dropped"]] or range(len(candidates))
    backing: dict[str, list[int]] = {}
    for i in allowed:
        answer = closed_answer(candidates[i]["text"], options)
        if answer is not None:
            backing.setdefault(answer, []).append(i)
    if not backing:
        best = max(allowed, key=lambda i: (bool(candidates[i]["text"]), scores[i]))
        return str(candidates[best]["text"]), (best,)
    answer = max(backing, key=lambda option: math.fsum(scores[i] for i in backing[option]))
    return answer, (max(backing[answer], key=lambda i: scores[i]),)


def _choose_path(candidates: Candidates, settings: SelfRAGSettings) -> Path | None:
    """The best path of the beam search (section 3.3) over what was written; None if a path that
    might have been better was not continued."""
    children: dict[int | None, list[int]] = {}
    for i, candidate in enumerate(candidates):
        children.setdefault(candidate["parent"], []).append(i)
    ran = tuple(i for i, candidate in enumerate(candidates) if candidate["chosen"])
    segments = [scored_segment(candidate) for candidate in candidates]
    rule = settings.weights, settings.path_rule

    def score(path: Path) -> float:
        return path_score([segments[i] for i in path], *rule)

    def may_beat(path: Path, best: float, further: int) -> bool:
        return best_path_score([segments[i] for i in path], further, *rule) > best

    going: list[Path] = [()]
    ended: list[Path] = []
    unwritten: list[tuple[Path, int]] = []
    for depth in range(settings.depth):
        further, new = settings.depth - depth - 1, list[Path]()
        for path in going:
            written = children.get(path[-1] if path else None, [])
            allowed = [(*path, i) for i in written if not candidates[i]["dropped"]]
            new += allowed
            if path and (path == ran or (written and not allowed)):
                ended.append(path)  # the run was cut here, or all continuations were dropped
            elif path and not written:
                unwritten.append((path, further + 1))
        if not (new or ended or unwritten):  # every first segment was dropped
            return (max(children[None], key=lambda i: (bool(candidates[i]["text"]), score((i,)))),)
        ended += [p for p in new if candidates[p[-1]]["next"] is None]
        open_paths = [p for p in new if candidates[p[-1]]["next"] is not None]
        if not further:
            ended += open_paths
            break
        best_ended = max(map(score, ended), default=-math.inf)
        open_paths = [p for p in open_paths if not ended or may_beat(p, best_ended, further)]
        going = sorted(open_paths, key=score, reverse=True)[: settings.beam_width]
        if not going:
            break
    best_ended = max(map(score, ended), default=-math.inf)
    if not ended or any(may_beat(path, best_ended, further) for path, further in unwritten):
        return None
    return max(ended, key=score)
