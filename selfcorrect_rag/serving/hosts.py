"""The host names that a server accepts.

Against DNS rebinding: any web page can send requests to a server on this machine by a host name of
its own that resolves here. The browser sets ``Host`` and ``Origin``, which reveal it.
"""

import re
from collections.abc import Sequence

from selfcorrect_rag.serving.config import PREFIX, BadOption

ALLOWED_HOSTS = PREFIX + "ALLOWED_HOSTS"
"""The variable with the names of ``--allow-host``, with spaces between them."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""The names that a machine has for itself."""
_NAME = re.compile(r"[a-z0-9_.-]+|[0-9a-f.]*:[0-9a-f:.]+")
"""A name or an address of a machine, without scheme and port."""


def known_names(host: str, allowed: Sequence[str]) -> list[str]:
    """The names by which clients may call a server that listens at ``host``, in lower case.

    Raises:
        BadOption: it would listen to other machines without a host name, or a name is malformed.
    """
    names = [name.lower().strip("[]") for name in allowed]
    for name in names:
        if not _NAME.fullmatch(name):
            raise BadOption(f"--allow-host {name}: give a name alone, without scheme and port")
    if not names and not (host.lower() in LOOPBACK or host.startswith("127.")):
        raise BadOption(
            f"--host {host} is open to other machines: say by which name they call the server, "
            "--allow-host NAME; it asks nobody for a password"
        )
    return [*LOOPBACK, *names]
