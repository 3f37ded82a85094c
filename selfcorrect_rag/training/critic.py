"""Self-RAG's critic: its data, a language model's reflection tokens (section 3.2.1, A.1), and its
fine-tuning on them (Eq. 1, B.1)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from statistics import fmean
from typing import Any, Literal

from langchain_core.runnables import Runnable

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.journal import digest, write_rows
from selfcorrect_rag.models.chat_model import written_text
from selfcorrect_rag.models.critic import Critic, CriticInput, CriticTokenizer, critic_input
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS, CritiquePrompt, Instance
from selfcorrect_rag.prompts.self_rag import question_text
from selfcorrect_rag.reflection import GROUP_OF, TOKENS
from selfcorrect_rag.training import fine_tuning
from selfcorrect_rag.training.fine_tuning import MASKED, CausalOptions, Examples
from selfcorrect_rag.training.labelling import LabellingOptions, Request, ask_all
from selfcorrect_rag.training.rows import (
    PARTS,
    Filled,
    PartOfData,
    Progress,
    Row,
    part_of,
    read_rows,
)

_OFFICIAL_TASKS = {"groundness": "groudness"}
"""Names of prompts in the official data where they differ; the spelling is theirs."""


class CriticDataOptions(LabellingOptions, temperature=1.0, max_tokens=200):
    """Options of ``train critic-data``; defaults are the paper's (A.1).

    Rows are {instruction, output} and perhaps input, evidence, preceding_sentences, target_output.
    """


class CriticOptions(CausalOptions, model="meta-llama/Llama-2-7b-hf"):
    """Options of ``train critic``, the paper's (B.1); rows are those that critic-data writes."""


class CriticInstance(Row):
    """A row to be labelled. The judged sentence is ``target_output``, as in the official data, and
    ``output`` the whole output; without it, ``output`` is the sentence, and the whole too if
    nothing precedes it."""

    instruction: Filled
    input: str = ""
    output: str = ""
    preceding_sentences: str = ""
    target_output: str = ""
    evidence: str = ""

    @property
    def instance(self) -> Instance:
        """The row as the prompts take it."""
        before, segment = self.preceding_sentences, self.target_output or self.output
        whole = self.output if self.target_output or not before.strip() else ""
        return Instance(self.instruction, self.input, whole, before, segment, self.evidence)


class CriticRow(Row):
    """A labelled example for the critic, as :func:`label_critic_data` writes it."""

    key: str
    instruction: str
    input: str
    token: Literal[tuple(GROUP_OF)]  # type: ignore[valid-type]
    part: PartOfData

    @property
    def critic_input(self) -> CriticInput:
        """The question that the token answers."""
        return CriticInput(self.instruction, self.input, GROUP_OF[self.token])


def label_critic_data(
    options: CriticDataOptions, model: Runnable[Any, Any] | None = None, progress: Progress = None
) -> dict[str, Any]:
    """Label rows with reflection tokens by any chat model: the data of Self-RAG's critic.

    Each of the paper's prompts (tables 8 to 12) is asked about each row that has what it needs, and
    once about equal ones. Rows have the official fields (instruction, input, output, task) and
    more. Returns the counts of :func:`~.labelling.ask_all`, and the ``tokens``.
    """
    requests: list[Request] = []
    rows: dict[str, dict[str, Any]] = {}
    instances = [row.instance for row in read_rows(options.data, CriticInstance)]
    for name, prompt in CRITIQUE_PROMPTS.items():
        for instance in instances:
            if prompt.lacks(instance):
                continue
            text = prompt.prompt(instance)
            key = digest([prompt.group, text])
            requests.append(Request(key, text, partial(_read, prompt)))
            given, question = critic_input(prompt, instance), instance.instruction
            if instance.input:
                question = question_text(instance.input, instance.instruction)
            rows[key] = rows.get(key) or {
                "key": key,
                "group": given.group,
                "task": _OFFICIAL_TASKS.get(name, name),
                "part": part_of(question),
                "instruction": given.instruction,
                "input": given.input,
            }
    labels, counts = ask_all(options, requests, model, progress)
    made = [{**row, **labels[key]} for key, row in rows.items() if key in labels]
    write_rows(options.out, made)
    return {**counts, "tokens": dict(Counter(row["token"] for row in made))}


def _read(prompt: CritiquePrompt, answer: Any) -> Mapping[str, Any] | None:
    token = prompt.read(written_text(answer))
    return {"output": token, "token": token} if token else None


def train_critic(
    options: CriticOptions, progress: Progress = None, *, base: tuple[Any, Any] | None = None
) -> dict[str, Any]:
    """Fine-tune Self-RAG's critic on a teacher's labels, and test it on held-out questions.

    The result is ``out / "critic"``. The report is that of :func:`~.fine_tuning.tune_causal`, with
    ``rows`` by part, and the :func:`agreement` on ``development`` and ``test`` (figure 5).
    """
    # The order depends on the rows alone.
    rows = sorted(read_rows(options.data, CriticRow), key=lambda row: row.key)
    parts = {p: [r for r in rows if r.part == p] for p in PARTS}
    for name in PARTS[::2]:
        if not parts[name]:
            raise BadTrainingData(f"no row of the {len(rows)} is in the {name} part")
    run_id = fine_tuning.prepare(options, rows)
    model, tokenizer, longest = fine_tuning.load_decoder(options, base)
    encoder = CriticTokenizer(tokenizer, longest)
    examples = Examples()
    for row in parts["train"]:
        example = encoder.example(row.critic_input, row.token)
        examples.add(example["input_ids"], [label != MASKED for label in example["labels"]])
        examples.shortened += len(encoder.prompt_ids(row.critic_input)) > encoder.limit
    trained, report = fine_tuning.tune_causal(
        model, tokenizer, examples, options, run_id, options.out / "critic"
    )
    report["rows"] |= {name: len(of_part) for name, of_part in parts.items()}
    with Critic.from_model(trained, tokenizer, max_tokens=options.max_length) as critic:
        for name in PARTS[1:]:
            given = critic.judge([row.critic_input for row in parts[name]])
            report[name] = agreement(zip((row.token for row in parts[name]), given, strict=True))
    return fine_tuning.write_report(options.out, report)


def agreement(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Compare pairs of the right token and the one of its group that was given.

    Returns:
        By group the ``accuracy``, and the ``base_rate`` of always giving the commonest token; both
        in [0, 1], or None without pairs.
    """
    accuracy: dict[str, float | None] = dict.fromkeys(TOKENS)
    base_rate, every = accuracy.copy(), list(pairs)
    for group in TOKENS:
        if some := [pair for pair in every if GROUP_OF[pair[0]] == group]:
            accuracy[group] = fmean(right == given for right, given in some)
            base_rate[group] = max(Counter(right for right, _ in some).values()) / len(some)
    return {"accuracy": accuracy, "base_rate": base_rate}
