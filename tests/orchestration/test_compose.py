"""docker-compose.yml and the jobs of workers in containers against the Compose Specification's schema and our rules."""

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import CHECKOUT
from jsonschema import Draft7Validator
from stack_processes import FILE, MissingVariable, as_started, as_written

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


Change = Callable[[dict[str, Any]], Any]
GIVEN = {"TRAJPILOT_LOGIN": "a:b", "TRAJPILOT_DATABASE_PASSWORD": "c", "TRAJPILOT_DATA_FOLDER": "/srv/data"}
SCHEMA = json.loads((Path(__file__).parent / "compose-spec" / "compose-spec.json").read_text())


def broken_rules(compose: dict[str, Any]) -> set[str]:
    return {rule.__name__ for rule in RULES if list(rule(compose))}


def set_environment(service: str, key: str, value: str | None) -> Change:
    def change(compose: dict[str, Any]) -> None:
        environment = compose["services"][service]["environment"]
        environment.pop(key, None) if value is None else environment.update({key: value})

    return change


def set_key(service: str, key: str, value: Any) -> Change:
    return lambda compose: compose["services"][service].update({key: value})


def test_the_file_keeps_the_compose_specification_which_sees_a_planted_fault() -> None:
    for compose in (as_written(), as_started(GIVEN)):
        assert [error.message for error in Draft7Validator(SCHEMA).iter_errors(compose)] == []
    wrong = (("server", "port", ["4200"]), ("server", "healthcheck", "curl"), ("database", "cap_drop", "ALL"))
    for change in (*(set_key(*one) for one in wrong), lambda compose: compose.update(service={})):
        compose = as_written()
        change(compose)
        assert list(Draft7Validator(SCHEMA).iter_errors(compose))


PLANTED = (
    ("no_default_passwords", set_environment("database", "POSTGRES_PASSWORD", "postgres")),
    ("no_default_passwords", set_environment("database", "POSTGRES_PASSWORD", "${X:-postgres}")),
    ("no_default_passwords", set_environment("server", "PREFECT_SERVER_API_AUTH_STRING", "${X}")),
    ("login_is_required", set_environment("server", "PREFECT_SERVER_API_AUTH_STRING", None)),
    ("login_is_required", set_environment("worker-gpu", "PREFECT_API_AUTH_STRING", None)),
    ("published_on_loopback_only", set_key("server", "ports", ["4200:4200"])),
    ("published_on_loopback_only", set_key("database", "ports", ["0.0.0.0:5432:5432"])),
    ("published_on_loopback_only", set_key("worker-cpu", "network_mode", "host")),
    ("images_are_pinned", set_key("database", "image", "postgres:latest")),
    ("images_are_pinned", set_key("database", "image", "postgres")),
    ("images_are_pinned", set_key("database", "image", "postgres:17")),
    ("one_image_of_ours", set_key("server", "image", "prefecthq/prefect:3.8.8")),
    ("health_is_checked", set_key("worker-cpu", "healthcheck", {})),
    ("nobody_is_root", set_key("server", "user", "0:0")),
    ("nobody_is_root", set_key("server", "user", "root")),
    ("nobody_is_root", set_key("server", "privileged", True)),
    ("nobody_is_root", set_key("server", "cap_drop", [])),
    ("nobody_is_root", set_key("server", "security_opt", [])),
    ("data_is_read_only", set_key("worker-cpu", "volumes", ["/srv/data:/data", "artifacts:/artifacts"])),
    ("data_is_read_only", set_key("worker-cpu", "volumes", ["/srv/data:/data:ro"])),
    ("data_is_read_only", set_key("server", "volumes", ["/var/run/docker.sock:/var/run/docker.sock"])),
    ("telemetry_is_off", set_environment("worker-gpu", "DO_NOT_TRACK", None)),
    ("telemetry_is_off", set_environment("server", "PREFECT_SERVER_ANALYTICS_ENABLED", "true")),
    ("telemetry_is_off", set_environment("server", "PREFECT_SERVER_UI_V2_ENABLED", None)),
)


def test_the_file_keeps_our_rules_and_each_sees_its_planted_faults() -> None:
    assert [line for rule in RULES for line in rule(as_written())] == []
    assert {rule for rule, _ in PLANTED} == {rule.__name__ for rule in RULES}
    for number, (rule, change) in enumerate(PLANTED):
        compose = copy.deepcopy(as_written())
        change(compose)
        assert rule in broken_rules(compose), f"{number}: {rule}"


def test_nothing_starts_while_a_password_or_the_data_folder_is_missing_and_the_example_has_neither() -> None:
    for name in GIVEN:
        with pytest.raises(MissingVariable, match=rf"{name}.*set {name}"):
            as_started({**GIVEN, name: ""})
    lines = (CHECKOUT / ".env.example").read_text().splitlines()
    named = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    used = set(re.findall(r"\$\{(\w+)", FILE.read_text()))
    assert used <= set(named)
    assert {name: named[name] for name in GIVEN} == dict.fromkeys(GIVEN, "")


def test_workers_and_server_have_the_settings_of_the_embedded_ones() -> None:
    from deployments.settings import ALWAYS, EMBEDDED

    compose = as_written()["services"]
    for key, value in ALWAYS.items():
        if key != "PREFECT_LOGGING_LEVEL":
            assert compose["worker-cpu"]["environment"][key] == value, key
    for key in ("PREFECT_SERVER_ANALYTICS_ENABLED", "PREFECT_SERVER_UI_V2_ENABLED", "PREFECT_SERVER_UI_API_URL"):
        assert compose["server"]["environment"][key] == EMBEDDED[key]


def test_every_pool_has_a_worker_and_the_gpu_pool_has_one_with_and_one_without_a_gpu() -> None:
    from deployments.settings import POOLS

    compose = as_written()["services"]
    commands = {name: service.get("command", []) for name, service in compose.items()}
    pools = {name: words[words.index("--pool") + 1] for name, words in commands.items() if "--pool" in words}
    assert set(pools.values()) == set(POOLS)
    assert pools["worker-gpu"] == pools["worker-no-gpu"] == "trajpilot-gpu"
    assert "deploy" in compose["worker-gpu"]
    assert "deploy" not in compose["worker-no-gpu"]


def test_the_dockerfile_pins_its_base_builds_the_lock_and_ends_without_root() -> None:
    lines = (CHECKOUT / "Dockerfile").read_text().splitlines()
    (base,) = [line for line in lines if line.startswith("FROM")]
    assert re.fullmatch(r"FROM python:3\.11\.\d+-slim-bookworm(@sha256:[0-9a-f]{64})?", base)
    assert "RUN pip install --requirement requirements.lock" in lines
    user = max(k for k, line in enumerate(lines) if line.startswith("USER"))
    assert lines[user] == f"USER {as_written()['services']['server']['user']}"
    assert not [line for line in lines[user:] if line.startswith(("RUN", "COPY", "ADD"))]
    assert not [line for line in lines if line.startswith(("ENV", "ARG")) and SECRET.search(line)]


def test_what_the_dockerfile_copies_is_let_through_and_nothing_else() -> None:
    copies = re.findall(r"^COPY (.*) \S+$", (CHECKOUT / "Dockerfile").read_text(), re.MULTILINE)
    copied = {part for line in copies for part in line.split()}
    let_through = {line[1:] for line in (CHECKOUT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == let_through
    assert all((CHECKOUT / name).exists() for name in copied)
    packages = sorted(name for name in copied if (CHECKOUT / name).is_dir())
    assert packages == ["deployments", "flows", "schemas", "tasks", "trajpilot_core"]
