"""Candidates and beams for tests of one node."""

from typing import Any

from selfcorrect_rag.state import Beam, Candidate


def candidate(text: str, **fields: Any) -> Candidate:
    """The first segment from the first passage, relevant, and the end of the answer."""
    given: Any = {"depth": 0, "beam": 0, "parent": None, "step": "retrieve", "passage": 0}
    given |= {"text": text, "pieces": [{"kind": "text", "text": text}], "judgements": {}}
    given |= {"critique": {"ISREL": 1.0, "ISSUP": 1.0, "ISUSE": None}, "hard": []}
    given |= {"sequence_probability": 1.0, "score": 3.0, "terms": []}
    given |= {"path_score": 3.0, "path_rule": "mean", "path_terms": [3.0]}
    given |= {"next": None, "finish_reason": "end", "option": None}
    given |= {"dropped": None, "chosen": False}
    given["critique"] |= {k: fields.pop(k) for k in given["critique"].keys() & fields.keys()}
    assert fields.keys() <= given.keys()
    return {**given, **fields}  # type: ignore[return-value]


def beam(*segments: Candidate, **fields: Any) -> Beam:
    """A partial answer that wants a passage for its next segment."""
    given: Any = {"score": 3.0, "next": "retrieve", "cut": None, "retrieved": []}
    assert fields.keys() <= given.keys()
    return {"segments": list(segments), **given, **fields}  # type: ignore[typeddict-item]
