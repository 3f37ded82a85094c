"""Fine-tuning what the papers train, and their data: all entrypoints are in ``ENTRYPOINTS``."""

from collections.abc import Callable
from inspect import cleandoc
from typing import Any, NamedTuple

from selfcorrect_rag.training import critic, evaluator, generator, instruct
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
    "critic-data": Entrypoint(critic.label_critic_data, critic.CriticDataOptions),
    "critic": Entrypoint(critic.train_critic, critic.CriticOptions),
    "generator-data": Entrypoint(generator.make_generator_data, generator.GeneratorDataOptions),
    "generator": Entrypoint(generator.train_generator, generator.GeneratorOptions),
    "evaluator": Entrypoint(evaluator.train_evaluator, evaluator.EvaluatorOptions),
    "rationales": Entrypoint(instruct.make_rationales, instruct.RationaleOptions),
    "instruct": Entrypoint(instruct.train_instruct, instruct.InstructOptions),
}
"""The trainings by their names on the command line."""
