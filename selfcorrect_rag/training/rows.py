"""The common parts of all training data: rows as pydantic models, options, and fixed splits."""

import hashlib
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from langchain_core.documents import Document
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from selfcorrect_rag import journal
from selfcorrect_rag.errors import BadTrainingData, one_line

PartOfData = Literal["train", "development", "test"]
PARTS: tuple[PartOfData, ...] = ("train", "development", "test")
Progress = Callable[[int, int], object] | None
"""Called with how many items are finished since the last call, and how many there are in all."""


class Row(BaseModel):
    """A row of a training file; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    @property
    def digest(self) -> str:
        """The row's key in journals."""
        return journal.digest([self])


class Options(BaseModel):
    """Options of an entrypoint; ``selfcorrect-rag train NAME --set key=value`` sets each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    run_only: ClassVar[frozenset[str]] = frozenset({"data", "out"})
    """Fields on which the result does not depend, so that they may change when a run resumes."""

    data: Path
    """File of rows, as JSON lines or one JSON list."""
    out: Path
    """File or folder of the result; a stopped run there is resumed."""

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
        """The options that decide the result, as JSON values."""
        return self.model_dump(mode="json", exclude=set(self.run_only))


def _filled(text: Any) -> Any:
    if isinstance(text, str) and not text.strip():
        raise ValueError("must not be empty")
    return text


def as_document(value: Any) -> Document:
    """Read a passage: a text, or an object with a text and perhaps a title and a score."""
    if isinstance(value, Document):
        return value
    row = value if isinstance(value, dict) else {"text": value}
    text, title = row.get("text"), row.get("title") or ""
    if not isinstance(text, str) or not text.strip() or not isinstance(title, str):
        raise ValueError('a passage must be a text or {"title": ..., "text": ...}')
    return Document(text, metadata={"title": title, "score": row.get("score", 0)})


Filled = Annotated[str, BeforeValidator(_filled)]
Share = Annotated[float, Field(ge=0, lt=1)]
PassageField = Annotated[Document, BeforeValidator(as_document)]
R = TypeVar("R", bound=Row)


def read_rows(path: Path, kind: type[R]) -> list[R]:
    """Read the rows of a file, null fields as absent; BadRows or BadTrainingData name the line (in
    a JSON list the place) of an invalid one, its field and the expected fields."""
    rows = []
    for number, row in journal.read_rows(path):
        try:
            given = {key: value for key, value in row.items() if value is not None}
            rows.append(kind.model_validate(given))
        except ValidationError as error:
            first = error.errors()[0]
            field = "".join(f"{name}: " for name in first["loc"][:1])
            needed = [name for name, f in kind.model_fields.items() if f.is_required()]
            raise BadTrainingData(
                f"{path}:{number}: {field}{one_line(first['msg'].removeprefix('Value error, '))}; "
                f"a row is a JSON object with {', '.join(needed)}"
            ) from error
    return rows


def part_of(question: str) -> PartOfData:
    """Return the part of the data that a question belongs to, by its words: 7 in 10, 1, 2."""
    bucket = zlib.crc32(_words(question)) % 10
    return "test" if bucket < 2 else "development" if bucket == 2 else "train"


def hold_out(rows: Sequence[R], share: float) -> tuple[list[R], list[R]]:
    """Part rows with a ``question`` into training and the ``share`` held out, by its words."""
    parts: tuple[list[R], list[R]] = ([], [])
    for row in rows:
        digest = hashlib.sha256(_words(row.question)).digest()  # type: ignore[attr-defined]
        parts[int.from_bytes(digest[:4]) < share * 2**32].append(row)
    return parts


def _words(question: str) -> bytes:
    return " ".join(question.lower().split()).encode(errors="replace")
