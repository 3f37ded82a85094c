"""Reads the rows of data sets that are kept elsewhere: Hugging Face's, and LangSmith's."""

from collections.abc import Iterator, Mapping
from typing import Any

from selfcorrect_rag.errors import BadTask, describe_error, require


def hugging_face_rows(name: str) -> Iterator[Mapping[str, Any]]:
    """The rows of ``NAME``, ``NAME:SPLIT`` or ``NAME:CONFIGURATION:SPLIT``; the split is ``test``
    where none is named. They are streamed: what is not read is not downloaded.

    Raises:
        MissingExtra: ``datasets`` is not installed.
        BadTask: there is no such data set, configuration or split, or it cannot be reached.
    """
    path, *rest = name.split(":")
    if not path or len(rest) > 2 or not all(rest):
        raise BadTask(
            f"hf:{name} is no data set: write hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIGURATION:SPLIT"
        )
    configuration = rest[0] if len(rest) == 2 else None
    split = rest[-1] if rest else "test"
    datasets = require("datasets", "datasets")
    try:
        yield from datasets.load_dataset(path, configuration, split=split, streaming=True)
    except Exception as error:  # every library below it raises its own
        raise BadTask(
            f"cannot read split {split} of the Hugging Face data set {path} "
            f"({describe_error(error)}); another is hf:{path}:SPLIT"
        ) from error


def langsmith_rows(name: str) -> Iterator[Mapping[str, Any]]:
    """The examples of a data set: the fields of inputs, outputs and metadata as one row.

    The key is read from ``LANGSMITH_API_KEY``, as the client does.

    Raises:
        MissingExtra: ``langsmith`` is not installed.
        BadTask: there is no such data set, or it cannot be reached.
    """
    if not name:
        raise BadTask("langsmith: names no data set: write langsmith:NAME")
    langsmith = require("langsmith", "datasets")
    try:
        for example in langsmith.Client().list_examples(dataset_name=name):
            yield {
                **(example.metadata or {}),
                **(example.inputs or {}),
                **(example.outputs or {}),
                "id": str(example.id),
            }
    except Exception as error:  # requests, pydantic and the client raise their own
        raise BadTask(
            f"cannot read the LangSmith data set {name} ({describe_error(error)})"
        ) from error
