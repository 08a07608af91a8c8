"""An MCP server with one tool that counts its calls in a file: over stdio, over HTTP, or in this process.

`mcp_till_double.py stdio`, or `mcp_till_double.py http`: the latter prints its URL. $TILL is the file.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any


def till() -> Any:
    """The server, made with whatever major of the MCP SDK is installed."""
    try:
        from mcp.server.mcpserver import MCPServer as Server
    except ImportError:
        from mcp.server.fastmcp import FastMCP as Server  # type: ignore[assignment]

    made = Server("till", log_level="ERROR")

    @made.tool()
    def pay(amount: int) -> str:
        """Pay out."""
        with Path(os.environ["TILL"]).open("a") as ledger:
            ledger.write(f"{amount}\n")
        return f"paid {amount}"

    return made


def main(transport: str) -> None:
    """Serve until the process is ended."""
    if transport == "stdio":
        till().run("stdio")
        return
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(till().streamable_http_app(), log_level="error")
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(sys.argv[1])
