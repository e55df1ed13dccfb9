"""Command `convert`: files as their authors released them -> files that hold tensors only."""

from pathlib import Path
from typing import Annotated

import typer

converting = typer.Typer(help="Turn released files into files that hold tensors only.", no_args_is_help=True)
Source = Annotated[Path, typer.Argument(metavar="IN.pth", help="The checkpoint as it was downloaded.")]
Target = Annotated[
    Path, typer.Argument(metavar="OUT.safetensors", help="The file to write; its name begins with EgoVLPv2.")
]


def add_to(app: typer.Typer) -> None:
    """Register the command group."""
    app.add_typer(converting, name="convert")


@converting.callback()
def group() -> None:
    """Keep the group a group while it has one command."""


@converting.command()
def egovlpv2(source: Source, target: Target) -> None:
    """Write the text tower and the projection of EgoVLPv2 as safetensors; nothing in the pickled file is run."""
    from trajpilot_core.encoders.text.egovlp import convert

    about = convert(source, target)
    size_mb = target.stat().st_size / 1e6
    typer.echo(f"{target}: {size_mb:,.0f} MB, from {about['source']} with sha256 {about['source_sha256']}")
    typer.echo("put roberta-base's vocab.json and merges.txt next to it, and set text_bank.model to that folder")
