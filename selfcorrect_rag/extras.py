"""Optional dependencies, imported where they are needed and named when they are missing."""

import importlib
from types import ModuleType

from selfcorrect_rag.errors import MissingExtra


def require(module: str, extra: str) -> ModuleType:
    """Import ``module``, which the ``extra`` of this package brings.

    Raises:
        MissingExtra: it is not installed; the message is the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise  # the module is there, something it imports is not
        raise MissingExtra(
            f'{error.name} is not installed: pip install "selfcorrect-rag[{extra}]"'
        ) from error
