"""Serve the graphs: a worker that takes runs from Postgres, and the front that takes them in.

    python -m integrations.workers [--slots 4] [--port 8000]

POSTGRES_URI names the database, REDIS_URI a Redis for results of nodes, and SELFCORRECT_... the
models and documents, as docs/studio.md says. WORKERS_TOKEN, if set, is asked of clients. SIGTERM
ends the process once the runs that it holds have ended.
"""

import argparse
import asyncio
import logging
import os
from importlib import import_module
from types import FrameType

import uvicorn

from selfcorrect_rag.serving.config import BadOption
from selfcorrect_rag.serving.hosts import known_names
from selfcorrect_rag.serving.options import add_host_options

from .server import application
from .worker import Worker


class Server(uvicorn.Server):
    """Its worker takes no more runs from the moment of the signal."""

    def __init__(self, config: uvicorn.Config, worker: Worker) -> None:
        super().__init__(config)
        self._worker = worker

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        asyncio.get_running_loop().call_soon_threadsafe(self._worker.stop)
        super().handle_exit(sig, frame)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_host_options(parser, port=8000)
    parser.add_argument(
        "--slots",
        type=int,
        default=4,
        metavar="N",
        help="Runs at a time; 0 is a front that takes none. Default: %(default)s.",
    )
    parser.add_argument(
        "--tries",
        type=int,
        default=10,
        metavar="N",
        help="How often a run is taken before it fails. Default: %(default)s.",
    )
    parser.add_argument(
        "--graphs",
        default=f"{__package__}.graphs:served",
        metavar="MODULE:FUNCTION",
        help="What opens the models and returns a dict of graphs. Default: %(default)s.",
    )
    args = parser.parse_args()
    address = os.environ.get("POSTGRES_URI")
    if not address:
        raise SystemExit("POSTGRES_URI is not set: postgresql://USER:PASSWORD@HOST:5432/DATABASE")
    try:
        hosts = known_names(args.host, args.allow_host)
    except BadOption as error:
        raise SystemExit(str(error)) from error
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    module, _, function = args.graphs.partition(":")
    open_graphs = getattr(import_module(module), function)
    worker = Worker(address, open_graphs, args.slots, args.tries)
    token = os.environ.get("WORKERS_TOKEN", "")
    app = application(address, worker, hosts=hosts, token=token)
    config = uvicorn.Config(
        app,
        args.host,
        args.port,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=5,
    )
    Server(config, worker).run()


if __name__ == "__main__":
    main()
