"""What the tests of crashes share: the world and the undisturbed run that every disturbed one must equal."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from once import EmptyDatabase, Shelf, Worlds

from schemas.world import soak_world

SOAK = Path(__file__).with_name("soak.py")


@pytest.fixture(scope="session")
def undisturbed(shelf: Shelf, worlds: Worlds, empty_database: EmptyDatabase) -> Callable[[Path], Path]:
    """Copy the world, the undisturbed run and an empty Prefect database to a folder; made for the first who asks."""

    def copy(folder: Path) -> Path:
        with shelf.held("undisturbed") as made:
            if not (made / "reference.json").exists():
                shutil.rmtree(made, ignore_errors=True)
                worlds.copy(soak_world(), made / "world")
                empty_database.copy(made / "prefect")
                places = ("--narrow", "--work", str(made), "--log", str(made / "log.jsonl"))
                subprocess.run([sys.executable, str(SOAK), *places, "--kills", "0"], check=True)
                (made / "log.jsonl").unlink(missing_ok=True)
        return Path(shutil.copytree(made, folder, dirs_exist_ok=True))

    return copy
