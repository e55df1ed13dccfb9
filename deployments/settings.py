"""Settings of Prefect and where it keeps files. The only file that uses the environment; imports no Prefect.

`prepare_prefect` must be called before the first import of Prefect, which reads its settings at that moment.
"""

import base64
import os
from pathlib import Path

from schemas.places import holds_login
from trajpilot_core.errors import InputError, StoreIOError
from trajpilot_core.store.locations import resolved
from trajpilot_core.vlm.clients import VARIABLE, hold_api_key

STARTUP_TIMEOUT_S = 120
"""A first start on a small machine can take more than 20 s."""
EMBEDDED = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    "PREFECT_SERVER_UI_API_URL": "/api",
    "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
}
"""Settings of the server that a run starts for itself. The newer UI contacts an external host; the older does not."""
ALWAYS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_LEVEL": "INFO",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "trajpilot",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL": "WARNING",
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "WARNING",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    "PREFECT_LOCAL_STORAGE_PATH": "/dev/null/no-result-is-kept",
    "PREFECT_PLUGINS_ENABLED": "0",
}
"""Prefect writes the exception of a failed flow to its storage whatever the flow's settings; here that storage does not
exist. Its log lines on the start and the final state of runs are hidden: the UI shows both, and ours contain more."""
CHECKOUT = Path(__file__).parents[1]
CPU_POOL, GPU_POOL = "trajpilot-cpu", "trajpilot-gpu"
POOLS = (CPU_POOL, GPU_POOL)
"""Work pools, as deployments/prefect.yaml names them."""
WHOLE = "full-pipeline"
"""The flow that runs every stage of its recipe."""
SILENT_S = 120
"""A run without a heartbeat for this long is marked as crashed (by an automation of `trajpilot deploy`)."""
UNSTARTED_S = 240
"""A run that a worker claimed but did not start within this time is marked as crashed (by another automation)."""
PLACE = {
    "data_root": "TRAJPILOT_DATA",
    "root": "TRAJPILOT_ROOT",
    "recipe": "TRAJPILOT_RECIPE",
    "group_video_s": "TRAJPILOT_GROUP_VIDEO_S",
}
"""Fields of RunOptions whose defaults a deployment reads from its environment."""
OF_ANOTHER_SERVER = (
    "PREFECT_API_KEY",
    "PREFECT_API_AUTH_STRING",
    "PREFECT_SERVER_API_AUTH_STRING",
    "PREFECT_API_DATABASE_",
    "PREFECT_SERVER_DATABASE_",
)
"""Variables set for a server of the user's own; the server that a run starts has its own login and database."""


def prepare_prefect(root: Path) -> tuple[Path, str | None]:
    """Point Prefect and matplotlib at `root` before their first import; the user's settings take precedence.

    Returns Prefect's folder below the root, and the URL of the user's own server; None: the run starts its own.

    Raises StoreIOError: the root cannot be written.
    """
    home = resolved(root) / "prefect"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreIOError(f"cannot write to {home}: {error.strerror}; fix it or choose another --root") from error
    server = server_of_deployments()
    prefect_without_noise()
    os.environ.setdefault("MPLCONFIGDIR", str(home / "matplotlib"))  # its list of fonts; a run writes below root only
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")  # its lines are shown in its UI
    if server is None:
        os.environ["PREFECT_HOME"] = str(home)
        os.environ["PREFECT_PROFILES_PATH"] = str(home / "profiles.toml")
        os.environ.update(EMBEDDED)
        for name in [name for name in os.environ if name.startswith(OF_ANOTHER_SERVER)]:
            del os.environ[name]
    return home, server


def deployed_place() -> dict[str, str]:
    """Return data, root and recipe of a deployment from its environment."""
    return {field: os.environ[name] for field, name in PLACE.items() if os.environ.get(name)}


def server_of_deployments() -> str | None:
    """Return the URL of the user's Prefect server, if any. Raises InputError: its login would appear in every log."""
    url = os.environ.get("PREFECT_API_URL") or None
    if url is not None and holds_login(url):
        raise InputError(
            "PREFECT_API_URL contains a login (not repeated here); remove it, "
            "and set PREFECT_API_AUTH_STRING=name:password"
        )
    return url


def server_login() -> str | None:
    """Return the `Authorization` header of requests to the user's Prefect server; None if none is needed.

    Raises InputError: a login and an API key are both set: parts of Prefect send one, parts the other.
    """
    login, key = os.environ.get("PREFECT_API_AUTH_STRING"), os.environ.get("PREFECT_API_KEY")
    if login and key and server_of_deployments():
        raise InputError("PREFECT_API_AUTH_STRING and PREFECT_API_KEY are both set; unset the one that is not for it")
    return authorization(login, key)


def authorization(login: str | None, key: str | None) -> str | None:
    """Return the `Authorization` header of a login `user:password`, else of an API key of Prefect Cloud."""
    if login:
        return f"Basic {base64.b64encode(login.encode()).decode()}"
    return f"Bearer {key}" if key else None


def hand_over_api_key() -> None:
    """Pass the API key of model servers to the code that uses them, which does not read the environment."""
    hold_api_key(os.environ.get(VARIABLE))


def prefect_without_noise() -> None:
    """Apply the settings common to every use of Prefect; call it before Prefect is first imported."""
    for name, value in ALWAYS.items():
        os.environ.setdefault(name, value)


def deploying_environment(place: dict[str, str]) -> dict[str, str]:
    """Return the environment in which Prefect reads deployments/prefect.yaml; `place`: values for keys of PLACE."""
    stated = {name: place.get(field, "") for field, name in PLACE.items()}
    return {**os.environ, **ALWAYS, **stated, "PWD": str(CHECKOUT)}


def one_thread_per_process() -> None:
    """Limit numeric libraries to one thread unless the user set a number: stages run processes in parallel."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ.setdefault(name, "1")


def server_environment(home: Path, login: str) -> dict[str, str]:
    """Return the environment of `prefect server start` on the database of a run, protected by `login`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_ANOTHER_SERVER)}
    stated = {"PREFECT_HOME": str(home), "PREFECT_SERVER_API_AUTH_STRING": login}
    return {**kept, **ALWAYS, **EMBEDDED, **stated}


def ui_environment(home: Path, login: str) -> dict[str, str]:
    """Return the environment of a server with a UI, whose pages are in a folder below `home`."""
    return {**server_environment(home, login), "PREFECT_UI_STATIC_DIRECTORY": str(home / "ui")}


def wanted_login() -> str | None:
    """Return the login that the user chose for servers started here (`user:password`); None: any."""
    return os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or None
