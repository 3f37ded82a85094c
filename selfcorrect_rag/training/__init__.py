"""Fine-tuning what the papers train, and their data: all entrypoints are in ``ENTRYPOINTS``."""

from collections.abc import Callable
from inspect import cleandoc
from typing import Any, NamedTuple

from selfcorrect_rag.training.critic import (
    CriticDataOptions,
    CriticOptions,
    label_critic_data,
    train_critic,
)
from selfcorrect_rag.training.evaluator import EvaluatorOptions, train_evaluator
from selfcorrect_rag.training.generator import (
    GeneratorDataOptions,
    GeneratorOptions,
    make_generator_data,
    train_generator,
)
from selfcorrect_rag.training.instruct import (
    InstructOptions,
    RationaleOptions,
    make_rationales,
    train_instruct,
)
from selfcorrect_rag.training.rows import Options


class Entrypoint(NamedTuple):
    """A training that ``selfcorrect-rag train NAME --set key=value`` runs."""

    run: Callable[..., dict[str, Any]]
    """Takes the options and ``progress=``; returns a report (JSON values)."""
    options: type[Options]

    @property
    def help(self) -> str:
        """The first line of its function, and its rows."""
        return f"{self.run.__doc__}".splitlines()[0] + "\n" + cleandoc(f"{self.options.__doc__}")


ENTRYPOINTS = {
    "critic-data": Entrypoint(label_critic_data, CriticDataOptions),
    "critic": Entrypoint(train_critic, CriticOptions),
    "generator-data": Entrypoint(make_generator_data, GeneratorDataOptions),
    "generator": Entrypoint(train_generator, GeneratorOptions),
    "evaluator": Entrypoint(train_evaluator, EvaluatorOptions),
    "rationales": Entrypoint(make_rationales, RationaleOptions),
    "instruct": Entrypoint(train_instruct, InstructOptions),
}
"""The trainings by their names on the command line."""
