"""``selfcorrect-rag mcp``: the graphs as tools of an MCP server."""

from typing import Any

import click

from selfcorrect_rag.cli.options import CONFIG, config_from, host_options


@click.command(params=[*CONFIG, *host_options(port=8900)])
@click.option("--http", is_flag=True, help="Streamable HTTP instead of stdio.")
def mcp_command(
    http: bool, host: str, port: int, allow_host: tuple[str, ...], **options: Any
) -> None:
    """Serve the graphs as MCP tools, over stdio or streamable HTTP, until the client goes away."""
    from selfcorrect_rag.errors import require

    require("mcp.server.mcpserver", "mcp")
    from selfcorrect_rag.serving import mcp_server
    from selfcorrect_rag.serving.parts import Parts, build_once

    config = config_from(**options)
    security = mcp_server.transport_security(host, allow_host)
    with Parts(config) as parts:
        server = mcp_server.server(
            build_once(parts.graph),
            f"Answers come from {parts.source}, by {parts.answers}. A question must stand alone. "
            "The marks [n] of an answer are its citations: keep them. Each citation has the "
            "address of a resource with its text.",
        )
        if http:
            server.run("streamable-http", transport_security=security, host=host, port=port)
        else:
            server.run("stdio")
