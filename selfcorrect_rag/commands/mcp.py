"""``selfcorrect-rag mcp``: the graphs as MCP tools, over stdio or streamable HTTP."""

import argparse
from collections.abc import Callable

from selfcorrect_rag.errors import require
from selfcorrect_rag.serving.options import add_host_options, add_options, config_from
from selfcorrect_rag.serving.parts import Parts

MOST_PASSAGES = 20
"""Passages that the index is asked for; the setting ``passages`` takes the best of them."""


def add_parser(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Register ``mcp``."""
    parser = add(
        usage="%(prog)s [options]",
        description="Serve the graphs as MCP tools, over stdio or streamable HTTP.",
        examples=(
            "selfcorrect-rag mcp --index .selfcorrect/index",
            "selfcorrect-rag mcp --http --port 8900",
        ),
    )
    parser.add_argument(
        "--http", action="store_true", help="Streamable HTTP instead of stdio. Default: off."
    )
    add_host_options(parser, port=8900)
    parser.add_argument(
        "--approve",
        action="store_true",
        help="Ask the client's user before each web search. Default: off.",
    )
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until the client goes away, or Ctrl-C.

    Raises:
        MissingExtra: the MCP SDK is not installed, or is one before 2.
        BadOption: a value does not do, or it would listen to other machines by no name.
    """
    config = config_from(args)
    require("mcp.server.mcpserver", "mcp")
    from selfcorrect_rag.serving import mcp_server

    known = mcp_server.known_hosts(args.host, args.allow_host)
    with Parts(config, passages=MOST_PASSAGES, pages=MOST_PASSAGES) as parts:
        made = mcp_server.server(
            mcp_server.opening(parts, approve=args.approve),
            f"Answers come from {parts.source}, by {parts.answers}. A question must stand alone. "
            "The marks [n] of an answer are its citations: keep them. Each citation has the "
            "address of a resource with its text.",
        )
        if args.http:
            address = {"host": args.host, "port": args.port}
            made.run("streamable-http", transport_security=known, **address)
        else:
            made.run("stdio")
    return 0
