"""A corpus is one file and a line of the list: a toy corpus is read, looked at by doctor, offered and named."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import toy_corpus
from egoexo_fixture import ingest, list_sources, pretend_probe, write
from one_more_name import one_more_name
from toy_corpus import COLUMNS, STEPS, TOY
from typer.testing import CliRunner

from deployments.cli.main import app
from schemas.config import IngestConfig, ReportConfig
from trajpilot_core.corpora.registry import CORPORA
from trajpilot_core.doctor import checks
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.errors import InputError
from trajpilot_core.report.loaded import corpus_title
from trajpilot_core.simworld.presets import tiny_layout
from trajpilot_core.simworld.write import write_world

TAKES = ("a", "b", "c", "d")
LINES = [
    f"{take},{'test' if take == 'd' else 'train'},{label},{i},{i + 1}"
    for take in TAKES
    for i, label in enumerate("xyz")
]


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The toy in the list of corpora, its layout in the folder of layouts, its name among those of the settings."""
    monkeypatch.setitem(CORPORA, TOY.name, TOY)
    monkeypatch.setitem(sys.modules, "trajpilot_core.simworld.layouts.toy", toy_corpus)
    monkeypatch.setattr("trajpilot_core.corpora.records.videos.probe_many", pretend_probe())
    with one_more_name("toy", (IngestConfig, "corpus"), (ReportConfig, "corpus")):
        yield


def config() -> IngestConfig:
    return IngestConfig(corpus="toy", dev_min=1)  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / STEPS, "\n".join([",".join(COLUMNS), *LINES, "cut,short", ""]).encode())
    for take in TAKES:
        write(tmp_path / "videos" / f"{take}.mp4", b"video")
    return tmp_path


def test_the_stage_ingest_reads_it(root: Path) -> None:
    sink = ingest(root, config())
    assert [row["take_id"] for row in sink.rows("takes")] == [f"toy:{take}" for take in TAKES]
    assert {row["split"] for row in sink.rows("takes")} == {"train", "dev", "test"}
    assert [row["label_id"] for row in sink.rows("labels")] == ["x", "y", "z"]
    assert {(row["what"], row["ours"], row["paper"]) for row in sink.rows("counts")} >= {("labels", 3, 3)}
    assert list_sources(root, config()).files == (STEPS, *(f"videos/{take}.mp4" for take in TAKES))


def test_doctor_offers_it_looks_at_it_and_says_how_it_is_got(root: Path) -> None:
    assert {row.what: row.verdict for row in checks.check_corpus(str(root), config())} == {
        "annotations": "ok",
        "videos": "ok",
    }
    (root / STEPS).unlink()
    told = CliRunner().invoke(app, ["doctor", "--corpus", "toy", "--root", str(root)])
    assert told.exit_code == 1
    assert f"Toy Kitchen at {root}" in told.stdout
    assert "it has no poses" in told.stdout
    assert f"toy-download {root}" in told.stdout
    refused = CliRunner().invoke(app, ["doctor", "--corpus", "nobody"])
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception).endswith(", toy")


def test_the_report_prints_its_title() -> None:
    loaded = SimpleNamespace(metrics=[], simulated=False)
    assert corpus_title(loaded, ReportConfig(corpus="toy")) == "Toy Kitchen"  # type: ignore[arg-type]


def test_its_simulated_world_is_written_in_the_layout_of_its_name_and_read(tmp_path: Path) -> None:
    world = tiny_layout("toy").replace(segments=4, segment_s=0.5, size_px=64, fps=10, dense_takes=0)
    written = write_world(world, tmp_path / "world", 1, no_progress)
    sink = ingest(tmp_path / "world", config())
    assert len(sink.rows("takes")) == written.n_good == world.train_takes + world.test_takes
    assert set(sink.codes()) == {"VIDEO_MISSING"}
