"""Events of a run on the custom stream: JSON objects with a key ``event``.

``graph.stream(..., stream_mode="custom")`` gives them in the order in which things happen. Values
are those of the state's keys of the same names; passages, results and documents are titles, best
first, or their number.
"""

from collections.abc import Mapping

EVENTS: Mapping[str, str] = {
    "follow_up_rewritten": "original_question question",
    "retrieval_decided": "retrieve probability threshold mode",
    "retrieved": "query passages",
    "retrieval_failed": "reason",
    "candidate_scored": "depth beam passage text critique score",
    # The last segment of the best beam. Its first ``settled`` segments are shared by all beams, so
    # that they are final; of the rest of ``answer`` another beam may still win.
    "segment_chosen": "text passage score answer settled",
    "graded": "grades action upper lower",
    "strips": "strips kept",
    "web_strips": "strips kept",
    "query_rewritten": "query",
    "web_searched": "query source results",
    "web_search_failed": "query source reason",
    "knowledge": "internal external",
    "demonstrations_chosen": "questions",
    # ``what`` is documents or demonstrations, ``limit`` is in tokens.
    "dropped": "what number limit",
    "rationale_written": "text mode documents",
    # ``by`` is a key of ``stopped``, ``note`` says what was done instead.
    "stopped": "by note",
    "answered": "answer citations",
}
"""The keys of each event."""
