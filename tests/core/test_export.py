"""Tables leave a run unchanged and described; a window becomes a recording that rerun verifies."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from checkout import CHECKOUT
from typer.testing import CliRunner
from video_fixture import write_video

from deployments.cli import export as command
from deployments.cli.main import app
from trajpilot_core.errors import InputError
from trajpilot_core.export import window
from trajpilot_core.export.tables import RECORD, default_tables, export_tables
from trajpilot_core.export.window import ShownWindow, first_window, shown_window, write_recording

WARNING = "SIMULATED world: these numbers say nothing about real data."
LABELS = {"x": "open the tap", "y": '=HYPERLINK("http://x")', "z": "pour, slowly"}
AHEAD = [0.0, 0.0, 0.1, 0.0, 0.0, 0.0] * 16
"""A motion of a segment: 16 steps of 0.1 m straight ahead."""


def window_rows(take: str) -> list[dict[str, object]]:
    return [{"window_id": f"{take}:h3", "take_id": take, "segment_ids": [f"{take}:{i}" for i in range(3)]}]


def outcome(variant: str, candidate: str | None, opened: bool | None = None) -> dict[str, object]:
    return {
        "window_id": "t:h3",
        "horizon": 3,
        "variant": variant,
        "decoded_ids": ["x", "z", "z"],
        "opened": opened,
        "candidate": candidate,
    }


def frames() -> dict[str, pl.DataFrame]:
    """A run of one scored window of take t (1 to 4 s), two rows that followed take u, and one that followed none."""
    segments = [
        {"segment_id": f"{take}:{i}", "take_id": take, "start_s": 1.0 + i, "end_s": 2.0 + i, "label_id": "xyz"[i]}
        for take in "tu"
        for i in range(3)
    ]
    outcomes = [outcome("no_traj", None), outcome("top1", "u:h3"), outcome("scorer", "u:h3", opened=True)]
    moved = [{"segment_id": row["segment_id"], "scale": "metric", "motions": AHEAD} for row in segments]
    return {
        "takes": pl.DataFrame({"take_id": ["t", "u"], "video": ["t.mp4", "u.mp4"]}),
        "labels": pl.DataFrame({"label_id": list(LABELS), "label": list(LABELS.values())}),
        "windows": pl.DataFrame(window_rows("t") + window_rows("u")),
        "segments": pl.DataFrame(segments),
        "motions": pl.DataFrame(moved),
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
    record = export_tables(run, ["labels", "outcomes"], ("parquet", "csv"), tmp_path)  # type: ignore[arg-type]
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


def test_an_export_that_fails_leaves_no_record_and_no_half_file(tmp_path: Path) -> None:
    run = Run()
    run.frames["outcomes"] = pl.DataFrame({"x": [object()]})
    with pytest.raises(Exception, match=r"(?i)object"):
        export_tables(run, ["labels", "outcomes"], ("parquet",), tmp_path)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["labels.parquet"]


def test_what_is_not_there_and_a_folder_among_the_artifacts_are_refused(tmp_path: Path) -> None:
    run = Run(root=str(tmp_path))
    with pytest.raises(InputError, match="no table 'nonsense'; it has labels, motions"):
        export_tables(run, ["nonsense"], ("csv",), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="inside the artifacts"):
        export_tables(run, ["labels"], ("csv",), tmp_path / "artifacts" / "x")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="no window 'v' was scored"):
        shown_window(run, "v")


def test_results_ids_and_rejects_are_exported_by_default_and_features_are_not() -> None:
    held = {"features": "features", "takes": "ingest", "features.rejects": "features", "metrics": "evaluation"}
    assert default_tables(SimpleNamespace(tables=lambda: held)) == [  # type: ignore[arg-type]
        "takes",
        "features.rejects",
        "metrics",
    ]


def test_a_window_is_shown_on_the_clock_of_its_video() -> None:
    shown = shown_window(Run(), first_window(Run()))
    assert (shown.start_s, shown.middle_s, shown.end_s, shown.unit) == (1.0, 2.0, 4.0, "m")
    assert [(said.time_s, said.text) for said in shown.said if said.who == "true"] == list(
        zip((1.0, 2.0, 3.0), LABELS.values(), strict=True)
    )
    assert [said.text for said in shown.said if said.who == "scorer"] == [LABELS["x"], LABELS["z"], LABELS["z"]]
    assert len(shown.path_times_s) == len(shown.path_m) == 1 + 3 * 16
    assert np.all(np.diff(shown.path_times_s) > 0)
    assert shown.path_m[-1] == pytest.approx([4.8, 0.0, 0.0])
    assert [(one.kind, one.window_id, len(one.points_m)) for one in shown.trajectories] == [
        ("true", "t:h3", 17),
        ("retrieved", "u:h3", 17),
        ("chosen", "u:h3", 17),
    ]


def test_a_segment_without_motions_costs_the_path_and_the_trajectory_that_need_it() -> None:
    run = Run()
    run.frames["motions"] = run.frames["motions"].filter(~pl.col("segment_id").is_in(["t:0", "u:1"]))
    shown = shown_window(run, "t:h3")
    assert len(shown.path_m) == 0
    assert [one.kind for one in shown.trajectories] == ["true"]


def verified(path: Path) -> int:
    asked = [sys.executable, "-m", "rerun", "rrd", "verify", str(path)]
    return subprocess.run(asked, check=False, capture_output=True, timeout=120).returncode


def recorded(folder: Path, data: Path) -> tuple[Path, list[str]]:
    target = folder / "w.rrd"
    return target, write_recording(shown_window(Run(), "t:h3"), str(data), WARNING, target)


def test_a_recording_has_video_path_trajectories_and_labels_on_one_timeline_and_is_verified(tmp_path: Path) -> None:
    pytest.importorskip("rerun", reason="rerun-sdk is not installed (extra viz)")
    from rerun.chunk import RrdReader

    write_video(tmp_path / "t.mp4", 150)
    path, missing = recorded(tmp_path, tmp_path)
    assert missing == []
    assert verified(path) == 0
    schema = str(RrdReader(path).store().schema())
    assert set(re.findall(r"timeline:(\w+)", schema)) - {"log_time", "log_tick"} == {"video_time"}
    assert set(re.findall(r"Entity path: /(\S+)", schema)) - {"__properties"} == {
        "about",
        "video",
        "world/head",
        "world/head_path",
        *(f"trajectories/{kind}" for kind in ("true", "retrieved", "chosen")),
        *(f"labels/{row}" for row in ("true", "no_traj", "top1", "scorer")),
    }
    printed = [sys.executable, "-m", "rerun", "rrd", "print", "-v", str(path)]
    listed = subprocess.run(printed, check=True, capture_output=True, text=True, timeout=120).stdout
    rows = {entity: int(n) for n, entity in re.findall(r"with (\d+) rows \([^)]*\) - /(\S+) ", listed)}
    assert (rows["video"], rows["world/head"], rows["labels/true"]) == (12, 49, 3)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert verified(path) != 0, "planted: a truncated file"


def test_a_video_that_is_not_there_costs_its_frames_and_is_told(tmp_path: Path) -> None:
    pytest.importorskip("rerun", reason="rerun-sdk is not installed (extra viz)")
    path, missing = recorded(tmp_path, tmp_path)
    assert len(missing) == 1
    assert re.match(r"12 frames are missing: VIDEO_MISSING", missing[0])
    assert verified(path) == 0


def test_without_rerun_the_command_says_how_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(InputError, match=r'--rerun needs rerun-sdk .*pip install "\.\[viz\]"'):
        recorded(tmp_path, tmp_path)
    assert not list(tmp_path.iterdir())


PAGE = (CHECKOUT / "docs" / "export.md").read_text()


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[ShownWindow] = []
    monkeypatch.setattr(command, "open_run", lambda root: Run())
    monkeypatch.setattr(window, "sdk", lambda: None)
    monkeypatch.setattr(window, "write_recording", lambda shown, *_: written.append(shown) or [])
    lines = re.findall(r"^trajpilot (export .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 3
    monkeypatch.chdir(tmp_path)
    for line in lines:
        told = CliRunner().invoke(app, shlex.split(line.replace("--table predictions", "--table outcomes")))
        assert told.exit_code == 0, told.output
        assert WARNING in told.stdout
    assert (tmp_path / "runs" / "tables" / "motions.parquet").exists()
    assert [one.window_id for one in written] == ["t:h3"]
    refused = CliRunner().invoke(app, ["export", "--format", "xlsx"])
    assert "--format xlsx: no such format; choose from parquet, csv" in str(refused.exception)
