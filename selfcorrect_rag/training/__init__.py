"""Fine-tuning what the papers train: one file an entrypoint, all listed in ``ENTRYPOINTS``."""

from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, create_model

from selfcorrect_rag.training.rows import Options, Progress


class Entrypoint(NamedTuple):
    """A training that ``selfcorrect-rag train NAME --set key=value`` runs."""

    module: str
    """Its module here, imported at the first use."""
    options_class: str
    data: str
    """The form of each row of the data."""
    help: str

    @property
    def options(self) -> type[Options]:
        """Its options with the files that it reads and writes; each field has a description."""
        base: type[Options] = getattr(self._module, self.options_class)
        data = Field(description=f"File of JSON lines or a JSON list; a row is {self.data}.")
        out = Field(description="File or folder of the result; a stopped run there is resumed.")
        return create_model(base.__name__, __base__=base, data=(Path, data), out=(Path, out))

    def run(self, options: Any, progress: Progress = None) -> dict[str, Any]:
        """Run it with its :attr:`options`, and return its report (JSON values)."""
        report: dict[str, Any] = self._module.run(options.data, options.out, options, progress)
        return report

    @property
    def _module(self) -> Any:
        return import_module(f"{__name__}.{self.module}")


ENTRYPOINTS = {
    "critic-data": Entrypoint(
        "critic_data",
        "CriticDataOptions",
        "{instruction, output} and perhaps input, evidence, preceding_sentences, target_output",
        "Label rows with reflection tokens by any chat model: the data of Self-RAG's critic.",
    ),
    "critic": Entrypoint(
        "critic", "CriticOptions", "as critic-data writes them", "Fine-tune Self-RAG's critic."
    ),
    "generator-data": Entrypoint(
        "generator_data",
        "GeneratorDataOptions",
        "{instruction, output} and perhaps input, id, dataset_name",
        "Add passages and reflection tokens to outputs (Algorithm 3): the generator's data.",
    ),
    "generator": Entrypoint(
        "generator",
        "GeneratorOptions",
        "as generator-data writes them",
        "Fine-tune Self-RAG's generator.",
    ),
    "evaluator": Entrypoint(
        "evaluator",
        "EvaluatorOptions",
        "{question, positives, negatives}",
        "Fine-tune CRAG's retrieval evaluator and calibrate its thresholds.",
    ),
    "rationales": Entrypoint(
        "rationales",
        "RationaleOptions",
        "{question, answers, documents}, documents best first; official files too",
        "Let a model explain how documents lead to the known answer: InstructRAG's data.",
    ),
    "instruct": Entrypoint(
        "instruct", "InstructOptions", "as rationales writes them", "Fine-tune INSTRUCTRAG-FT."
    ),
}
"""The trainings by their names on the command line."""
