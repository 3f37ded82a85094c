"""Events say what the result says, with the keys that the docs name."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from tests.providers import chat
from tests.scripted import THREAD
from tests.snippets import ROOT
from tests.test_arguments import make
from tests.test_faults import DOWN, Parts, raises
from tests.test_instruct_rag import DEMONSTRATIONS, LONG, RATIONALE, documents

PAGE = (ROOT / "docs/reference/graphs.md").read_text(encoding="utf-8")
KEYS = dict(re.findall(r"^\| `(\w+)` \| (`.*`) \|$", PAGE, re.MULTILINE))
TALK = [HumanMessage("Who wrote it?"), AIMessage("Ann."), HumanMessage("Who wrote Emma?")]


def titles(found: Any) -> list[str]:
    return [document.metadata["title"] for document in found]


def kept(strips: Any) -> dict[str, int]:
    return {"strips": len(strips), "kept": sum(strip["kept"] for strip in strips)}


def said(event: Mapping[str, Any], r: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a result says of an event that happened once, or last, in its run."""
    match event["event"]:
        case "follow_up_rewritten":
            return {"original_question": r["original_question"], "question": r["question"]}
        case "retrieval_decided":
            return dict(r["retrieval"])
        case "retrieved":
            asked = (r["question"], f"{r['question']} {r['answer']}")  # later with what is written
            query = asked[event["query"] != asked[0]]
            return {"query": query, "passages": titles(r["passages"])}
        case "candidate_scored":
            place = event["depth"], event["beam"], event["passage"]
            every = {(c["depth"], c["beam"], c["passage"]): c for c in r["candidates"]}
            return {key: every[place][key] for key in event if key != "event"}
        case "segment_chosen":
            (last,) = [c for c in r["candidates"] if c["chosen"]][-1:]
            chosen = {"text": last["text"], "passage": last["passage"]}
            return {**chosen, "score": r["score"], "answer": r["answer"]}
        case "graded":
            return {"grades": r["grades"], "action": r["action"], **r["thresholds"]}
        case "strips" | "web_strips" as name:
            return kept(r[name])
        case "query_rewritten":
            return {"query": r["web_query"]}
        case "web_searched":
            found = titles(r["web_results"])
            return {"query": r["web_query"], "source": r["web_source"], "results": found}
        case "web_search_failed":
            failure = r["web_failure"]
            return {"query": r["web_query"], "source": r["web_source"], "reason": failure}
        case "knowledge":
            web = sum(k.metadata["title"] == "Page" for k in r["knowledge"])
            return {"internal": len(r["knowledge"]) - web, "external": web}
        case "demonstrations_chosen":
            return {"questions": [d["question"] for d in r["demonstrations"]]}
        case "dropped":
            note = next(n for n in r["notes"] if f" {event['what']} dropped" in n)
            number, limit = re.findall(r"\d+", note)[0], re.findall(r"\d+", note)[-1]
            return {"what": event["what"], "number": int(number), "limit": int(limit)}
        case "rationale_written":
            text = r["rationale"] or r["answer"]
            return {"text": text, "prompt_mode": r["prompt_mode"], "documents": len(r["numbering"])}
        case "stopped":
            return {"by": r["stopped"], "note": next(n for n in r["notes"] if event["note"] in n)}
        case "retrieval_failed":
            return {"reason": next(n.split(": the answer")[0] for n in r["notes"] if "retr" in n)}
    return {"answer": r["answer"], "citations": len(r["citations"])}


REFLECTING = "retrieval_decided retrieved candidate_scored segment_chosen"
CORRECTED = "graded strips query_rewritten web_searched web_strips knowledge"


@pytest.mark.parametrize(
    ("graph", "broken", "context", "names"),
    [
        ("self_rag", None, {"depth": 1}, f"{REFLECTING} answered"),
        ("self_rag", "model", {"depth": 3}, f"{REFLECTING} retrieved stopped answered"),
        ("self_rag", "retriever", {"depth": 3}, f"{REFLECTING} stopped retrieval_failed answered"),
        ("self_rag", None, {"max_model_calls": 2}, f"{REFLECTING} stopped answered"),
        ("crag", None, {}, f"retrieved {CORRECTED} answered"),
        ("crag", "retriever", {}, "retrieval_failed graded query_rewritten web_searched answered"),
        ("crag", "web", {}, "retrieved query_rewritten web_search_failed answered"),
        ("crag", None, {"max_model_calls": 1}, "retrieved knowledge answered"),
        ("self_crag", None, {"depth": 2}, f"{CORRECTED} segment_chosen answered"),
        ("instruct_rag", None, {}, "retrieved rationale_written answered"),
        ("instruct_rag", "retriever", {}, "retrieval_failed rationale_written answered"),
    ],
)
def test_events_match_the_result(graph: str, broken: str | None, context: Any, names: str) -> None:
    parts = Parts()
    if broken:
        part = getattr(parts, broken)
        part.does, part.after = raises(DOWN), {"self_rag": 1}.get(graph, 0) + (broken == "model")
    check(parts.build(graph), {"question": "Who wrote Emma?"}, context, names)


def test_events_of_follow_ups_and_of_instruct_rags_prompt() -> None:
    graph = make("self_rag", follow_up=chat("Who wrote Emma, Ann?"))
    check(graph, {"messages": TALK}, {}, f"follow_up_rewritten {REFLECTING} answered")
    options: Any = {"demonstrations": DEMONSTRATIONS}
    llm, found = chat(RATIONALE), documents(LONG)
    graph = make("instruct_rag", llm, lambda query: found, **options)
    names = "retrieved demonstrations_chosen dropped rationale_written answered"
    check(graph, {"question": "Who wrote Emma?"}, {"context_tokens": 700}, names)


def check(graph: Any, asked: Any, context: Any, names: str) -> None:
    modes: Any = ["custom", "values"]
    streamed = list(graph.stream(asked, THREAD, context=context, stream_mode=modes))
    events = [event for mode, event in streamed if mode == "custom"]
    (result,) = [part for mode, part in streamed if mode == "values"][-1:]
    assert {*names.split()} <= {event["event"] for event in events}
    for event in events:
        name, *keys = event
        assert (name, ", ".join(f"`{key}`" for key in keys)) == ("event", KEYS[event["event"]])
    for event in {event["event"]: event for event in events}.values():
        told = said(event, result)
        assert {key: event[key] for key in told} == told
        assert len(told) == len(event) - 1
