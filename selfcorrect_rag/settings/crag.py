"""CRAG's knobs, as a class and as a dict."""

from typing import Literal

from selfcorrect_rag.errors import BadSettings
from selfcorrect_rag.settings.base import Context, Settings, knob
from selfcorrect_rag.thresholds import Thresholds


class CRAGSettings(Settings):
    """CRAG's knobs; defaults are those of appendix B.2 where given there."""

    graph = "CRAG"

    passages: int = knob(
        10, "Documents retrieved and graded (section 4.2: generally 10).", "retrieve", ge=1, le=100
    )
    upper: float | None = knob(
        None,
        "Correct when a document scores above this; null takes the evaluator's own.",
        "grade_documents",
        ge=-1,
        le=1,
    )
    lower: float | None = knob(
        None,
        "Incorrect when all score below this; null takes the evaluator's own.",
        "grade_documents",
        ge=-1,
        le=1,
    )
    without_action: Literal["none", "correct", "incorrect", "ambiguous"] = knob(
        "none",
        "Leave an action out, as in Table 2: correct and incorrect become ambiguous; without "
        "ambiguous the upper threshold alone decides.",
        "grade_documents",
    )
    decomposition: Literal["sentences", "windows", "passage"] = knob(
        "sentences",
        "Size of a strip: a few sentences, fifty words, or the whole document.",
        "refine_strips",
        "select_web_strips",
    )
    strips: int = knob(
        5,
        "Most strips kept of all retrieved documents, and as many of the web's.",
        "refine_strips",
        "select_web_strips",
        ge=1,
        le=100,
    )
    scored_strips: int = knob(
        100,
        "Most strips that the evaluator scores of all retrieved documents, and as many of the "
        "web's; the first of each document.",
        "refine_strips",
        "select_web_strips",
        ge=1,
        le=10_000,
    )
    strip_threshold: float = knob(
        -0.5,
        "Strips that score no higher are dropped.",
        "refine_strips",
        "select_web_strips",
        ge=-1,
        le=1,
    )
    refine: bool = knob(
        True, "Refine documents into strips (off: Table 3, without refinement).", "refine_strips"
    )
    rewrite: bool = knob(
        True,
        "Rewrite the question into keywords (off: Table 3, without rewriting).",
        "rewrite_query",
    )
    select: bool = knob(
        True,
        "Select strips of the web pages (off: Table 3, without selection).",
        "select_web_strips",
    )
    web_results: int = knob(5, "Pages taken from a web search.", "web_search", ge=1, le=50)
    approve_search: bool = knob(
        False,
        "Pause before a web search until a person says yes, no, or another query. Once a turn has "
        "begun with it, no later context takes it back.",
        "web_search",
    )
    instruction: str | None = knob(None, "Task instruction put before the question.", "generate")

    def thresholds(self, own: Thresholds) -> Thresholds:
        """A run's thresholds; those not set are the evaluator's ``own``.

        Raises:
            BadSettings: they are invalid together, such as a lower one above the upper.
        """
        upper = own.upper if self.upper is None else self.upper
        lower = own.lower if self.lower is None else self.lower
        try:
            return Thresholds(upper=upper, lower=lower)
        except ValueError as error:
            raise BadSettings(str(error)) from error


class CRAGContext(Context, total=False):
    """Some knobs of CRAG, as a dict: those of :class:`CRAGSettings`."""

    passages: int
    upper: float | None
    lower: float | None
    without_action: Literal["none", "correct", "incorrect", "ambiguous"]
    decomposition: Literal["sentences", "windows", "passage"]
    strips: int
    scored_strips: int
    strip_threshold: float
    refine: bool
    rewrite: bool
    select: bool
    web_results: int
    approve_search: bool
    instruction: str | None
