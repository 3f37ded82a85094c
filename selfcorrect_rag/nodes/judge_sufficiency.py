"""judge_sufficiency: refuse if what was found is not enough to answer the question."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.errors import Fault, ModelFailed, wrap_errors
from selfcorrect_rag.models import PromptedReflectionLLM, ReflectionLLM
from selfcorrect_rag.models.chat_model import model_behind
from selfcorrect_rag.models.classification import ChatClassifier, Classification
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes.limits import FOR_THE_ANSWER, add_costs, limit_met, stopped
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.nodes.write_answer import answered
from selfcorrect_rag.prompts.chat import SUFFICIENT, sufficiency_prompt
from selfcorrect_rag.prompts.crag import YES
from selfcorrect_rag.prompts.reading import REFUSAL
from selfcorrect_rag.prompts.self_rag import segment_prompt
from selfcorrect_rag.reflection import RELEVANT, Group, is_readable, probabilities
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state import Source


def judge_sufficiency(
    llm: ReflectionLLM | Model, settings: Settings | None = None, source: Source = "passages"
) -> Node[Any]:
    """Refuse to answer if what was found is not enough (Joren et al., Sufficient Context, 2025).

    A chat model is asked one question about all documents together. A ReflectionLLM gives the
    ISREL of each by itself, in one batch, and the most relevant one counts. Without a document
    nothing is asked, and the answer is refused. If the model fails or does not say, or a limit
    leaves no call for it, the question is answered. ``source`` is the state key of the documents.
    """
    model = as_language_model(llm, "llm")
    behind = model_behind(model)
    if isinstance(behind, PromptedReflectionLLM):
        model = behind.critic or behind.model
        behind = model_behind(model)
    classifier = ChatClassifier(model)

    async def judge(run: Run[Any], question: str, found: Sequence[Document]) -> float | None:
        if not found:
            return 0.0
        if isinstance(behind, ReflectionLLM):
            each = range(len(found))
            prompts = [segment_prompt(question, [], found, "retrieve", i) for i in each]
            segments = await run.segments(behind.choose, behind.achoose, prompts, Group.ISREL)
            judged = [r for segment in segments for r in segment["reflections"]]
            isrel = [r["logprobs"] for r in judged if r["group"] == Group.ISREL and is_readable(r)]
            return max((probabilities(logprobs)[RELEVANT] for logprobs in isrel), default=None)
        prompt, before = sufficiency_prompt(question, found), run.costs["model_calls"]
        asked = [Classification(prompt, (SUFFICIENT,))]
        with wrap_errors(ModelFailed, f"the model ({type(behind).__name__})"):
            (result,) = await run.call(classifier.classify, classifier.aclassify, asked)
            if result.error is not None:
                raise result.error
        if run.costs["model_calls"] == before:  # of a model that is not LangChain's
            add_costs(run.costs, model_calls=1, prompt_tokens=None, generated_tokens=None)
        said = result.predictions[0]
        return probabilities(said.logprobs)[YES] if said else None

    async def step(state: Mapping[str, Any], run: Run[Any]) -> Update:
        documents, wanted = state[source], run.settings.sufficient_context or 0.0
        most = 2 * bool(documents)  # an unreadable answer is asked again
        if documents and isinstance(behind, ReflectionLLM):
            most = behind.most_calls(len(documents), choose=True)
        if most and (limit := limit_met(state, run.settings, most + FOR_THE_ANSWER)):
            return stopped(run, limit, "whether it is enough to answer was not judged")
        found = await judge(run, state["question"], documents)
        if found is None:
            note = "the model did not say whether what was found is enough to answer"
            return {"notes": [note]}
        if found >= wanted:
            return {"sufficiency": found}
        return {
            "sufficiency": found,
            "notes": [f"what was found is not enough: {found:.2f}, and {wanted:g} is wanted"],
            **answered(state, run, REFUSAL, REFUSAL, []),
        }

    def failed(state: Mapping[str, Any], run: Run[Any], fault: Fault) -> Update:
        note = f"whether what was found is enough to answer was not judged: {fault.reason}"
        return {"notes": [note]}

    return Node("judge_sufficiency", step, settings or Settings(), failed)


def needs_judgement(state: Mapping[str, Any]) -> bool:
    """Return whether the turn's settings ask for it, and nothing is written yet."""
    asked = state["settings"].get("sufficient_context") is not None
    return asked and not state.get("candidates")
