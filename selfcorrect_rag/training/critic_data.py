"""The critic's training data: reflection tokens by a language model (section 3.2.1, A.1)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.models.critic import CriticInput, critic_input
from selfcorrect_rag.prompts.critic import critique_prompts
from selfcorrect_rag.prompts.critique import Instance
from selfcorrect_rag.prompts.self_rag import question_text
from selfcorrect_rag.reflection import GROUP_OF, TOKENS
from selfcorrect_rag.training.fine_tuning import option
from selfcorrect_rag.training.labelling import Labelling, LabelRequest
from selfcorrect_rag.training.rows import Part, lines, part_of, read_text

_OFFICIAL_TASKS = {"groundness": "groudness"}
"""Names of prompts in the official data, where they differ; the spelling is its own."""


@dataclass(frozen=True)
class CriticDataSettings:
    """Settings of the labels; defaults are the paper's (A.1)."""

    model: str
    """Which model labels; a file is of one model."""
    temperature: float = option(
        1.0, "sampling temperature of a PROVIDER:MODEL, from 0 (greedy)", "TEMPERATURE"
    )
    max_tokens: int = option(
        200, "longest answer (label and explanation) of a PROVIDER:MODEL", "TOKENS", positive=True
    )
    max_attempts: int = option(
        2, "most answers to one request, while they are malformed", "ANSWERS", positive=True
    )


class CriticRow(NamedTuple):
    """One example for the critic."""

    instruction: str
    input: str
    token: str
    part: Part

    @property
    def critic_input(self) -> CriticInput:
        """The question that the token answers."""
        return CriticInput(self.instruction, self.input, GROUP_OF[self.token])


def read_instances(path: Path) -> list[Instance]:
    """Rows of a JSONL file: ``instruction`` and ``output``, and what else there is.

    ``evidence`` is a passage, ``input`` what the instruction is about, ``preceding_sentences`` what
    stands before the sentence that is judged. That sentence is ``target_output``, as in the
    official data, beside the whole ``output``; without it, ``output`` is the sentence, and the
    whole too if nothing precedes it. A field may be absent, null or empty.

    Raises:
        BadTrainingData: the file or a row is not so; the message names the line.
    """
    found = [_instance(line, f"{path}:{number}") for number, line in lines(read_text(path))]
    if not found:
        raise BadTrainingData(f"{path} holds no rows")
    return found


def critic_labelling(
    instances: Iterable[Instance],
    out: Path,
    settings: CriticDataSettings,
    *,
    prompts: Sequence[str] | None = None,
    max_samples: int | None = None,
) -> Labelling:
    """Prepare the labelling of ``instances``; ``run`` or ``arun`` of the result calls the model.

    Each prompt is asked about each instance that has what it needs, and once about equal ones.
    Then ``out`` is written. Its rows are the official data's (instruction, input, output, task)
    with the token, its group, the part of the data and the explanation.

    Args:
        instances: see :func:`read_instances`.
        out: the file, JSONL.
        settings: see :class:`CriticDataSettings`.
        prompts: names in :func:`~selfcorrect_rag.prompts.critic.critique_prompts`; all by default.
        max_samples: most requests of each prompt, chosen by their text: always the same, and a
            larger number contains the smaller. The paper collects 4k to 20k.

    Raises:
        BadTrainingData: there is nothing to ask; see also
            :class:`~selfcorrect_rag.training.labelling.Labelling`.
    """
    instances, known = list(instances), critique_prompts()
    names = list(known) if prompts is None else prompts
    requests: list[LabelRequest] = []
    for name in names:
        judged = [i for i in instances if not known[name].lacks(i)]
        requests += _sampled({r.key: r for r in (_request(name, i) for i in judged)}, max_samples)
    if not requests:
        raise BadTrainingData(f"no row has what is needed to judge {', '.join(names)}")
    return Labelling(requests, _read, out, asdict(settings), max_attempts=settings.max_attempts)


def read_critic_rows(path: Path) -> list[CriticRow]:
    """The rows of a file of labels, in an order of their own.

    The order depends on the rows alone, not on which answer came first. Half a last line, which a
    kill may leave in an unfinished run's own file, is as if it had never been.

    Raises:
        BadTrainingData: the file is not so; the message names the line.
    """
    numbered = list(lines(read_text(path)))
    found: dict[str, CriticRow] = {}
    for number, line in numbered:
        try:
            row = json.loads(line)
        except ValueError as error:
            if found and number == numbered[-1][0]:
                break
            raise BadTrainingData(f"{path}:{number}: not JSON ({error})") from error
        key, made = _label(row, f"{path}:{number}")
        found[key] = made
    return [row for _, row in sorted(found.items())]


def token_counts(labelled: Iterable[CriticRow]) -> dict[str, dict[str, int]]:
    """How often each token was given, by group."""
    counts = {group: dict.fromkeys(tokens, 0) for group, tokens in TOKENS.items()}
    for row in labelled:
        counts[row.critic_input.group][row.token] += 1
    return counts


def _request(name: str, instance: Instance) -> LabelRequest:
    prompt = critique_prompts()[name]
    given = critic_input(prompt, instance)
    question = instance.instruction
    if instance.input:
        question = question_text(instance.input, instance.instruction)
    fields = {
        "task": _OFFICIAL_TASKS.get(name, name),
        "part": part_of(question),
        "instruction": given.instruction,
        "input": given.input,
    }
    return LabelRequest(prompt.prompt(instance), given.group, fields)


def _sampled(requests: Mapping[str, LabelRequest], sample: int | None) -> list[LabelRequest]:
    chosen = set(sorted(requests)[:sample])
    return [request for key, request in requests.items() if key in chosen]


def _read(request: LabelRequest, answer: str) -> Mapping[str, Any] | None:
    names = {_OFFICIAL_TASKS.get(name, name): prompt for name, prompt in critique_prompts().items()}
    judgement = names[request.fields["task"]].read(answer)
    if judgement is None:
        return None
    token, explanation = judgement.token, judgement.explanation
    return {"output": token, "token": token, "explanation": explanation}


def _label(row: Any, place: str) -> tuple[str, CriticRow]:
    """A row of labels, after its key."""
    names = ("key", *CriticRow._fields)
    given = {name: row.get(name) for name in names} if isinstance(row, dict) else {}
    texts = {name: text for name, text in given.items() if isinstance(text, str)}
    if len(texts) < len(names):
        raise BadTrainingData(f"{place}: no row of critic-data, which has {', '.join(names)}")
    key, made = texts.pop("key"), CriticRow(**texts)  # type: ignore[arg-type]
    if made.token not in GROUP_OF:
        raise BadTrainingData(f"{place}: {made.token} is no reflection token")
    if made.part not in get_args(Part):
        raise BadTrainingData(f"{place}: part is one of {', '.join(get_args(Part))}")
    return key, made


_KEYS = ("instruction", "input", "output", "preceding_sentences", "target_output", "evidence")


def _instance(line: str, place: str) -> Instance:
    try:
        row = json.loads(line)
        given = {key: row.get(key) or "" for key in _KEYS}
        is_good = all(isinstance(text, str) for text in given.values())
    except (ValueError, AttributeError):
        is_good = False
    if not is_good or not given["instruction"].strip():
        raise BadTrainingData(
            f'{place}: not {{"instruction": ..., "output": ...}}, with or without '
            + ", ".join(key for key in _KEYS if key not in ("instruction", "output"))
        )
    segment, is_whole = given.pop("target_output"), not given["preceding_sentences"].strip()
    output = given.pop("output")
    return Instance(
        **given, segment=segment or output, output=output if segment or is_whole else ""
    )
