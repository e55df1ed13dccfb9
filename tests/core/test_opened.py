"""A run is opened from Python, and printed commands work where pasted."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import CHECKOUT

import trajpilot_core as tp
from trajpilot_core import errors, opened
from trajpilot_core.errors import InputError, command, shown
from trajpilot_core.stages import EVERY_STAGE


def test_outputs_of_every_stage_are_looked_for_and_an_empty_root_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(opened, "current_manifests", lambda folder, stages: asked.extend(stages) or {})
    with pytest.raises(InputError, match="holds no output of any stage"):
        tp.open(tmp_path)
    assert asked == list(EVERY_STAGE)


def test_a_printed_command_names_its_program_and_runs_without_a_path(tmp_path: Path) -> None:
    line = command("status", "--root", str(tmp_path / "a b"))
    program, *words = shlex.split(line)
    assert words == ["status", "--root", str(tmp_path / "a b")]
    assert Path(CHECKOUT, program).exists()
    done = subprocess.run(
        ["/bin/sh", "-c", line], cwd=CHECKOUT, env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=False
    )
    assert b"no run below" in done.stderr


def test_in_the_checkout_places_are_short_and_elsewhere_they_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "checkout"
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/trajpilot").touch()
    monkeypatch.setattr(errors, "CHECKOUT", checkout)
    monkeypatch.setattr(sys, "executable", str(checkout / ".venv/bin/python"))
    monkeypatch.chdir(checkout)
    assert command("ui", "--root", shown(checkout / "runs/demo")) == ".venv/bin/trajpilot ui --root runs/demo"
    assert shown("runs") == "runs"
    assert shown("/elsewhere") == "/elsewhere"
    assert shown("s3://bucket/x") == "s3://bucket/x"
    monkeypatch.chdir(tmp_path)
    whole = f"{checkout}/.venv/bin/trajpilot ui --root {checkout}/runs"
    assert command("ui", "--root", shown(checkout / "runs")) == whole
    monkeypatch.setattr(sys, "executable", "/nowhere/bin/python")
    assert command("deployment", "ls", program="prefect") == "prefect deployment ls", "left to the path"
