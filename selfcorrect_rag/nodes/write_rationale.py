"""choose_demonstrations and write_rationale: InstructRAG's prompt, its one model call, and the
answer in what the model writes."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import Runnable

from selfcorrect_rag.errors import BadDemonstrations
from selfcorrect_rag.intake import plain
from selfcorrect_rag.models.chat_model import exceeds, is_llm, model_behind, prompt_limit
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.nodes.node import Node, Run, Update, ask
from selfcorrect_rag.nodes.write_answer import NO_ANSWER, SILENT, answered, citation
from selfcorrect_rag.prompts.instruct_rag import inference_prompt, read_answer, read_numbers
from selfcorrect_rag.prompts.parts import Part, Prompt
from selfcorrect_rag.prompts.reading import is_refusal
from selfcorrect_rag.settings import InstructRAGSettings
from selfcorrect_rag.state import Demonstration

BASELINES = ("no_retrieval", "ralm", "few_shot")
"""Modes whose prompt asks for an answer without a rationale."""


def choose_demonstrations(
    demonstrations: Sequence[Mapping[str, Any]], settings: InstructRAGSettings | None = None
) -> Node[Any]:
    """Sample demonstrations (Algorithm 1, line 6), or take the first ones, in the given order.

    A demonstration of the same question is never shown.
    """
    known: Any = [plain(d, f"demonstration {i}") for i, d in enumerate(demonstrations, 1)]

    def step(state: Mapping[str, Any], run: Run[InstructRAGSettings]) -> Update:
        chosen, question = run.settings, state["question"]
        _check(known, state["prompt_mode"])
        asked = _normalized(question)
        usable = [i for i, d in enumerate(known) if _normalized(d["question"]) != asked]
        if chosen.selection == "random":
            few = min(chosen.max_demonstrations, len(usable))
            usable = sorted(Random(f"{chosen.seed} {question}").sample(usable, few))
        shown = [known[i] for i in usable[: chosen.max_demonstrations]]
        run.emit("demonstrations_chosen", questions=[d["question"] for d in shown])
        return {"demonstrations": shown}

    return Node("choose_demonstrations", step, InstructRAGSettings.of(settings))


def _check(demonstrations: Sequence[Demonstration], mode: str) -> None:
    key, form = ("answers", ", a list of texts") if mode == "few_shot" else ("rationale", "")
    needs = f"prompt_mode {mode} shows demonstrations with a question and {key}{form}"
    if not demonstrations:
        raise BadDemonstrations(f"{needs}: give create_instruct_rag some, or use instruct")
    for number, given in enumerate(demonstrations, start=1):
        shown = isinstance(given, Mapping) and given.get("question") and given.get(key)
        if not shown or isinstance(shown, str) is not (key == "rationale"):
            raise BadDemonstrations(f"demonstration {number} has no question or no {key}: {needs}")


def _normalized(question: str) -> str:
    return " ".join(question.casefold().split()).rstrip("?. ")


def write_rationale(llm: Model, settings: InstructRAGSettings | None = None) -> Node[Any]:
    """Generate the rationale (Algorithm 1, lines 7 and 10), or a baseline's answer.

    A chat model gets one message, an LLM plain text to continue. Documents are numbered as they
    are shown. A prompt too long for the model's context loses its lowest-ranked documents first,
    then its first demonstrations; the best document stays.

    The documents that the rationale's last paragraph names by number are useful, and cited unless
    the answer is a refusal; notes name those not shown. A baseline's whole output is the answer.
    """
    model = as_language_model(llm, "llm")

    async def step(state: Mapping[str, Any], run: Run[InstructRAGSettings]) -> Update:
        prompt, fitted = await run.compute(_fit, model, run, state, texts=state["passages"])
        mode, numbering, notes = fitted["prompt_mode"], fitted["numbering"], fitted["notes"]
        message = HumanMessage("".join(part.text for part in prompt.parts))
        given: Any = prompt if is_llm(model) else [message]
        is_limited = isinstance(model_behind(model), ReflectionLLM)
        options = {"max_tokens": run.settings.rationale_tokens} if is_limited else {}
        stream = run.settings.score_above is None  # a refusal comes after the text
        text = (await ask(run, model, given, stream=stream, **options)).strip()
        score = run.probability
        shown = len(numbering)
        run.emit("rationale_written", text=text, prompt_mode=mode, documents=shown)
        answer = (text if mode in BASELINES else read_answer(text)) or NO_ANSWER
        if not text:
            notes.append(SILENT)
        named = read_numbers(text)
        useful = {n: numbering[n - 1] for n in named if 0 < n <= shown}
        notes += [f"Document [{n}] is named but was not shown" for n in named if n not in useful]
        citations = [
            citation(number, i, state["passages"][i], [0], [answer], state["question"])
            for number, i in ({} if is_refusal(answer) else useful).items()
        ]
        marks = [f"[{cited['number']}]" for cited in citations]
        cited = answer + "".join(f" {mark}" for mark in marks if mark not in answer)
        return {
            **fitted,
            "rationale": "" if mode in BASELINES else text,
            "useful_documents": list(useful.values()),
            **answered(
                state, run, answer, cited, citations, model, text=text, score=score, notes=notes
            ),
        }

    return Node("write_rationale", step, InstructRAGSettings.of(settings))


def _fit(
    llm: Runnable[Any, Any], run: Run[InstructRAGSettings], state: Mapping[str, Any]
) -> tuple[Prompt, Update]:
    """Return the prompt with as many documents and demonstrations as fit, and what it shows."""
    settings, passages, notes = run.settings, state["passages"], list[str]()
    mode = state["prompt_mode"]
    if not passages and mode != "no_retrieval":
        notes.append("no document was found: the model was asked without documents")
        mode = "ft" if mode == "ft" else "no_retrieval"  # ft gets the prompt of its training
    every = 0 if mode == "no_retrieval" else len(passages)
    examples: list[Demonstration] = list(state["demonstrations"])
    limit = prompt_limit(llm, settings.rationale_tokens, settings.context_tokens)

    def build(documents: int, demonstrations: int) -> tuple[Prompt, Update]:
        order = list(range(documents))
        if settings.order == "best_last":
            order.reverse()
        shown = examples[len(examples) - demonstrations :]
        found = [passages[i] for i in order]
        made = inference_prompt(mode, state["question"], found, shown, settings.instruction)
        if is_llm(llm):  # nothing else marks the end of the question
            made = Prompt(parts=(*made.parts, Part("\n", "trusted")))
        return made, {"numbering": order, "demonstrations": shown}

    def fits(counts: tuple[int, int]) -> bool:
        return limit is None or not exceeds(llm, build(*counts)[0].to_string(), limit)

    # Fewer and fewer documents, then with the best one fewer and fewer demonstrations. By binary
    # search, since each check builds and tokenizes the whole prompt.
    choices = [(n, len(examples)) for n in range(every, 1, -1)]
    choices += [(min(every, 1), n) for n in range(len(examples), -1, -1)]
    first = 0 if fits(choices[0]) else bisect_left(choices, True, key=fits)
    left = choices[min(first, len(choices) - 1)]
    beyond = f"longer than the {limit} tokens that the model can read"
    if first == len(choices):
        notes.append(f"the prompt is {beyond}")
    for what, before, after in zip(("documents", "demonstrations"), choices[0], left, strict=True):
        if dropped := before - after:
            run.emit("dropped", what=what, number=dropped, limit=limit)
            some = f"{dropped} of {before} {what} dropped, the weakest first"
            notes.append(f"{some}: the prompt would be {beyond}")
    prompt, shown = build(*left)
    return prompt, {"prompt_mode": mode, "notes": notes, **shown}
