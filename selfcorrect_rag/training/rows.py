"""The common parts of all training data: rows as pydantic models, and options."""

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from langchain_core.documents import Document
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from selfcorrect_rag.errors import BadTrainingData, one_line

PartOfData = Literal["train", "development", "test"]
Progress = Callable[[int, int | None], object] | None
"""Called with how many items are finished since the last call, and how many there are in all."""


class Row(BaseModel):
    """A row of a training file; null fields count as absent, unknown ones are ignored."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        return {key: value for key, value in row.items() if value is not None}


class Options(BaseModel):
    """Options of an entrypoint; ``selfcorrect-rag train NAME --set key=value`` sets each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    run_only: ClassVar[frozenset[str]] = frozenset()
    """Fields on which the result does not depend, so that they may change when a run resumes."""

    def __init_subclass__(cls, **defaults: Any) -> None:
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(cls, **defaults: Any) -> None:
        """Give inherited fields other defaults: ``class Other(Options, seed=1)``."""
        for name, value in defaults.items():
            cls.model_fields[name].default = value
        if defaults:
            cls.model_rebuild(force=True)

    @property
    def identity(self) -> dict[str, Any]:
        """Return the options that decide the result, as JSON values."""
        return self.model_dump(mode="json", exclude={"data", "out", *self.run_only})


def filled(text: Any) -> Any:
    """Refuse a text that is blank."""
    if isinstance(text, str) and not text.strip():
        raise ValueError("must not be empty")
    return text


def as_document(value: Any) -> Document:
    """A passage: a text, or an object with a text and perhaps a title and a score."""
    if isinstance(value, Document):
        return value
    row = value if isinstance(value, dict) else {"text": value}
    text, title = row.get("text", row.get("contents")), row.get("title") or ""
    if not isinstance(text, str) or not text.strip() or not isinstance(title, str):
        raise ValueError('a passage must be a text or {"title": ..., "text": ...}')
    score = {"score": row["score"]} if "score" in row else {}
    return Document(text, metadata={"title": title, **score})


Filled = Annotated[str, BeforeValidator(filled)]
Share = Annotated[float, Field(ge=0, lt=1)]
PassageField = Annotated[Document, BeforeValidator(as_document)]
R = TypeVar("R", bound=Row)


def read_rows(path: Path, kind: type[R]) -> list[R]:
    """Read the rows of a file: JSON lines, or one JSON list.

    Raises:
        BadTrainingData: the file cannot be read or is empty, or a row is invalid; the message
            names the line (of a list: the number of the row), the field and the expected fields.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadTrainingData(f"cannot read {path}: {error}") from error
    try:
        if text.lstrip().startswith("["):
            found = [(f"row {n}", row) for n, row in enumerate(json.loads(text), start=1)]
        else:  # not splitlines: JSON may hold U+2028
            numbered = enumerate(text.split("\n"), start=1)
            found = [(str(n), line) for n, line in numbered if line.strip()]
    except (ValueError, RecursionError) as error:
        raise BadTrainingData(f"{path}: not a JSON list ({error})") from error
    rows = []
    for place, value in found:
        try:
            row = json.loads(value) if place.isdecimal() else value
            rows.append(kind.model_validate(row))
        except ValidationError as error:
            first = error.errors()[0]
            field = "".join(f"{name}: " for name in first["loc"][:1])
            needed = [name for name, f in kind.model_fields.items() if f.is_required()]
            raise BadTrainingData(
                f"{path}:{place}: {field}{one_line(first['msg'].removeprefix('Value error, '))}; "
                f"a row is a JSON object with {', '.join(needed)}"
            ) from error
        except (ValueError, RecursionError) as error:
            raise BadTrainingData(f"{path}:{place}: not JSON ({error})") from error
    if not rows:
        raise BadTrainingData(f"{path} holds no rows")
    return rows


def _words(question: str) -> bytes:
    return " ".join(question.lower().split()).encode(errors="replace")


def part_of(question: str) -> PartOfData:
    """The part of the data that a question belongs to, by its words: 7 in 10, 1 in 10, 2 in 10."""
    bucket = zlib.crc32(_words(question)) % 10
    return "test" if bucket < 2 else "development" if bucket == 2 else "train"


def is_held_out(question: str, share: float) -> bool:
    """Whether a question is in the ``share`` (in [0, 1]) held out from training, by its words."""
    digest = hashlib.sha256(_words(question)).digest()
    return int.from_bytes(digest[:4]) < share * 2**32


def title_of(document: Document) -> str:
    """The title of a document, "" if it has none."""
    return str(document.metadata.get("title") or "")
