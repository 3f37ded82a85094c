"""PostgreSQL and Redis of one's own, from installed packages: no container, no root, no trace.

with postgres() as address, redis() as url: ...
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

USERS = ("postgres", "nobody")
"""The users to run PostgreSQL as where root may not."""


class NotInstalled(RuntimeError):
    """A server's program is not on this machine."""


@contextmanager
def postgres(*options: str) -> Iterator[str]:
    """An empty PostgreSQL until the block ends; gives its address, ``postgresql://...``.

    ``options`` are the server's own, such as ``-F``, which waits for no disk.

    Raises:
        NotInstalled: its programs are neither on the path nor where Debian puts them.
    """
    programs = _postgres_programs()
    user = _user()
    with _folder(user) as folder:
        data, port = folder / "data", free_port()
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N"],
            check=True,
            stdout=subprocess.DEVNULL,
            user=user,
            cwd=folder,
        )
        place = ["-D", data, "-p", port, "-h", "127.0.0.1", "-k", folder]
        with _running([programs / "postgres", *place, *options], port, folder, user):
            address = f"postgresql://postgres@127.0.0.1:{port}/postgres"
            _wait_for_postgres(programs / "pg_isready", port)
            yield address


@contextmanager
def redis() -> Iterator[str]:
    """An empty Redis until the block ends; gives its address, ``redis://...``.

    Raises:
        NotInstalled: ``redis-server`` is not on the path.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise NotInstalled("redis-server is not installed")
    with _folder(None) as folder:
        port = free_port()
        command = [program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        with _running(command, port, folder, None):
            yield f"redis://127.0.0.1:{port}"


def _postgres_programs() -> Path:
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent  # a link to one program has not the others beside it
    versions = [p for p in Path("/usr/lib/postgresql").glob("*/bin") if (p / "initdb").exists()]
    if not versions:
        raise NotInstalled("PostgreSQL's server is not installed (initdb is nowhere)")
    return max(versions, key=lambda path: int(path.parent.name))


def _user() -> str | None:
    """Whom to run PostgreSQL as: it refuses root."""
    if os.geteuid() != 0:
        return None
    import pwd

    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(user for user in USERS if user in known)


@contextmanager
def _folder(user: str | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        if user is not None:
            shutil.chown(name, user)
        yield Path(name)


@contextmanager
def _running(
    command: Sequence[object], port: int, folder: Path, user: str | None
) -> Iterator[None]:
    log = folder / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [str(part) for part in command],
            stdout=output,
            stderr=subprocess.STDOUT,
            user=user,
            cwd=folder,
        )
    try:
        _wait(server, port, log)
        yield
    finally:
        server.send_signal(2)  # PostgreSQL's fast shutdown; Redis ends on it too
        server.wait(timeout=30)


def _wait(server: subprocess.Popen[bytes], port: int, log: Path, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"{server.args} does not answer: {log.read_text()[-500:]}")


def _wait_for_postgres(program: Path, port: int) -> None:
    """It listens a moment before it lets anybody in."""
    command = [program, "-h", "127.0.0.1", "-p", str(port), "-t", "30"]
    while subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 1:
        time.sleep(0.05)


def free_port() -> int:
    """A port of loopback where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
