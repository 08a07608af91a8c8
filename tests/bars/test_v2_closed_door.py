"""V2: what the kit serves is closed: a key before every route, this machine alone, no way to change weights.

Here the door and the command line; tests/served/test_serving.py walks the whole route table of a real vLLM.
"""

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

from dreamgym_kit.adapters.models.vllm import launch as launching
from dreamgym_kit.adapters.models.vllm.launch import Launch, Role, read_serving_key
from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.schema import ServeSettings

KEY = "canary-of-the-door"
DEV = ServeSettings(dev=True)
FILE = Path(launching.__file__).parent / "door" / "dreamgym_door.py"


def door(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Any:
    """The middleware as vLLM would load it, before an app that answers everything."""
    for name in ("VLLM_API_KEY", "DREAMGYM_DRAINING", "DREAMGYM_HERE_ONLY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    spec = importlib.util.spec_from_file_location("dreamgym_door", FILE)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Door(everything)


async def everything(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
    else:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"in"})


def ask(app: Any, path: str, method: str = "POST", kind: str = "http", **headers: str) -> int:
    """The status that an app answers with; 1008 for a socket that is closed."""
    sent: list[dict[str, Any]] = []
    said = {"host": "127.0.0.1:8000"} | headers
    scope = {"type": kind, "path": path, "method": method}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in said.items()]

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, None, send))
    return int(sent[0].get("status", sent[0].get("code", 200)))


@each_row(
    "path", ["/v1/chat/completions", "/metrics", "/tokenize", "/collective_rpc", "/health/", "//health", "/"]
)
def test_v2_every_route_but_health_asks_for_the_key(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    app = door(monkeypatch, VLLM_API_KEY=KEY)
    wrong = (
        "",
        "Bearer",
        "Bearer ",
        f"Basic {KEY}",
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        KEY,
        "Bearer \xe9",
    )
    assert [ask(app, path, authorization=one) for one in wrong] == [401] * len(wrong)
    assert ask(app, path) == 401
    assert ask(app, path, authorization=f"Bearer {KEY}") == 200
    assert ask(app, "/health", "GET") == 200
    assert ask(app, path, kind="websocket") == 1008


def test_v2_what_drains_lets_nothing_new_in_and_is_still_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    app = door(monkeypatch, DREAMGYM_DRAINING=str(tmp_path / "draining"))
    assert ask(app, "/v1/completions") == ask(app, "/v1/realtime", kind="websocket", method="") == 200
    (tmp_path / "draining").touch()
    assert ask(app, "/v1/realtime", kind="websocket", method="") == 1008
    assert (ask(app, "/v1/completions"), ask(app, "/metrics", "GET")) == (503, 200)


def test_v2_what_is_under_way_is_counted_until_it_ends_and_told_to_who_has_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = door(monkeypatch, VLLM_API_KEY=KEY)
    told: list[bytes] = []

    async def hear(message: dict[str, Any]) -> None:
        told.append(message.get("body", b""))

    def scope(method: str, path: str) -> dict[str, Any]:
        headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {KEY}".encode())]
        return {"type": "http", "method": method, "path": path, "headers": headers}

    async def asks_in_the_midst(_scope: Any, _receive: Any, _send: Any) -> None:
        await app(scope("GET", "/metrics"), None, hear)
        await app(scope("GET", "/dreamgym/under-way"), None, hear)
        raise ConnectionResetError

    inner = app._app
    app._app = lambda s, r, send: (asks_in_the_midst if s["method"] == "POST" else inner)(s, r, send)
    with pytest.raises(ConnectionResetError):
        asyncio.run(app(scope("POST", "/v1/completions"), None, hear))
    asyncio.run(app(scope("GET", "/dreamgym/under-way"), None, hear))
    assert [json.loads(one)["under_way"] for one in told if one.startswith(b"{")] == [1, 0]
    assert ask(app, "/dreamgym/under-way", "GET") == 401


@each_row(
    ("asked", "why"),
    [
        (
            {"host": "0.0.0.0", "wanted": DEV, "key": KEY},
            "serve.dev on 0.0.0.0: routes that load weights and run code",
        ),
        ({"host": "10.0.0.7", "wanted": DEV, "key": KEY}, "serve.dev on 10.0.0.7"),
        ({"host": "vllm.example", "wanted": DEV, "key": KEY}, "serve.dev on vllm.example"),
        ({"host": "0.0.0.0"}, "--host 0.0.0.0 needs a key; set VLLM_API_KEY"),
        ({"wanted": DEV}, "serve.dev needs a key"),
        ({"more": ("--api-key", KEY)}, "--api-key is not passed on: lists of processes show it"),
        ({"more": (f"--api_key={KEY}",)}, "is not passed on"),
        ({"more": ("--host=0.0.0.0",)}, "--host is not passed on"),
        ({"wanted": DEV, "key": KEY, "more": ("--hos", "0.0.0.0")}, "--hos is not passed on: say it to this"),
        ({"more": ("--middl=x.y",)}, "--middl is not passed on: the door stands there"),
        ({"more": ("--allowed_or", '["*"]')}, "--allowed_or is not passed on"),
        ({"more": ("--grpc",)}, "--grpc is not passed on: no door stands before that port"),
        ({"more": ("--config", "flags.yaml")}, "--config is not passed on: its flags could open"),
        ({"more": ("--grpc-port=9000",)}, "--grpc-port is not passed on"),
        ({"more": ("--middleware", "x.y")}, "--middleware is not passed on"),
        ({"more": ("--allowed-origins", '["*"]')}, "--allowed-origins is not passed on"),
    ],
)
def test_v2_what_would_be_open_to_others_is_refused_by_name(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError) as refused:
        Launch("vllm", "m", "n", Role.POLICY, **asked)
    assert why in str(refused.value)
    assert KEY not in str(refused.value)


def test_v2_the_key_is_in_the_environment_and_nowhere_else(tmp_path: Path) -> None:
    asked = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_API_KEY": "other"}
    asked |= {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1", "VLLM_USE_RUST_FRONTEND": "1", "PATH": "/bin"}
    for role in Role:
        launch = Launch("vllm", "m", "n", role, key=KEY)
        line = launch.line()
        assert KEY not in " ".join(line) + repr(launch)
        assert line[line.index("--host") + 1] == "127.0.0.1"
        assert line[line.index("--allowed-origins") + 1] == "[]"
        assert line[line.index("--middleware") + 1] == "dreamgym_door.Door"
        said = launch.environment(asked)
        assert said["VLLM_API_KEY"] == KEY
        assert not {name for name in asked if name.startswith("VLLM_") and name in said} - {"VLLM_API_KEY"}
        assert (Path(said["PYTHONPATH"].split(":")[0]) / "dreamgym_door.py").is_file()
    opened = Launch("vllm", "m", "n", Role.POLICY, key=KEY, wanted=DEV).environment({})
    assert opened["VLLM_SERVER_DEV_MODE"] == "1"


def test_v2_a_key_is_drawn_for_this_machine_alone(tmp_path: Path) -> None:
    file = tmp_path / "state" / "serve.key"
    drawn = read_serving_key(file, host="127.0.0.1", environ={})
    assert (drawn.text, drawn.file) == (file.read_text(), file)
    assert len(drawn.text) >= 32
    assert file.stat().st_mode & 0o077 == 0
    assert read_serving_key(file, host="::1", environ={}).text == drawn.text
    assert drawn.text not in repr(drawn)
    assert read_serving_key(file, host="0.0.0.0", environ={"VLLM_API_KEY": KEY}).text == KEY
    with pytest.raises(UserError, match="VLLM_API_KEY is not set"):
        read_serving_key(file, host="0.0.0.0", environ={})
    file.chmod(0o644)
    with pytest.raises(UserError, match="others could have written or read"):
        read_serving_key(file, host="127.0.0.1", environ={})
    file.chmod(0o600)
    file.write_text("-----BEGIN PRIVATE KEY-----")  # somebody's own, which is no password of ours
    with pytest.raises(UserError, match="no key that was drawn here"):
        read_serving_key(file, host="127.0.0.1", environ={})


def test_v2_a_door_that_forgets_the_key_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    app = door(monkeypatch, VLLM_API_KEY=KEY)
    app._key = ""  # the planted fault
    assert ask(app, "/metrics") != 401
