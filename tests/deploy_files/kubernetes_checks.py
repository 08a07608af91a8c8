"""What the schemas of Kubernetes let through: selectors, ports and names that lead nowhere, and keys."""

import re
from collections.abc import Collection, Iterator
from typing import Any

from deploy_files.reading import asks_for_a_secret, leaves, loose_tag, secrets_told

LONG_RUNNING = ("Deployment", "StatefulSet")
_HOST = re.compile(r"(?:https?|weaviate)://([a-z0-9.-]+):(\d+)")
_OPEN = ("hostNetwork", "hostPort", "hostPID", "hostIPC", "privileged", "nodePort", "externalIPs")


def kubernetes_faults(objects: list[Any], told: Collection[str]) -> list[str]:
    """All that is wrong with objects that are applied together; `told`: the names that the page tells."""
    found = [*secrets_told(objects), *_addresses(objects)]
    for one in objects:
        name = f"{one['kind']} {one['metadata']['name']}"
        faults = [*_selecting(one, objects), *_open(one)]
        for pod in pods_of(one):
            faults += [*_selected(one, pod), *_pod(pod, one, objects, told)]
        found += [f"{name}: {fault}" for fault in faults]
    return found


def pods_of(one: dict[str, Any]) -> list[dict[str, Any]]:
    """The templates of pods that an object makes."""
    spec = one.get("spec", {})
    if one["kind"] == "RayJob":
        cluster = spec["rayClusterSpec"]
        return [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    return [spec["template"]] if "template" in spec else []


def _labels(pod: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = pod["metadata"]["labels"]
    return labels


def _matches(selector: dict[str, Any], pod: dict[str, Any]) -> bool:
    labels = _labels(pod)
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        labels.get(rule["key"]) in rule["values"] for rule in selector.get("matchExpressions", ())
    )


def _all_pods(objects: list[Any]) -> list[dict[str, Any]]:
    return [pod for one in objects for pod in pods_of(one)]


def _selected(one: dict[str, Any], pod: dict[str, Any]) -> Iterator[str]:
    selector = one["spec"].get("selector")
    if selector is not None and not _matches(selector, pod):
        yield "its selector does not match its own pods"


def _selecting(one: dict[str, Any], objects: list[Any]) -> Iterator[str]:
    spec, pods = one.get("spec", {}), _all_pods(objects)
    if one["kind"] == "Service":
        chosen = [pod for pod in pods if _matches({"matchLabels": spec["selector"]}, pod)]
        if not chosen:
            yield "no pod has the labels that it selects"
        ports = {port.get("name") for pod in chosen for port in _ports(pod)}
        for port in spec["ports"]:
            if chosen and port["targetPort"] not in ports:
                yield f"its pods have no port '{port['targetPort']}'"
    if one["kind"] in ("PodDisruptionBudget", "NetworkPolicy"):
        selector = spec.get("selector") or spec.get("podSelector")
        if not any(_matches(selector, pod) for pod in pods):
            yield "no pod has the labels that it selects"
    if one["kind"] == "StatefulSet":
        services = [each for each in objects if each["kind"] == "Service"]
        names = [each["metadata"]["name"] for each in services if each["spec"].get("clusterIP") == "None"]
        if spec["serviceName"] not in names:
            yield f"there is no headless service '{spec['serviceName']}'"


def _open(one: dict[str, Any]) -> Iterator[str]:
    for place, value in leaves(one):
        if place.rpartition(".")[2] in _OPEN and value is not False:
            yield f"{place} opens the machine"
    if one["kind"] == "Service" and one["spec"].get("type", "ClusterIP") != "ClusterIP":
        yield f"type {one['spec']['type']} is reached from outside"
    if one["kind"] == "Secret":
        yield "a secret does not lie in a file"


def _ports(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [port for container in pod["spec"]["containers"] for port in container.get("ports", ())]


def _pod(
    pod: dict[str, Any], one: dict[str, Any], objects: list[Any], told: Collection[str]
) -> Iterator[str]:
    spec = pod["spec"]
    if spec.get("automountServiceAccountToken") is not False:
        yield "its pods get a token of the cluster"
    volumes = {volume["name"] for volume in spec.get("volumes", ())}
    volumes |= {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", ())}
    maps = {each["metadata"]["name"] for each in objects if each["kind"] == "ConfigMap"}
    for volume in spec.get("volumes", ()):
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim is not None and claim not in told:
            yield f"the page does not tell of the claim '{claim}'"
        if "configMap" in volume and volume["configMap"]["name"] not in maps:
            yield f"there is no ConfigMap '{volume['configMap']['name']}'"
    for container in spec["containers"]:
        inner = _container(container, one["kind"], volumes, told)
        yield from (f"{container['name']}: {fault}" for fault in inner)


def _container(
    container: dict[str, Any], kind: str, volumes: set[str], told: Collection[str]
) -> Iterator[str]:
    if loose_tag(container["image"]):
        yield f"image {container['image']} has no tag that stays"
    for mount in container.get("volumeMounts", ()):
        if mount["name"] not in volumes:
            yield f"there is no volume '{mount['name']}'"
    ports = {port.get("name") for port in container.get("ports", ())}
    for port in container.get("ports", ()):
        if not 0 < port["containerPort"] < 65536:
            yield f"port {port['containerPort']} is none"
    if kind in LONG_RUNNING and ports:
        for probe in ("readinessProbe", "livenessProbe"):
            asked = container.get(probe, {}).get("httpGet", {}).get("port")
            if asked not in ports:
                yield f"{probe} asks no port of its own"
    if "memory" not in container.get("resources", {}).get("limits", {}):
        yield "no limit of memory"
    if container.get("securityContext", {}).get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    for variable in container.get("env", ()):
        yield from _variable(variable, told)


def _variable(variable: dict[str, Any], told: Collection[str]) -> Iterator[str]:
    name, asked = variable["name"], variable.get("valueFrom", {}).get("secretKeyRef")
    if asks_for_a_secret(name) and asked is None:
        yield f"{name} is written out"
    if asked is not None and not {asked["name"], asked["key"]} <= set(told):
        yield f"the page does not tell of {asked['name']}: {asked['key']}"
    if "value" in variable and not isinstance(variable["value"], str):
        yield f"{name}: {variable['value']!r} is no text"


def _addresses(objects: list[Any]) -> Iterator[str]:
    """Hosts of the cluster that a text names and no object gives."""
    known: set[tuple[str, int]] = {("127.0.0.1", 30000)}  # the router, on its pod's own loopback
    for one in objects:
        if one["kind"] == "Service":
            name, ports = one["metadata"]["name"], [port["port"] for port in one["spec"]["ports"]]
            known |= {(name, port) for port in ports if one["spec"].get("clusterIP") != "None"}
            for each in objects:
                if each["kind"] == "StatefulSet" and each["spec"]["serviceName"] == name:
                    pods = [f"{each['metadata']['name']}-{n}.{name}" for n in range(each["spec"]["replicas"])]
                    known |= {(pod, port) for pod in pods for port in ports}
    for place, text in leaves(objects):
        for host, port in _HOST.findall(text) if isinstance(text, str) else ():
            if (host, int(port)) not in known:
                yield f"{place}: nothing here is called {host}:{port}"
