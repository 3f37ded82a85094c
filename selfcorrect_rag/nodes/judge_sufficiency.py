"""judge_sufficiency: refuse where what was found is not enough to answer the question."""

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langgraph.graph import END

from selfcorrect_rag.errors import Fault
from selfcorrect_rag.events import Answered
from selfcorrect_rag.models import PromptedReflectionLLM, ReflectionLLM
from selfcorrect_rag.models.chat_model import ChatClassifier, model_behind
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes.base.asking import choose
from selfcorrect_rag.nodes.base.limits import FOR_THE_ANSWER, limit_met, stopped
from selfcorrect_rag.nodes.base.node import Call, Node, Update, Work, call, callbacks, current, emit
from selfcorrect_rag.nodes.base.reply import kept, say
from selfcorrect_rag.nodes.base.turns import TurnGraph
from selfcorrect_rag.nodes.base.usage import count_batch
from selfcorrect_rag.prompts.decisions import SUFFICIENT, YES, sufficiency_prompt
from selfcorrect_rag.prompts.refusals import REFUSAL
from selfcorrect_rag.prompts.self_rag import segment_prompt
from selfcorrect_rag.reflection import RELEVANT, Group, is_readable, probabilities
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state.self_rag import Source


def judge_sufficiency(
    llm: ReflectionLLM | Model, settings: Settings | None = None, source: Source = "passages"
) -> Node:
    """Refuse to answer where what was found is not enough (Joren et al., Sufficient Context, 2025).

    A chat model is asked one question about all documents together. A ReflectionLLM gives the
    ISREL of each by itself, in one batch, and the most relevant one counts. Without a document
    nothing is asked, and the answer is refused. Where the model fails or does not say, or a limit
    leaves no call for it, the question is answered.

    Args:
        llm: the graph's own.
        settings: the factory's; ``sufficient_context`` None wants nothing of the documents.
        source: the state key of the documents.
    """
    settings = settings or Settings()
    sufficiency = _Sufficiency(llm)

    def run(state: Mapping[str, Any]) -> Work:
        chosen, documents = current(settings), state[source]
        most = sufficiency.most_calls(documents)
        if most and (limit := limit_met(state, chosen, most + FOR_THE_ANSWER)):
            return stopped(state, chosen, limit, "whether it is enough to answer was not judged")
        found = yield from sufficiency.of(state["question"], documents)
        if found is None:
            note = "the model did not say whether what was found is enough to answer"
            return {"notes": [*state["notes"], note]}
        wanted = chosen.sufficient_context or 0.0
        return {"sufficiency": found, **({} if found >= wanted else _refused(state, found, wanted))}

    return Node("judge_sufficiency", run, settings, _failed)


def add_judge_sufficiency(
    graph: TurnGraph[Any, Any, Any, Any],
    llm: ReflectionLLM | Model,
    settings: Settings,
    after: str,
    route: Callable[[Any], str],
    ends: Mapping[Hashable, str],
    source: Source = "passages",
) -> None:
    """Add the conditional edges behind ``after``, and ``judge_sufficiency`` on them.

    It runs where the settings ask for it and nothing is written yet.

    Args:
        graph: the graph.
        llm: its model.
        settings: the factory's.
        after: the node that has found the documents.
        route: from the state to one of the labels of ``ends``.
        ends: the nodes that may follow, by the labels of their edges.
        source: the state key of the documents.
    """
    going_on = {label: node for label, node in ends.items() if node not in (END, "write_answer")}

    def first(state: Mapping[str, Any]) -> str:
        asked = current(settings).sufficient_context is not None
        return "judge" if asked and not state.get("depth") else route(state)

    graph.add_step("judge_sufficiency", judge_sufficiency(llm, settings, source), llm)
    graph.add_conditional_edges(after, first, {"judge": "judge_sufficiency", **ends})
    graph.add_conditional_edges(
        "judge_sufficiency",
        lambda state: "refuse" if state["answer"] else route(state),
        {"refuse": END, **going_on},
    )


class _Sufficiency:
    """Asks a model whether documents are enough to answer a question."""

    def __init__(self, llm: ReflectionLLM | Model) -> None:
        model = as_language_model(llm, "llm")
        behind = model_behind(model)
        if isinstance(behind, PromptedReflectionLLM):
            model = behind.critic or behind.model
        self._reflecting = None
        if isinstance(behind, ReflectionLLM) and not isinstance(behind, PromptedReflectionLLM):
            self._reflecting = behind
        self._classifier = ChatClassifier(model)

    def most_calls(self, documents: Sequence[Document]) -> int:
        """Upper bound on the model calls: a chat model's unreadable answer is asked again."""
        if not documents or self._reflecting is None:
            return 2 * bool(documents)
        return self._reflecting.most_calls(len(documents), choose=True)

    def of(
        self, question: str, documents: Sequence[Document]
    ) -> Generator[Call, Any, float | None]:
        """The probability in [0, 1] that they are enough; None where the model does not say."""
        if not documents:
            return 0.0
        if self._reflecting is not None:
            return (yield from self._of_each(self._reflecting, question, documents))
        prompt = sufficiency_prompt(question, documents)
        said = yield from choose(self._classifier, prompt, SUFFICIENT)
        return probabilities(said.logprobs)[YES] if said else None

    def _of_each(
        self, llm: ReflectionLLM, question: str, documents: Sequence[Document]
    ) -> Generator[Call, Any, float | None]:
        prompts = [
            segment_prompt(question, [], documents, "retrieve", i) for i in range(len(documents))
        ]
        segments = yield from call(
            llm.choose, llm.achoose, prompts, Group.ISREL, callbacks=callbacks()
        )
        count_batch(segments)
        judged = (r for segment in segments for r in segment["reflections"])
        isrel = (r["logprobs"] for r in judged if r["group"] == Group.ISREL and is_readable(r))
        return max((probabilities(logprobs)[RELEVANT] for logprobs in isrel), default=None)


def _refused(state: Mapping[str, Any], found: float, wanted: float) -> Update:
    """The update that ends a run with the refusal."""
    note = f"what was found is not enough to answer: {found:.2f}, and {wanted:g} is wanted"
    say(state, REFUSAL)
    emit(Answered(event="answered", answer=REFUSAL, citations=0))
    return {
        "answer": REFUSAL,
        "cited_answer": REFUSAL,
        "notes": [*state["notes"], note],
        **kept(state, REFUSAL),
    }


def _failed(state: Mapping[str, Any], fault: Fault) -> Update:
    reason = f"whether what was found is enough to answer was not judged: {fault.reason}"
    return {"notes": [*state["notes"], reason]}
