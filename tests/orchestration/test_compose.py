"""docker-compose.yml against the Compose Specification's schema and our rules."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import CHECKOUT
from jsonschema import Draft7Validator
from stack_processes import FILE, MissingVariable, as_started, as_written

Service = dict[str, Any]
SECRET = re.compile(r"PASSWORD|AUTH_STRING|SECRET|TOKEN|API_KEY")
REQUIRED = re.compile(r"\$\{\w+:\?.{10,}\}")
PINNED = re.compile(r":\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?$")
OFF = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
GIVEN = {"TRAJPILOT_LOGIN": "a:b", "TRAJPILOT_DATABASE_PASSWORD": "c", "TRAJPILOT_DATA_FOLDER": "/srv/data"}
SCHEMA = json.loads((Path(__file__).parent / "compose-spec" / "compose-spec.json").read_text())


def serves(service: Service) -> bool:
    return "server" in service.get("command", [])


def has_default_password(name: str, service: Service, environment: dict[str, str]) -> bool:
    """Whether a secret has a value in the file, or starting without it fails without a message."""
    return any(SECRET.search(key) and not REQUIRED.fullmatch(str(value)) for key, value in environment.items())


def needs_no_login(name: str, service: Service, environment: dict[str, str]) -> bool:
    """Whether the API asks for no login, or what talks to it has none."""
    if serves(service) and "start" in service["command"]:
        return "PREFECT_SERVER_API_AUTH_STRING" not in environment
    return "PREFECT_API_URL" in environment and "PREFECT_API_AUTH_STRING" not in environment


def is_published(name: str, service: Service, environment: dict[str, str]) -> bool:
    """Whether it is reached beyond 127.0.0.1."""
    ports = all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))
    return not ports or service.get("network_mode") == "host"


def has_another_image(name: str, service: Service, environment: dict[str, str]) -> bool:
    """Whether it names no version, or, but for the database, another image than our Dockerfile builds."""
    is_ours = (service.get("build"), service["image"].split(":")[0]) == (".", "trajpilot")
    return not PINNED.search(service["image"]) or not (is_ours or name == "database")


def lacks_a_health_check(name: str, service: Service, environment: dict[str, str]) -> bool:
    return service.get("restart") != "no" and not service.get("healthcheck", {}).get("test")


def may_be_root(name: str, service: Service, environment: dict[str, str]) -> bool:
    """Whether it is root, keeps a capability, or may gain one."""
    is_root = re.match(r"(0|root|)(:|$)", str(service.get("user", "")))
    keeps = service.get("privileged") or service.get("cap_add") or service.get("cap_drop") != ["ALL"]
    return bool(is_root or keeps or "no-new-privileges:true" not in service.get("security_opt", []))


def has_wrong_volumes(name: str, service: Service, environment: dict[str, str]) -> bool:
    """Whether it may write to the downloads, is a worker without data or artifacts, or has the engine's socket."""
    volumes = [str(volume) for volume in service.get("volumes", [])]
    places = {v.rsplit(":", 2)[-2 if v.endswith((":ro", ":rw")) else -1]: v for v in volumes}
    lacks = "worker" in service.get("command", []) and not {"/data", "/artifacts"} <= set(places)
    return lacks or not places.get("/data", ":ro").endswith(":ro") or any("docker.sock" in v for v in volumes)


def reports_outside(name: str, service: Service, environment: dict[str, str]) -> bool:
    """Whether Prefect reports to somebody, or serves the newer UI, which calls an outside host."""
    wanted = (OFF if name != "database" else {}) | (
        {"PREFECT_SERVER_UI_V2_ENABLED": "false"} if serves(service) else {}
    )
    return not environment.items() >= wanted.items()


FAULTS = (has_default_password, needs_no_login, is_published, has_another_image, lacks_a_health_check, may_be_root)
FAULTS += (has_wrong_volumes, reports_outside)
Change = Callable[[dict[str, Any]], Any]


def faults_of(compose: dict[str, Any]) -> dict[str, list[str]]:
    """Fault -> the services that have it."""
    services = compose["services"].items()
    found = {one.__name__: [n for n, s in services if one(n, s, s.get("environment", {}))] for one in FAULTS}
    return {name: where for name, where in found.items() if where}


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
    ("has_default_password", set_environment("database", "POSTGRES_PASSWORD", "postgres")),
    ("has_default_password", set_environment("database", "POSTGRES_PASSWORD", "${X:-postgres}")),
    ("has_default_password", set_environment("server", "PREFECT_SERVER_API_AUTH_STRING", "${X}")),
    ("needs_no_login", set_environment("server", "PREFECT_SERVER_API_AUTH_STRING", None)),
    ("needs_no_login", set_environment("worker-gpu", "PREFECT_API_AUTH_STRING", None)),
    ("is_published", set_key("server", "ports", ["4200:4200"])),
    ("is_published", set_key("database", "ports", ["0.0.0.0:5432:5432"])),
    ("is_published", set_key("worker-cpu", "network_mode", "host")),
    ("has_another_image", set_key("database", "image", "postgres:latest")),
    ("has_another_image", set_key("database", "image", "postgres")),
    ("has_another_image", set_key("database", "image", "postgres:17")),
    ("has_another_image", set_key("server", "image", "prefecthq/prefect:3.8.8")),
    ("lacks_a_health_check", set_key("worker-cpu", "healthcheck", {})),
    ("may_be_root", set_key("server", "user", "0:0")),
    ("may_be_root", set_key("server", "user", "root")),
    ("may_be_root", set_key("server", "privileged", True)),
    ("may_be_root", set_key("server", "cap_drop", [])),
    ("may_be_root", set_key("server", "security_opt", [])),
    ("has_wrong_volumes", set_key("worker-cpu", "volumes", ["/srv/data:/data", "artifacts:/artifacts"])),
    ("has_wrong_volumes", set_key("worker-cpu", "volumes", ["/srv/data:/data:ro"])),
    ("has_wrong_volumes", set_key("server", "volumes", ["/var/run/docker.sock:/var/run/docker.sock"])),
    ("reports_outside", set_environment("worker-gpu", "DO_NOT_TRACK", None)),
    ("reports_outside", set_environment("server", "PREFECT_SERVER_ANALYTICS_ENABLED", "true")),
    ("reports_outside", set_environment("server", "PREFECT_SERVER_UI_V2_ENABLED", None)),
)


def test_the_file_has_no_fault_and_each_is_seen_where_it_is_planted() -> None:
    assert faults_of(as_written()) == {}
    assert {fault for fault, _ in PLANTED} == {fault.__name__ for fault in FAULTS}
    for number, (fault, change) in enumerate(PLANTED):
        compose = as_written()
        change(compose)
        assert list(faults_of(compose)) == [fault], number


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
