"""Our own rules for docker-compose.yml. Each returns what it finds wrong, one line each."""

import re
from collections.abc import Iterator
from typing import Any

Compose = dict[str, Any]
SECRET = re.compile(r"PASSWORD|AUTH_STRING|SECRET|TOKEN|API_KEY")
REQUIRED = re.compile(r"\$\{\w+:\?.{10,}\}")
PINNED = re.compile(r":\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?$")
OFF = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}


def services(compose: Compose) -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:
    for name, service in compose["services"].items():
        yield name, service, service.get("environment", {})


def no_default_passwords(compose: Compose) -> Iterator[str]:
    """A secret has no value in the file, and starting without it fails with a message."""
    for name, _, environment in services(compose):
        for key, value in environment.items():
            if SECRET.search(key) and not REQUIRED.fullmatch(str(value)):
                yield f"{name}: {key} has a default or no message for when it is missing"


def login_is_required(compose: Compose) -> Iterator[str]:
    """The API asks for a login, and everything that talks to it has one."""
    for name, service, environment in services(compose):
        if "start" in service.get("command", []) and "server" in service["command"]:
            if "PREFECT_SERVER_API_AUTH_STRING" not in environment:
                yield f"{name}: the API asks for no login"
        elif "PREFECT_API_URL" in environment and "PREFECT_API_AUTH_STRING" not in environment:
            yield f"{name}: talks to the API without a login"


def published_on_loopback_only(compose: Compose) -> Iterator[str]:
    for name, service, _ in services(compose):
        for port in service.get("ports", []):
            if not str(port).startswith("127.0.0.1:"):
                yield f"{name}: port {port} is published beyond 127.0.0.1"
        if service.get("network_mode") == "host":
            yield f"{name}: is on the network of the host"


def images_are_pinned(compose: Compose) -> Iterator[str]:
    for name, service, _ in services(compose):
        if not PINNED.search(service.get("image", "")):
            yield f"{name}: image {service.get('image')} names no version"


def one_image_of_ours(compose: Compose) -> Iterator[str]:
    """Everything but the database runs the image that our Dockerfile builds."""
    built = {(s.get("image"), str(s.get("build"))) for n, s, _ in services(compose) if n != "database"}
    if len(built) != 1 or not all(build == "." for _, build in built):
        yield f"services run several images, or one that is not built here: {sorted(map(str, built))}"


def health_is_checked(compose: Compose) -> Iterator[str]:
    for name, service, _ in services(compose):
        if service.get("restart") != "no" and not service.get("healthcheck", {}).get("test"):
            yield f"{name}: has no health check"


def nobody_is_root(compose: Compose) -> Iterator[str]:
    """No root, no capability, no way to gain one."""
    for name, service, _ in services(compose):
        if re.match(r"(0|root|)(:|$)", str(service.get("user", ""))):
            yield f"{name}: runs as root"
        if service.get("privileged") or service.get("cap_add") or service.get("cap_drop") != ["ALL"]:
            yield f"{name}: keeps capabilities"
        if "no-new-privileges:true" not in service.get("security_opt", []):
            yield f"{name}: may gain privileges"


def data_is_read_only(compose: Compose) -> Iterator[str]:
    """Downloads are mounted read-only; workers have both data and artifacts; nobody has the engine's socket."""
    for name, service, _ in services(compose):
        volumes = map(str, service.get("volumes", []))
        places = {v.rsplit(":", 2)[-2 if v.endswith((":ro", ":rw")) else -1]: v for v in volumes}
        if "/data" in places and not places["/data"].endswith(":ro"):
            yield f"{name}: may write to the downloads"
        if "worker" in service.get("command", []) and not {"/data", "/artifacts"} <= set(places):
            yield f"{name}: lacks the volume of data or of artifacts"
        if any("docker.sock" in v for v in places.values()):
            yield f"{name}: holds the engine's socket"


def telemetry_is_off(compose: Compose) -> Iterator[str]:
    """Prefect reports to nobody; the newer UI, which calls an outside host, is not served."""
    for name, service, environment in services(compose):
        wanted = dict(OFF) if name != "database" else {}
        if "server" in service.get("command", []):
            wanted["PREFECT_SERVER_UI_V2_ENABLED"] = "false"
        for key, value in wanted.items():
            if environment.get(key) != value:
                yield f"{name}: {key} is not {value}"


RULES = (
    no_default_passwords,
    login_is_required,
    published_on_loopback_only,
    images_are_pinned,
    one_image_of_ours,
    health_is_checked,
    nobody_is_root,
    data_is_read_only,
    telemetry_is_off,
)
