"""Files that Python packages and Debian install, as plain text."""

import gzip
import re
import subprocess
from importlib.metadata import distribution
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


# As a user sees a manual page: not justified, and no word divided.
_GROFF_START = ".nh\n.de hy\n..\n.na\n.de ad\n..\n"
_GROFF = ("groff", "-t", "-mandoc", "-Kutf8", "-Tutf8", "-P-cbou", "-rLL=100n")
_HYPHENS = str.maketrans({"\u2010": "-", "\u2212": "-"})


def text_of(place: Place) -> tuple[str, str]:
    """A file as plain text, and the suffix of its name: .md for Markdown, .txt for all else.

    Raises:
        FileNotFoundError: it, or groff for a manual page, is not on this machine; if its package is
            not, PackageNotFoundError.
    """
    if place.file == README:
        return _readme(place.package)
    path = Path(place.file)
    if place.package:
        installed = distribution(place.package).files or ()
        ends = [file for file in installed if f"/{file.as_posix()}".endswith(f"/{place.file}")]
        if not ends:
            raise FileNotFoundError(place.file)
        path = Path(str(ends[0].locate()))
    content = path.read_bytes()
    if path.suffix == ".gz":
        content, path = gzip.decompress(content), path.with_suffix("")
    text = content.decode("utf-8")
    if re.fullmatch(r"\.[1-8]", path.suffix):
        text = subprocess.run(
            _GROFF, input=_GROFF_START + text, capture_output=True, check=True, encoding="utf-8"
        ).stdout.translate(_HYPHENS)
    return text, ".md" if path.suffix == ".md" else ".txt"


def _readme(package: str) -> tuple[str, str]:
    found = distribution(package)
    header = found.metadata
    first = "\n".join(f"{field}: {header[field]}" for field in ("Name", "Version", "Summary"))
    body = (found.read_text("METADATA") or "").partition("\n\n")[2]
    markdown = "markdown" in (header["Description-Content-Type"] or "")
    return f"{first}\n\n{body}", ".md" if markdown else ".txt"
