"""What tells a critic or an index from another in the same place."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from selfcorrect_rag.errors import ModelNotFound

_WEIGHTS = ("*.safetensors", "*.bin")


def digest_of_weights(checkpoint: Path) -> str:
    """64 hexadecimal digits of a folder's weights: whole, sharded or an adapter's.

    Raises:
        ModelNotFound: there are none in the folder.
    """
    files = sorted(file for pattern in _WEIGHTS for file in checkpoint.glob(pattern))
    if not files:
        raise ModelNotFound(f"{checkpoint} holds no weights ({', '.join(_WEIGHTS)})")
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{content} {path.name}\n".encode())
    return digest.hexdigest()


def digest_of_ids(ids: Iterable[str]) -> str:
    """64 hexadecimal digits of what an index holds, by the ids of its passages in any order."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()
