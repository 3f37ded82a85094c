"""Why an engine did not start, which vLLM writes to the log of its processes and nowhere else."""

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

RECORD = "\x1e"
"""Put before each record, whose text may be of many lines."""
RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:: (?P<message>.*))?$", re.MULTILINE)
"""The last line of a traceback; all others are indented, or end with a colon."""


class StartLog:
    """Keeps the errors that vLLM's processes log while an engine starts.

    vLLM itself raises "See root cause above". What it logs is still shown as before. Where the
    user says how vLLM is to log, nothing is kept.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Nothing is written before the ``with`` block.

        Args:
            options: the user's, of vLLM's ``AsyncEngineArgs``.
        """
        from vllm import envs

        self.options: dict[str, Any] = {}
        """What to add to them."""
        said = {"logging_config", "log_config_file", "log_level"} & options.keys()
        self._wanted = (
            envs.VLLM_CONFIGURE_LOGGING and not envs.VLLM_LOGGING_CONFIG_PATH and not said
        )

    def __enter__(self) -> Self:
        from vllm.config.logging import LoggingConfig
        from vllm.logger import DEFAULT_LOGGING_CONFIG

        self._folder = TemporaryDirectory(prefix="vllm-start-")
        if self._wanted:
            config = deepcopy(DEFAULT_LOGGING_CONFIG)
            config["formatters"]["start"] = {"format": f"{RECORD}%(message)s"}
            config["handlers"]["start"] = {
                "class": "logging.FileHandler",
                "formatter": "start",
                "level": "ERROR",
                "filename": str(self._errors),
            }
            config["loggers"]["vllm"]["handlers"].append("start")
            path = Path(self._folder.name) / "logging.json"
            path.write_text(json.dumps(config), "utf-8")
            self.options = {"logging_config": LoggingConfig(pylogging_config_file=str(path))}
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def cause(self) -> str | None:
        """What the process that failed first raised last, or None where none told."""
        if not self._errors.exists():
            return None
        for record in self._errors.read_text("utf-8", "replace").split(RECORD):
            _, traceback, text = record.partition("Traceback (most recent call last):\n")
            if traceback and (raised := list(RAISED.finditer(text))):
                return raised[-1]["message"] or raised[-1][0]
        return None

    @property
    def _errors(self) -> Path:
        return Path(self._folder.name) / "errors.log"
