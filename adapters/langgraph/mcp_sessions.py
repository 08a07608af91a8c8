"""The gate at an MCP client: tools that code calls on the session itself, past every LangChain tool.

The connection is open already, so the egress guard sees nothing of such a call. What of the session a
tool's own body uses is the tool's: the gate has decided about that call.
"""

import functools
import sys
from typing import Any

from dreamgym_kit.adapters.langgraph.frames import config_here, running, session_key
from dreamgym_kit.adapters.langgraph.patches import PatchSet, is_ours, plain_wrapper
from dreamgym_kit.gate.registry import PROCESS, current, find

_MODULE = "mcp.shared.session"  # looked up, never imported: few projects use it


def guard_mcp_sessions(patches: PatchSet) -> None:
    """Refuse tool calls on MCP sessions in dreams, where the package is there; again does nothing."""
    owner = getattr(sys.modules.get(_MODULE), "BaseSession", None)
    real = owner.__dict__.get("send_request") if isinstance(owner, type) else None
    if owner is None or real is None or is_ours(real):
        return

    @functools.wraps(real)
    async def send_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        name = _tool_called(request)
        if name is not None:
            _check(name)
        return await real(self, request, *args, **kwargs)

    patches.replace(owner, "send_request", plain_wrapper(send_request, real))


def _tool_called(request: Any) -> str | None:
    asked = getattr(request, "root", request)
    if getattr(asked, "method", None) != "tools/call":
        return None
    return str(getattr(getattr(asked, "params", None), "name", "a tool"))


def _check(name: str) -> None:
    if (not PROCESS.armed and current.get() is None) or running() is not None:
        return
    session = find(session_key(config_here()), f"MCP tool '{name}'")
    if session is not None and not session.mode.bare:
        session.refuse(
            f"the MCP tool '{name}' was called on its client session; it did not run. Call it through the "
            "tools of langchain-mcp-adapters, or name the function that calls it in dreamgym.toml: "
            f'[functions."package.module:function"] effect = "...", name = "{name}"'
        )
