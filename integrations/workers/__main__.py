"""Serve the graphs: a worker that takes runs from Postgres, and the front that takes them in.

    python -m integrations.workers [--slots 4] [--port 8000]

POSTGRES_URI names the database, REDIS_URI a Redis for results of nodes, and SELFCORRECT_... the
models and documents, as docs/studio.md says. WORKERS_TOKEN, if set, is asked of clients. SIGTERM
ends the process once the runs that it holds have ended.
"""

import argparse
import logging
import os
from importlib import import_module

import uvicorn

from .server import application
from .worker import Worker


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1", help="Default: %(default)s.")
    parser.add_argument("--port", type=int, default=8000, help="Default: %(default)s.")
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
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    module, _, function = args.graphs.partition(":")
    open_graphs = getattr(import_module(module), function)
    worker = Worker(address, open_graphs, args.slots, args.tries)
    app = application(address, worker, token=os.environ.get("WORKERS_TOKEN", ""))
    config = uvicorn.Config(
        app,
        args.host,
        args.port,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=5,
    )
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
