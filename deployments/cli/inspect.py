"""Commands that only look: `status`, `plan`, `verify`. They import neither torch nor Prefect."""

from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from deployments.cli.options import Data, Force, From, Only, Recipe, Root, Set, configure, run_options
from schemas.config import PipelineConfig, RunOptions


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(status)
    app.command()(plan)
    app.command()(verify)
