"""Compare the engines on one checkpoint, in vLLM's environment:
``python -m smollm2_training.engines --model FOLDER``.

Self-RAG answers questions of split 2 in short form on transformers, on vLLM and, with ``--url``, on
a vLLM server of the same checkpoint (integrations/vllm_server/serve.py). Prints one line of JSON:
``answers`` and ``texts`` are shares of answers and of candidates that are those of transformers,
``score`` and ``critique`` the largest differences among candidates of the same text.
"""

import argparse
import json
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from benchmarks import documents
from reader_training.rows import retrieved
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models import (
    ReflectionLLM,
    TransformersReflectionLLM,
    VLLMReflectionLLM,
    VLLMServerReflectionLLM,
)

SHORT: Any = {"form": "short", "mode": "always", "segment_tokens": 30}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--url", help="of a vLLM server")
    parser.add_argument("--most", type=int, default=20, help="questions")
    parser.add_argument("--engine", default="{}", help="vLLM's options, as JSON")
    args = parser.parse_args()
    asked = [each for each in retrieved(2) if each.source in ("popqa", "triviaqa")]
    given: list[Any] = [
        {"question": each.question, "documents": documents(each.passages[:5])}
        for each in asked[:: max(1, len(asked) // args.most)][: args.most]
    ]

    def ask(llm: ReflectionLLM) -> list[Mapping[str, Any]]:
        graph = create_self_rag(llm, None)
        return [graph.invoke(each, context=SHORT) for each in given]

    found = {}
    with ExitStack() as stack:
        llms: dict[str, Any] = {
            "transformers": TransformersReflectionLLM.from_pretrained(args.model, device="cpu"),
            "vllm": VLLMReflectionLLM(model=args.model, engine=json.loads(args.engine)),
        }
        if args.url:
            llms["server"] = VLLMServerReflectionLLM(base_url=args.url)
        for name, llm in llms.items():
            found[name] = ask(stack.enter_context(llm))
    print(json.dumps({name: compare(found["transformers"], found[name]) for name in llms}))


def compare(expected: list[Mapping[str, Any]], given: list[Mapping[str, Any]]) -> dict[str, float]:
    """Compare two engines' results for the same questions."""
    answers = [one["answer"] == other["answer"] for one, other in zip(expected, given, strict=True)]
    pairs = [
        pair
        for one, other in zip(expected, given, strict=True)
        for pair in zip(one["candidates"], other["candidates"], strict=True)
    ]
    same = [pair for pair in pairs if pair[0]["text"] == pair[1]["text"]]
    critiques = [
        abs(value - (other["critique"][group] or 0))
        for one, other in same
        for group, value in one["critique"].items()
        if value is not None
    ]
    return {
        "answers": sum(answers) / len(answers),
        "texts": len(same) / len(pairs),
        "score": max(abs(one["score"] - other["score"]) for one, other in same),
        "critique": max(critiques),
    }


if __name__ == "__main__":
    main()
