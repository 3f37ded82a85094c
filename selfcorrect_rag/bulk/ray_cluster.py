"""Ray for the runs that use more than this process: a cluster that is there, or one made here."""

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selfcorrect_rag.errors import NoCluster, SelfCorrectError, describe_error, disk_full, require

CONNECT_SECONDS = 5.0
"""How long a cluster may take to answer."""
_OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""What a client of gRPC, which Ray speaks, begins with: HTTP/2's preface and an empty SETTINGS."""
_SETTINGS = 4
"""The kind of frame that the server's side begins with."""


@contextmanager
def ray_cluster(
    address: str | None = None,
    *,
    cpus: int | None = None,
    gpus: int | None = None,
    object_store_bytes: int | None = None,
) -> Iterator[Any]:
    """The module ``ray``, connected to a cluster.

    Ray's usage statistics and dashboard are off, and its workers print nothing here.
    Where this process is connected already, that cluster is used and left as it is.

    Args:
        address: ``HOST:PORT`` of a cluster's head, or ``auto`` for the one that this machine is
            part of. None is the environment's ``RAY_ADDRESS``; where there is none, Ray is started
            on this machine alone, and stopped at the end. Workers of a cluster import from the
            folders of this process's ``PYTHONPATH``, as far as they have them.
        cpus: cores of a Ray that is started here; None is all of this machine.
        gpus: GPUs of it; None is all of this machine.
        object_store_bytes: its shared memory; None is Ray's own choice, 30 % of the memory.

    Raises:
        MissingExtra: Ray is not installed.
        NoCluster: nothing answers at ``address`` within seconds, or Ray could not be started.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    ray = require("ray", "ray")
    require("ray.data", "ray")
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {
        "address": address,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
    }
    if address == "local":
        options |= {
            "include_dashboard": False,
            "num_cpus": cpus,
            "num_gpus": gpus,
            "object_store_memory": object_store_bytes,
        }
    else:
        _check(address)
        if path := os.environ.get("PYTHONPATH"):
            options["runtime_env"] = {"env_vars": {"PYTHONPATH": path}}
    try:
        try:
            ray.init(**options)
        except (Exception, SystemExit) as error:  # Ray ends the process if a node does not answer
            reason = " ".join(str(error).split())[:300]
            raise NoCluster(f"Ray at {address} cannot be used: {reason}") from error
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def ray_errors(ray: Any, folder: Path, failed: Callable[[str], SelfCorrectError]) -> Iterator[None]:
    """Raise what a task or an actor raised as it was there, and Ray's own errors as ours.

    Args:
        ray: the module.
        folder: of the run; an error because its disk is full is a :class:`DiskFull`.
        failed: makes all other errors, of why.
    """
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, SelfCorrectError):
            raise error.cause from None
        reason = f"a worker of Ray failed ({describe_error(error.cause or error)})"
        raise failed(reason) from error
    except ray.exceptions.RayActorError as error:
        reason = f"actors died too often over one batch ({describe_error(error)})"
        raise failed(f"{reason}: look at the memory of their machine") from error
    except ray.exceptions.RayError as error:
        reason = f"Ray failed ({describe_error(error)})"
        raise disk_full(folder, error) or failed(reason) from error


def refuse_without_gpus(ray: Any, gpus: float, actors: int) -> None:
    """Do nothing if so many actors with ``gpus`` each, or a share of one, find room now.

    Raises:
        NoCluster: they would wait, maybe for ever.
    """
    if not gpus:
        return
    each = max(1, round(gpus * 10_000))  # as Ray counts; in floating point, 1 // 0.1 is 9
    there = [node["Resources"].get("GPU", 0.0) for node in ray.nodes() if node["Alive"]]
    room = sum(round(machine * 10_000) // each for machine in there)
    if room < actors:
        raise NoCluster(
            f"the machines of the cluster have {sum(there):g} GPUs, which is room for {room} "
            f"actors of {gpus:g} GPUs each: {actors} are wanted"
        )


def quiet(dataset: Any) -> Any:
    """The context of ``dataset`` and of what is made of it, without progress bars; the process's
    own is left as it is."""
    dataset.context.enable_progress_bars = False
    return dataset.context


_ENVIRONMENT = {
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",  # else a lost worker is told on standard output
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else a warning about what a later Ray will do
    # What goes wrong is raised too, once and shorter.
    "RAY_DATA_LOG_LEVEL": "CRITICAL",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}
"""Read by Ray when it is imported; a user's own values stand."""


def _check(address: str) -> None:
    """Refuse an address where no Ray answers; Ray itself would wait for minutes."""
    if address == "auto":
        return  # Ray knows at once
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise NoCluster(f"{address} is no address of Ray: give HOST:PORT of its head, or auto")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS) as link:
            link.settimeout(CONNECT_SECONDS)
            if os.environ.get("RAY_USE_TLS") == "1":
                return
            link.sendall(_OPENING)
            reply = b""
            with contextlib.suppress(ConnectionError):
                while len(reply) < 4 and (more := link.recv(4)):
                    reply += more
    except (OSError, OverflowError) as error:
        raise NoCluster(f"no Ray answers at {address}: {error}") from error
    if len(reply) < 4 or reply[3] != _SETTINGS:
        raise NoCluster(f"what answers at {address} is not Ray")
