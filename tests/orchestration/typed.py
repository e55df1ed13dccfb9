"""The `trajpilot` command as a user types it, called in this process: an import of all of it takes seconds."""

import contextlib
import io
import os
import sys

import pytest

from deployments.cli import main as command_line


def typed(*arguments: str, **environment: str) -> tuple[int, str]:
    """Call the command; return its status and what it printed, without line breaks. Anything but an exit is raised."""
    said, status = io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        patch.setattr(sys, "argv", ["trajpilot", *arguments])
        patch.setattr(os, "environ", {**os.environ, **environment})  # commands prepare it for Prefect
        try:
            command_line.main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0
    return status, " ".join(said.getvalue().replace("│", " ").split())
