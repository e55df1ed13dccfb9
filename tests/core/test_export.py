"""A run is opened from Python, its tables leave it unchanged and described, and printed commands work where pasted."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from checkout import CHECKOUT
from typer.testing import CliRunner

import trajpilot_core as tp
from deployments.cli.main import app
from trajpilot_core import errors, opened
from trajpilot_core.errors import InputError, command, shown
from trajpilot_core.exported import RECORD, default_tables, export_tables
from trajpilot_core.stages import EVERY_STAGE

WARNING = "SIMULATED world: these numbers say nothing about real data."
LABELS = {"x": "open the tap", "y": '=HYPERLINK("http://x")', "z": "pour, slowly"}


def frames() -> dict[str, pl.DataFrame]:
    """Tables of a run, one with lists."""
    outcomes = [{"window_id": "t:h3", "variant": row, "decoded_ids": ["x", "z", "z"]} for row in ("a", "b", "c")]
    return {
        "labels": pl.DataFrame({"label_id": list(LABELS), "label": list(LABELS.values())}),
        "motions": pl.DataFrame({"segment_id": ["t:0"], "motions": [[0.0, 0.1]]}),
        "outcomes": pl.DataFrame(outcomes),
    }


@dataclass
class Run:
    """A finished run in memory, as far as an export reads it."""

    frames: dict[str, pl.DataFrame] = field(default_factory=frames)
    root: str = "/nowhere"
    warning: str = WARNING

    def tables(self) -> dict[str, str]:
        return {name: "evaluation" if name == "outcomes" else "ingest" for name in self.frames}

    @property
    def outputs(self) -> dict[str, SimpleNamespace]:
        return {name: SimpleNamespace(stage=name, key=f"key of {name}") for name in ("evaluation", "ingest")}

    def table(self, name: str) -> pl.DataFrame:
        return self.frames[name]


def test_a_table_is_written_as_it_is_and_as_a_spreadsheet_may_open_it(tmp_path: Path) -> None:
    run = Run()
    record = export_tables(run, ["labels", "outcomes"], tmp_path)  # type: ignore[arg-type]
    for name in ("labels", "outcomes"):
        assert pl.read_parquet(tmp_path / f"{name}.parquet").equals(run.table(name))
    assert pl.read_csv(tmp_path / "labels.csv")["label"].to_list() == ["open the tap", f"'{LABELS['y']}", LABELS["z"]]
    decoded = pl.read_csv(tmp_path / "outcomes.csv")["decoded_ids"].to_list()
    assert [json.loads(text) for text in decoded] == [["x", "z", "z"]] * 3
    written = json.loads((tmp_path / RECORD).read_text())
    assert written == record.content()
    assert written["warning"] == WARNING
    assert [(one["name"], one["stage"], one["key"], one["rows"]) for one in written["tables"]] == [
        ("labels", "ingest", "key of ingest", 3),
        ("outcomes", "evaluation", "key of evaluation", 3),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [RECORD, *(f"{name}.{one}" for name in ("labels", "outcomes") for one in ("parquet", "csv"))]
    )


def test_an_export_that_fails_leaves_no_record(tmp_path: Path) -> None:
    run = Run()
    run.frames["outcomes"] = pl.DataFrame({"x": [object()]})
    with pytest.raises(Exception, match=r"(?i)object"):
        export_tables(run, ["labels", "outcomes"], tmp_path)  # type: ignore[arg-type]
    assert not (tmp_path / RECORD).exists()
    with pytest.raises(InputError, match="no table 'nonsense'; it has labels, motions"):
        export_tables(run, ["nonsense"], tmp_path)  # type: ignore[arg-type]


def test_results_ids_and_rejects_are_exported_by_default_and_features_are_not() -> None:
    held = {"features": "features", "takes": "ingest", "features.rejects": "features", "metrics": "evaluation"}
    told = default_tables(SimpleNamespace(tables=lambda: held))  # type: ignore[arg-type]
    assert told == ["takes", "features.rejects", "metrics"], "without features"


def test_outputs_of_every_stage_are_looked_for_and_an_empty_root_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(opened, "current_manifests", lambda folder, stages: asked.extend(stages) or {})
    with pytest.raises(InputError, match="holds no output of any stage"):
        tp.open(tmp_path)
    assert asked == list(EVERY_STAGE)


PAGE = (CHECKOUT / "docs" / "python.md").read_text()


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "open_run", lambda root: Run())
    lines = re.findall(r"^trajpilot (export .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 2
    monkeypatch.chdir(tmp_path)
    for line in lines:
        told = CliRunner().invoke(app, shlex.split(line.replace("--table predictions", "--table outcomes")))
        assert told.exit_code == 0, told.output
        assert WARNING in told.stdout
    assert (tmp_path / "runs" / "tables" / "motions.parquet").exists()


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
