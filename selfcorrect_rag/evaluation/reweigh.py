"""Choose again with other weights of Self-RAG: its recorded candidates, weighed again.

No model is asked. In short form and in closed sets this is exact. In long form other weights may
continue a beam that the run did not write: such a question is left out, not guessed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from selfcorrect_rag.evaluation.methods import Spec, labelled_options
from selfcorrect_rag.evaluation.tasks import Outcome, Question, Run
from selfcorrect_rag.nodes.beam_select import selected
from selfcorrect_rag.nodes.generate_and_critique import scored
from selfcorrect_rag.nodes.limits import first_beams
from selfcorrect_rag.prompts.reading import closed_answer, is_refusal
from selfcorrect_rag.reflection import best_path_score, path_score, segment_terms
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Beam, Candidate

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
    """Choose among the candidates of a run as ``beam_select`` does: the answer, and the indices of
    its candidates.

    ``options`` are those of a closed set, if the settings name none. None if a path that might be
    better was not continued.
    """
    if options and not settings.options:
        settings = settings.model_copy(update={"options": tuple(options)})
    written, update = rescored(candidates, settings), dict[str, Any]()
    places = {id(candidate): i for i, candidate in enumerate(written)}
    ran = [candidate for candidate in written if candidate["chosen"]]
    beams, unwritten = first_beams({"beams": []}), list[tuple[Beam, int]]()
    for depth in range(settings.depth):
        racing, new = list[Beam](), list[Candidate]()
        for beam in beams:
            path = beam["segments"]
            parent = places[id(path[-1])] if path else None
            following = [c for c in written if c["parent"] == parent and beam["next"]]
            if beam["next"] and not following and path != ran:
                unwritten.append((beam, settings.depth - depth))
                continue
            # Without another segment the run was cut here.
            racing.append(beam if following else Beam({**beam, "next": None}))
            for candidate in following:
                candidate["beam"] = len(racing) - 1
            new += following
        beams = racing
        if not new:
            break
        update = selected(racing, settings, new)
        beams = update["beams"]
    best = max(beams, key=lambda beam: beam["score"], default=None)
    rule = settings.weights, settings.path_rule
    if best is None or any(
        best_path_score(scored(beam["segments"]), further, *rule) > best["score"]
        for beam, further in unwritten
    ):
        return None
    option = next(iter(update.get("options", ())), None)  # of a closed set: it is the answer
    answer = " ".join(segment["text"] for segment in best["segments"])
    return option or answer, tuple(places[id(segment)] for segment in best["segments"])


def rescored(candidates: Candidates, settings: SelfRAGSettings) -> list[Candidate]:
    """Return the candidates with the scores that these weights give."""
    found: list[Any] = []
    for given in candidates:
        said = given.get("option") or closed_answer(given["text"], settings.options)
        candidate: Any = {**given, "option": said}
        found.append(candidate)
        path: list[Candidate] = [candidate]
        while (parent := path[0]["parent"]) is not None:
            path.insert(0, found[parent])
        segments = scored(path)
        terms = segment_terms(segments[-1].critique, segments[-1].sequence, settings.weights)
        candidate["terms"] = terms
        candidate["score"] = sum(term["weight"] * term["value"] for term in terms)
        candidate["path_score"] = path_score(segments, settings.weights, settings.path_rule)
    return found
