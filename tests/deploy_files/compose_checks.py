"""What the Compose schema lets through: names that lead nowhere, open ports, loose tags, keys in the file."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from deploy_files.reading import asks_for_a_secret, documents, loose_tag, secrets_told

_DURATION = re.compile(r"(\d+(\.\d+)?(us|ms|s|m|h))+")
_VARIABLE = re.compile(r"\$\{(\w+)(:?[?+-])?([^}]*)\}")


def compose_faults(text: str, told: Collection[str]) -> list[str]:
    """All that is wrong; `told`: the variables that the page tells."""
    (data,) = documents(text)
    services = data["services"]
    found = [*_variables(text, told), *secrets_told(data)]
    for name, service in services.items():
        found += [f"{name}: {fault}" for fault in _service(service, services, data)]
    taken = Counter(port.rpartition(":")[0] for one in services.values() for port in one.get("ports", ()))
    return [*found, *(f"{port}: published twice" for port, times in taken.items() if times > 1)]


def _variables(text: str, told: Collection[str]) -> Iterator[str]:
    for name, form, rest in _VARIABLE.findall(re.sub(r"(?m)^\s*#.*$", "", text)):
        if name not in told:
            yield f"{name}: the page does not tell what it is"
        if asks_for_a_secret(name) and (form != ":?" or not rest.strip()):
            yield f"{name}: a secret needs ${{{name}:?what to do}}, and has no default"
    if re.search(r"\$[A-Za-z_]", text):
        yield "a variable without braces"


def _service(service: dict[str, Any], services: dict[str, Any], data: dict[str, Any]) -> Iterator[str]:
    shares = service.get("network_mode", "").partition("service:")[2]
    for other in (*service.get("depends_on", {}), *([shares] if shares else [])):
        if other not in services:
            yield f"there is no service '{other}'"
    for network in service.get("networks", ()):
        if network not in data.get("networks", {}):
            yield f"there is no network '{network}'"
    for config in service.get("configs", ()):
        if config["source"] not in data.get("configs", {}):
            yield f"there is no config '{config['source']}'"
    yield from _volumes(service, data)
    for port in service.get("ports", ()):
        if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", str(port)):
            yield f"port {port} is not on 127.0.0.1"
    if loose_tag(service.get("image", "")):
        yield f"image {service.get('image')} has no tag that stays"
    yield from _environment(service.get("environment", {}))
    yield from _health(service)


def _volumes(service: dict[str, Any], data: dict[str, Any]) -> Iterator[str]:
    for volume in service.get("volumes", ()):
        source = (
            volume if isinstance(volume, str) else volume["source"] if volume["type"] == "volume" else "."
        )
        name = source.partition(":")[0]
        if not name.startswith((".", "/", "$")) and name not in data.get("volumes", {}):
            yield f"there is no volume '{name}'"


def _environment(environment: dict[str, Any]) -> Iterator[str]:
    for name, value in environment.items():
        if asks_for_a_secret(name) and not str(value).startswith("${"):
            yield f"{name} is written out"
        if not isinstance(value, str):
            yield f"{name}: {value!r} is no text; YAML may read it as something else"


def _health(service: dict[str, Any]) -> Iterator[str]:
    health = service.get("healthcheck")
    if health is None and service.get("ports"):
        yield "publishes a port and has no healthcheck"
    for name in ("interval", "timeout", "start_period"):
        if health is not None and not _DURATION.fullmatch(str(health.get(name, ""))):
            yield f"healthcheck.{name}: {health.get(name)!r} is no duration"
