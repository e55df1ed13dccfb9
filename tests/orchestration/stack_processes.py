"""The services of docker-compose.yml as plain processes: the same commands, the same environment, the same order.

Nothing of them is repeated here: the file is read as Compose reads it. What a container would change is said in
`Ground`: names of hosts, ports, folders.
"""

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from checkout import CHECKOUT

FILE = CHECKOUT / "docker-compose.yml"
VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?:(?P<kind>:-|:\?)(?P<rest>[^}]*))?\}")
STARTED = ("database", "server", "deployer", "worker-cpu", "worker-no-gpu")
PATIENCE = float(os.environ.get("TRAJPILOT_STACK_PATIENCE", "1"))
"""Multiplies every limit; for machines that are busy with something else."""
HEALTHY_S = 300.0 * PATIENCE
END_S = 30.0


class MissingVariable(Exception):
    """A variable that the file requires is empty; the message is the file's own."""


def filled_in(text: str, variables: Mapping[str, str]) -> str:
    """Replace `${NAME}`, `${NAME:-default}` and `${NAME:?message}` as Compose does."""

    def value(found: re.Match[str]) -> str:
        if found["name"] is None:
            return "$"
        given = variables.get(found["name"], "")
        if given or found["kind"] is None:
            return given
        if found["kind"] == ":?":
            raise MissingVariable(f"required variable {found['name']} is missing a value: {found['rest']}")
        return found["rest"]

    return VARIABLE.sub(value, text)


def fill(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return filled_in(value, variables)
    if isinstance(value, dict):
        return {key: fill(below, variables) for key, below in value.items()}
    return [fill(below, variables) for below in value] if isinstance(value, list) else value


def as_written() -> dict[str, Any]:
    """Return the file with anchors merged and variables as they are written."""
    return dict(yaml.safe_load(FILE.read_text()))


def as_started(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the file as Compose starts it.

    Raises:
        MissingVariable: a required variable is empty.
    """
    return dict(fill(as_written(), variables))


def artifact_bytes(root: Path) -> dict[str, bytes]:
    """Every artifact's bytes by its path; run records are left out."""
    files = [path for path in (root / "artifacts").rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in files if path.name != "run_record.json"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: Callable[[], bool], limit_s: float = 60.0 * PATIENCE) -> None:
    limit = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < limit, f"not so within {limit_s} s"
        time.sleep(0.1)


def end(process: subprocess.Popen[Any], first: int = signal.SIGTERM) -> None:
    """End a process and what it started, by the id of its group; also what is left of the group without it."""
    for number, limit_s in ((first, END_S), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        limit = time.monotonic() + limit_s
        while group_lives(process) and time.monotonic() < limit:
            time.sleep(0.1)
    process.wait(timeout=END_S)


def group_lives(process: subprocess.Popen[Any]) -> bool:
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def processes_of(mark: Path) -> dict[int, str]:
    """Process id -> command line of every living process whose environment or arguments name the folder `mark`."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes()
            if line and str(mark).encode() in (place / "environ").read_bytes() + line:
                found[int(place.name)] = line.replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    found.pop(os.getpid(), None)
    return found


def kill(pids: Iterable[int]) -> None:
    """Kill by id; what a service started outside its own group is found by a folder of this test alone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    below: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (place / "stat").read_text().rpartition(")")[2].split()[1]
            below.setdefault(int(parent), []).append(int(place.name))
    found = list(below.get(pid, []))
    for child in found:
        found += below.get(child, [])
    return found


def postgres_programs() -> Path:
    """Folder of Debian's newest PostgreSQL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[-3]))
    assert found, "PostgreSQL is not installed: apt-get install postgresql"
    return found[-1].parent


@dataclass
class Ground:
    """What stands in for the containers' network and volumes: loopback ports and folders below one temporary folder."""

    folder: Path
    port: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in STARTED})
    login: str = field(default_factory=lambda: f"stack:{secrets.token_hex(12)}")
    password: str = field(default_factory=lambda: secrets.token_hex(12))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port['server']}"

    def variables(self) -> dict[str, str]:
        """What a user would write to .env."""
        return {
            "TRAJPILOT_LOGIN": self.login,
            "TRAJPILOT_DATABASE_PASSWORD": self.password,
            "TRAJPILOT_DATA_FOLDER": str(self.folder / "data"),
            "TRAJPILOT_RECIPE": "soak",
        }

    def replaced(self, service: str) -> dict[str, tuple[str, str]]:
        """Variable -> what it is in a container, and what stands for it here."""
        return {
            "PREFECT_API_URL": ("http://server:4200/api", f"{self.url}/api"),
            "PREFECT_SERVER_DATABASE_HOST": ("database", "127.0.0.1"),
            "PREFECT_SERVER_DATABASE_PORT": ("5432", str(self.port["database"])),
            "PREFECT_WORKER_WEBSERVER_PORT": ("8080", str(self.port[service])),
            "TRAJPILOT_DATA": ("/data", str(self.folder / "data")),
            "TRAJPILOT_ROOT": ("/artifacts", str(self.folder / "artifacts")),
        }

    def environment(self, service: str, declared: dict[str, str]) -> dict[str, str]:
        stated = dict(declared)
        for name, (container, here) in self.replaced(service).items():
            if name in stated:
                assert stated[name] == container, f"{service}: {name} is {stated[name]}, not {container}"
                stated[name] = here
        home = self.folder / "home" / service
        home.mkdir(parents=True, exist_ok=True)
        programs = [str(Path(sys.executable).parent), str(postgres_programs()), os.environ["PATH"]]
        kept = {name: os.environ[name] for name in ("PYTHONPATH", "LANG") if name in os.environ}
        return {**kept, "PATH": ":".join(programs), "HOME": str(home), "PGPORT": str(self.port["database"]), **stated}

    def arguments(self, service: str, command: list[str]) -> list[str]:
        """A command with the server's address in a container replaced by the one here."""
        if service != "server":
            return command
        port = str(self.port["server"])
        return [
            a.replace("0.0.0.0", "127.0.0.1").replace(":4200/", f":{port}/") if a != "4200" else port for a in command
        ]


class Stack:
    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.services: dict[str, Any] = as_started(ground.variables())["services"]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs = ground.folder / "logs"
        self.logs.mkdir()

    def environment(self, service: str) -> dict[str, str]:
        return self.ground.environment(service, self.services[service].get("environment", {}))

    def start_all(self) -> None:
        """Start the services, each when what it depends on is as it asks."""
        for name in STARTED:
            for other, wanted in self.services[name].get("depends_on", {}).items():
                if other in STARTED:
                    self.wait(other, wanted["condition"])
            self.start(name)
        for name in STARTED:
            if "healthcheck" in self.services[name]:
                self.wait(name, "service_healthy")

    def start(self, name: str) -> None:
        if name == "database":
            is_new = not (self.ground.folder / "database" / "cluster").exists()
            self.processes[name] = self.start_database()
            if is_new:
                self.wait(name, "service_healthy")
                self.postgres("createdb", "--username=trajpilot", self.services[name]["environment"]["POSTGRES_DB"])
            return
        command = self.ground.arguments(name, self.services[name]["command"])
        self.processes[name] = self.popen(name, command, self.environment(name))

    def popen(self, name: str, command: list[str], environment: dict[str, str], **more: Any) -> subprocess.Popen[bytes]:
        with (self.logs / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=CHECKOUT, env=environment, stdout=log, stderr=log, process_group=0, **more
            )

    def start_database(self) -> subprocess.Popen[bytes]:
        """Make a cluster as the image does, and start it, as the user postgres where we are root."""
        declared = self.services["database"]["environment"]
        place = self.ground.folder / "database"
        place.mkdir(exist_ok=True)
        secret = self.ground.folder / "database.password"
        secret.write_text(declared["POSTGRES_PASSWORD"])
        who: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
        if who:
            shutil.chown(place, "postgres", "postgres")
            shutil.chown(secret, "postgres", "postgres")
        environment = self.environment("database")
        cluster = place / "cluster"
        if not cluster.exists():
            init = ["initdb", *declared["POSTGRES_INITDB_ARGS"].split(), "--auth-local=scram-sha-256"]
            init += [f"--username={declared['POSTGRES_USER']}", f"--pwfile={secret}", "--pgdata", str(cluster)]
            subprocess.run(init, check=True, env=environment, cwd=place, stdout=subprocess.DEVNULL, **who)
        listen = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={place}"]
        command = ["postgres", "-D", str(cluster), "-p", str(self.ground.port["database"]), *listen]
        return self.popen("database", command, environment, **who)

    def postgres(self, program: str, *arguments: str) -> str:
        environment = {**self.environment("database"), "PGPASSWORD": self.ground.password, "PGHOST": "127.0.0.1"}
        done = subprocess.run([program, *arguments], env=environment, check=True, capture_output=True, text=True)
        return done.stdout

    def wait(self, name: str, condition: str) -> None:
        """Wait until a service is healthy by its own check, or has ended well."""
        limit = time.monotonic() + HEALTHY_S
        process = self.processes[name]
        while True:
            if condition == "service_completed_successfully" and process.poll() == 0:
                return
            if condition == "service_healthy" and self.is_healthy(name):
                return
            failed = process.poll() not in (None, 0) or (condition == "service_healthy" and process.poll() is not None)
            assert not failed, f"{name} ended:\n{self.tail(name)}"
            assert time.monotonic() < limit, f"{name} is not {condition} within {HEALTHY_S} s:\n{self.tail(name)}"
            time.sleep(1.0)

    def is_healthy(self, name: str) -> bool:
        kind, *command = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        command = self.ground.arguments(name, command)
        try:
            asked = subprocess.run(
                command, env=self.environment(name), capture_output=True, check=False, timeout=60 * PATIENCE
            )
        except subprocess.TimeoutExpired:
            return False
        return asked.returncode == 0

    def tail(self, name: str) -> str:
        return (self.logs / f"{name}.log").read_text(errors="replace")[-3000:]

    def end_all(self) -> None:
        """End every service in reverse order; the database by its fast way."""
        for name, process in reversed(self.processes.items()):
            end(process, signal.SIGINT if name == "database" else signal.SIGTERM)
        kill(processes_of(self.ground.folder))

    def kill(self, name: str) -> None:
        """Kill a service with all that it started, at once and without notice, as a crash of its container would."""
        process = self.processes[name]
        kill([process.pid, *descendants(process.pid)])
        kill(processes_of(self.ground.folder / "home" / name))
        process.wait(timeout=END_S)

    def revive(self) -> None:
        """Start again what has ended, as `restart: unless-stopped` would."""
        for name in [name for name, process in self.processes.items() if process.poll() is not None]:
            if self.services[name]["restart"] == "unless-stopped":
                self.start(name)

    def until_healthy(self) -> None:
        """Start again what ends until every service is healthy by its own check."""
        limit = time.monotonic() + HEALTHY_S
        checked = [name for name in self.processes if "healthcheck" in self.services[name]]
        while True:
            self.revive()
            if all(self.is_healthy(name) for name in checked):
                return
            assert time.monotonic() < limit, "\n".join(f"{name}:\n{self.tail(name)}" for name in checked)
            time.sleep(1.0)


def servers_over(root: Path) -> list[int]:
    """Process ids of the living Prefect servers over a root, or over one below it."""
    return [pid for pid, line in processes_of(root).items() if "prefect --no-prompt server start" in line]
