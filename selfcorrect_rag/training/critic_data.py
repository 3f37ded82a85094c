"""The critic's training data: a language model's reflection tokens (Self-RAG 3.2.1, A.1)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from langchain_core.runnables import Runnable
from pydantic import PositiveInt, field_validator

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.journal import run_folder, write_rows
from selfcorrect_rag.models.chat_model import written_text
from selfcorrect_rag.models.critic import CriticInput, critic_input
from selfcorrect_rag.models.from_name import find_language_model
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS, CritiquePrompt, Instance
from selfcorrect_rag.prompts.self_rag import question_text
from selfcorrect_rag.reflection import GROUP_OF, TOKENS
from selfcorrect_rag.training.labelling import (
    MALFORMED,
    LabellingOptions,
    Labels,
    Request,
    open_labels,
    request_key,
)
from selfcorrect_rag.training.rows import Filled, PartOfData, Progress, Row, part_of, read_rows

_OFFICIAL_TASKS = {"groundness": "groudness"}
"""Names of prompts in the official data where they differ; the spelling is theirs."""


class CriticDataOptions(LabellingOptions, temperature=1.0):
    """Options of ``train critic-data``; defaults are the paper's (A.1)."""

    run_only = LabellingOptions.run_only | {"prompts", "max_samples"}

    model: str
    """PROVIDER:MODEL or MODULE:ATTRIBUTE of the model that labels."""
    max_tokens: PositiveInt = 200
    """Longest answer of a PROVIDER:MODEL, in tokens."""
    max_attempts: PositiveInt = 2
    """Maximum answers to a request while they are malformed."""
    prompts: tuple[str, ...] = ()
    """Prompts to ask (tables 8 to 12), such as utility; all if empty."""
    max_samples: PositiveInt | None = None
    """Maximum requests of each prompt; the paper collects 4k to 20k."""

    @field_validator("prompts")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := set(names) - CRITIQUE_PROMPTS.keys():
            raise ValueError(f"no prompt {min(unknown)}; there are {', '.join(CRITIQUE_PROMPTS)}")
        return names


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
        is_whole = self.target_output or not self.preceding_sentences.strip()
        return Instance(
            self.instruction,
            input=self.input,
            output=self.output if is_whole else "",
            preceding_sentences=self.preceding_sentences,
            segment=self.target_output or self.output,
            evidence=self.evidence,
        )


class CriticRow(Row):
    """A labelled example for the critic, as :func:`label_critic_data` writes it."""

    key: str
    instruction: str
    input: str
    token: str
    part: PartOfData

    @field_validator("token")
    @classmethod
    def _known(cls, token: str) -> str:
        if token not in GROUP_OF:
            raise ValueError(f"{token} is not a reflection token")
        return token

    @property
    def critic_input(self) -> CriticInput:
        """The question that the token answers."""
        return CriticInput(self.instruction, self.input, GROUP_OF[self.token])


def read_instances(path: Path) -> list[Instance]:
    """Read the rows of a file to be labelled."""
    return [row.instance for row in read_rows(path, CriticInstance)]


def read_critic_rows(path: Path) -> list[CriticRow]:
    """Read a file of labels; the order depends on the rows alone."""
    rows = {row.key: row for row in read_rows(path, CriticRow)}
    return [row for _, row in sorted(rows.items())]


def label_critic_data(
    model: Runnable[Any, Any],
    instances: Iterable[Instance],
    out: Path,
    options: CriticDataOptions,
    *,
    progress: Progress = None,
) -> dict[str, Any]:
    """Label ``instances`` and write ``out``, JSONL with the official fields (instruction, input,
    output, task) and ``key``, ``group``, ``part``, ``token`` and ``explanation``.

    Each prompt is asked about each instance that has what it needs, and once about equal ones. The
    same call resumes after a kill, asks for what is new, and tries failed calls again; for its
    errors see :func:`~.labelling.open_labels` and :meth:`~.labelling.Labels.ask`.

    Returns:
        ``outcomes`` by group (labelled, malformed, failed), ``tokens`` by group, and the usage;
        with ``options.estimate`` the ``calls`` and ``input_tokens`` that are needed.
    """
    instances, known = list(instances), CRITIQUE_PROMPTS
    requests: dict[str, Request] = {}
    rows: dict[str, dict[str, Any]] = {}
    for name in options.prompts or known:
        asked: dict[str, tuple[Request, Instance]] = {}
        for instance in instances:
            if not known[name].lacks(instance):
                request = critique_request(known[name], instance, options.max_attempts)
                asked.setdefault(request.key, (request, instance))
        chosen = set(sorted(asked)[: options.max_samples])  # a larger number contains these
        for key in [key for key in asked if key in chosen]:
            requests.setdefault(key, asked[key][0])
            rows.setdefault(key, _row(name, known[name], asked[key][1]))
    if not requests:
        names = ", ".join(options.prompts or known)
        raise BadTrainingData(f"no row has the fields that are needed to judge {names}")
    if options.estimate:
        return dict(Labels.at(run_folder(out)).cost(requests.values()))
    with open_labels(out, options) as run:
        run.ask(model, requests.values(), options.max_concurrency, progress)
        given = run.labels.rows
        made = [{"key": k, **row, **given[k]} for k, row in rows.items() if k in given]
        write_rows(out, made)
    outcomes: dict[str, dict[str, int]] = {}
    for key, row in rows.items():
        counts = {"labelled": 0, MALFORMED: 0, "failed": 0}
        outcomes.setdefault(row["group"], counts)[run.outcome(key)] += 1
    total = Counter(row["token"] for row in made)
    tokens = {group: {token: total[token] for token in of} for group, of in TOKENS.items()}
    return {"outcomes": outcomes, "tokens": tokens, **run.usage}


def critique_request(prompt: CritiquePrompt, instance: Instance, attempts: int) -> Request:
    """A request for the reflection token of ``prompt`` about an instance."""

    def read(answer: Any) -> Mapping[str, Any] | None:
        found = prompt.read(written_text(answer))
        if found is None:
            return None
        return {"output": found.token, "token": found.token, "explanation": found.explanation}

    text = prompt.prompt(instance)
    return Request(request_key(prompt.group, text), text, read, attempts)


def _row(name: str, prompt: CritiquePrompt, instance: Instance) -> dict[str, Any]:
    """The fields of a row besides its label."""
    given, question = critic_input(prompt, instance), instance.instruction
    if instance.input:
        question = question_text(instance.input, instance.instruction)
    return {
        "group": given.group,
        "task": _OFFICIAL_TASKS.get(name, name),
        "part": part_of(question),
        "instruction": given.instruction,
        "input": given.input,
    }


def run(data: Path, out: Path, options: CriticDataOptions, progress: Progress) -> dict[str, Any]:
    """Label a file; see :func:`label_critic_data`."""
    limits = {"temperature": options.temperature, "max_tokens": options.max_tokens}
    model: Any = None if options.estimate else find_language_model(options.model, **limits)
    return label_critic_data(model, read_instances(data), out, options, progress=progress)
