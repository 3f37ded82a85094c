"""Names that lead nowhere are refused before anything is loaded, with the nearest right one."""

import importlib.util
import os
import pkgutil
from collections.abc import Iterable
from pathlib import Path

from selfcorrect_rag.commands.terminal import nearest
from selfcorrect_rag.errors import importing_here
from selfcorrect_rag.serving.config import BadOption, ServingConfig, option_name

KEYS = {
    "anthropic": "ANTHROPIC_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistralai": "MISTRAL_API_KEY",
    "openai": "OPENAI_API_KEY",
}
"""Providers of chat models whose packages take their key from one variable of the environment."""


def check_names(config: ServingConfig) -> None:
    """Do nothing if the names may lead to an index, a file, a module or a model.

    Raises:
        BadOption: one does not, or the key of a provider is missing.
        ModelNotFound: a hub name is in no cache, and the hub does not have it or does not answer.
    """
    if config.index and not config.index.is_dir():
        raise BadOption(f"--index: {_no_index(config.index)}")
    if config.web == "tavily" and not os.environ.get("TAVILY_API_KEY"):
        raise BadOption("--web tavily: TAVILY_API_KEY is not set")
    if config.web not in (None, "none", "tavily") and not Path(config.web).is_dir():
        raise BadOption(f"--web: {_no_index(Path(config.web), ('tavily', 'none'))}")
    for name in ("store", "embeddings"):
        given = getattr(config, name)
        if given not in (None, "minilm", "bm25") and not _has_module(given):
            raise BadOption(f"{option_name(name)}: no module {_near_module(given, ())}")
    if config.runs_on == "chat":
        _check_chat_model("model", config.model or "")
    elif config.runs_on != "server" and config.model:
        _check_checkpoint("model", config.model, on_hub=config.runs_on != "reader")
    if config.evaluator and ":" in config.evaluator and not Path(config.evaluator).exists():
        _check_chat_model("evaluator", config.evaluator)
    elif config.evaluator:
        _check_checkpoint("evaluator", config.evaluator)


def _check_chat_model(option: str, name: str) -> None:
    provider = name.partition(":")[0]
    if _has_module(name) and provider not in KEYS:
        return
    if key := KEYS.get(provider):
        if not os.environ.get(key):
            raise BadOption(f"--{option} {name}: {key} is not set")
    elif (near := _near_module(name, KEYS)) != provider:  # LangChain knows more providers
        raise BadOption(f"--{option} {name}: no provider or module {near}")


def _check_checkpoint(option: str, name: str, *, on_hub: bool = True) -> None:
    path = Path(name)
    if path.is_dir():
        return
    is_path = path.is_absolute() or name[0] in ".~" or name.count("/") > 1
    if not on_hub or is_path or ("/" in name and path.parent.is_dir()):
        raise BadOption(f"--{option}: {_no_folder(path)}")
    from selfcorrect_rag.models.local.hub import refuse_unknown

    refuse_unknown(name)


def _no_index(path: Path, others: Iterable[str] = ()) -> str:
    return f"{_no_folder(path, others)}; make it: selfcorrect-rag index PATH... --index {path}"


def _no_folder(path: Path, others: Iterable[str] = ()) -> str:
    try:
        beside = [*others, *(str(other) for other in path.parent.iterdir() if other.is_dir())]
    except OSError:
        beside = [*others]
    return f"no folder {path}{nearest(str(path), beside)}"


def _has_module(name: str) -> bool:
    with importing_here():
        try:
            return importlib.util.find_spec(name.partition(":")[0].split(".")[0]) is not None
        except (ImportError, ValueError):
            return False


def _near_module(name: str, others: Iterable[str]) -> str:
    """The module of a name, and which in this folder, or of ``others``, it is nearly."""
    module = name.partition(":")[0]
    here = (found.name for found in pkgutil.iter_modules([os.getcwd()]))
    return module + nearest(module, (*others, *here), 0.75)  # azure_openai is not openai
