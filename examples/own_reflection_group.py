"""A group of reflection tokens of one's own: whether a sentence is plain enough for a child.

One entry is all it takes. A chat model is asked by its ``instruction``, as here; a checkpoint whose
vocabulary has the tokens gives them by itself. Scores, beams, events and pages show the group.

    python examples/own_reflection_group.py ollama:qwen3:8b "Who wrote Middlemarch?"
"""

import sys

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.demo import demo_index
from selfcorrect_rag.reflection import ReflectionGroup, register_group

ISPLAIN = register_group(
    ReflectionGroup(
        name="ISPLAIN",
        tokens=("[Plain]", "[Dense]"),
        values=(1.0, -1.0),
        weight=0.5,
        absent=-1.0,
        instruction="Does a ten-year-old understand the output? Answer [Plain] or [Dense].",
    )
)


def main(model: BaseChatModel, question: str) -> None:
    """Answer, and show what the group made of each candidate."""
    graph = create_self_rag(model, demo_index().as_retriever())
    result = graph.invoke({"question": question}, context={"group_weights": {"ISPLAIN": 2.0}})
    for candidate in result["candidates"]:
        print(f"{candidate['critique']['ISPLAIN']}  {candidate['score']:.2f}  {candidate['text']}")


if __name__ == "__main__":
    main(init_chat_model(sys.argv[1]), sys.argv[2])
