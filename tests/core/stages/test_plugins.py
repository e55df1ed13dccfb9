"""Plugins are loaded by name: one of each kind runs, enters keys with its version, and is missed by name when gone."""

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pyarrow.compute as pc
import pytest
from checkout import CHECKOUT
from egoexo_fixture import pretend_probe, write
from report_page import Reader
from synthetic_corpus import SKILL, corpus, predictions
from synthetic_results import built, report_inputs
from test_features import features, plain, root, vectors, whole
from test_smallest_corpora import run_all, world

from schemas.config import (
    CompletedEvaluation,
    CompletedReport,
    FeatureConfig,
    IngestConfig,
    PipelineConfig,
    RunOptions,
    TextConfig,
)
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.doctor.weights import check_weights
from trajpilot_core.encoders.text.base import TextEncoderSpec
from trajpilot_core.encoders.text.registry import text_encoder_spec
from trajpilot_core.engine.execution.execute import Outcome, execute
from trajpilot_core.engine.key import resolve_config
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.comparison import pair
from trajpilot_core.methods import METHODS
from trajpilot_core.methods.plugged import listed
from trajpilot_core.metrics import METRICS
from trajpilot_core.plugins import TEXT_ENCODERS, find, load
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.stages import EVERY_STAGE, evaluation, report
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import current_manifest

__all__ = ["root"]
PACKAGE, MODULES = CHECKOUT / "tests" / "fixtures" / "plugin_package", "trajpilot_toys"
OFFLINE = ("--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check")
FROM = "@trajpilot-toys==1.0"
TAKES = ("a", "b", "c", "d")
LINES = [
    f"{take},{'test' if take == 'd' else 'train'},{label},{i},{i + 1}"
    for take in TAKES
    for i, label in enumerate("xyz")
]


CONFIG = PipelineConfig().replace(
    ingest=IngestConfig(corpus="plugin:table", dev_min=1), text_bank=TextConfig(encoder="plugin:letters")
)
ROWS = CompletedEvaluation(
    bootstrap=100, shuffles=2, plugin_rows=("plugin:most_frequent",), plugin_metrics=("plugin:first_middle",)
)


def made_up(site: Path, name: str, version: str, entry: str, code: str) -> Path:
    """Write what an installation leaves: a module `<name>_plugin`, and metadata with one entry point `GROUP: NAME`."""
    group, _, plugin = entry.partition(": ")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{plugin} = {name}_plugin:SPEC\n")
    (site / f"{name}_plugin.py").write_text(code)
    return site


@contextmanager
def installed(*sites: Path) -> Iterator[None]:
    """Put folders of installed packages on the path for a block, and forget what was imported from them."""
    paths = [str(site) for site in sites]
    sys.path[:0] = paths
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for path in paths:
            sys.path.remove(path)
        for name in [name for name in sys.modules if name.partition(".")[0] == MODULES or name.endswith("_plugin")]:
            del sys.modules[name]
        importlib.invalidate_caches()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy package, installed with pip from a copy, without a network."""
    folder = tmp_path_factory.mktemp("plugins")
    shutil.copytree(PACKAGE, folder / "source")
    command = [sys.executable, "-m", "pip", "install", *OFFLINE, "--target", str(folder / "site")]
    subprocess.run([*command, str(folder / "source")], check=True, timeout=120)
    return folder / "site"


@pytest.fixture
def toys(site: Path) -> Iterator[None]:
    with installed(site):
        yield


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunOptions:
    monkeypatch.setattr("trajpilot_core.corpora.records.videos.probe_many", pretend_probe())
    data = tmp_path / "data"
    write(data / "steps.csv", "\n".join(["take,split,label,start_s,end_s", *LINES, ""]).encode())
    for take in TAKES:
        write(data / "videos" / f"{take}.mp4", b"video")
    return RunOptions(root=str(tmp_path / "root"), data_root=str(data), device="cpu", workers=1)


def executed(run: RunOptions, config: PipelineConfig = CONFIG) -> list[Outcome]:
    return [execute(EVERY_STAGE[name], config, run, EVERY_STAGE) for name in ("ingest", "text_bank")]


def of_a_later_version(site: Path, folder: Path) -> Path:
    shutil.copytree(site, folder)
    info = (folder / "trajpilot_toys-1.0.dist-info").rename(folder / "trajpilot_toys-1.1.dist-info")
    (info / "METADATA").write_text((info / "METADATA").read_text().replace("Version: 1.0", "Version: 1.1"))
    return folder


def test_a_corpus_and_a_text_encoder_run_and_enter_keys_with_distribution_and_version(
    site: Path, run: RunOptions, tmp_path: Path
) -> None:
    """The second time the settings arrive as JSON, as the worker of a deployed run has them."""
    with installed(site):
        assert [outcome.cached for outcome in executed(run)] == [False, False]
        sent = PipelineConfig.model_validate_json(CONFIG.model_dump_json())
        assert [outcome.cached for outcome in executed(run, sent)] == [True, True]
    ingest, text_bank = (current_manifest(open_folder(run.root), name) for name in ("ingest", "text_bank"))
    assert ingest is not None
    assert text_bank is not None
    assert (ingest.n_out, ingest.config["corpus"]) == (3 * len(TAKES), f"plugin:table{FROM}")
    assert text_bank.config["encoder"] == f"plugin:letters{FROM}"
    with installed(of_a_later_version(site, tmp_path / "later")):
        pinned = CONFIG.replace(text_bank=TextConfig(encoder=f"plugin:letters{FROM}"))
        with pytest.raises(InputError, match=r"letters@trajpilot-toys==1\.0 is configured, .* trajpilot-toys 1\.1"):
            resolve_config(EVERY_STAGE["text_bank"], pinned, run)
        assert [outcome.cached for outcome in executed(run)] == [False, False]


def test_a_plugin_that_was_taken_away_is_missed_by_name(site: Path, run: RunOptions) -> None:
    with installed(site):
        executed(run)
    with pytest.raises(InputError, match=r"provides the plugin table in the group trajpilot\.corpora: there are none"):
        executed(run)
    with pytest.raises(InputError, match="the plugin most_frequent"), listed(ROWS):
        pass
    pinned = f"plugin:colour{FROM}"
    with pytest.raises(InputError, match=r"the plugin colour .* \(it was trajpilot-toys==1\.0\)"):
        resolve_config(EVERY_STAGE["features"], PipelineConfig(features=FeatureConfig(model=pinned)), run)


@pytest.mark.usefixtures("decoded_here")
def test_a_video_encoder_runs(toys: None, root: Path, tmp_path: Path) -> None:
    looking = FeatureConfig(model="plugin:colour", size_px=64, n_frames=4, batch=4)
    table = whole(features(root, plain(), tmp_path, looking))
    assert set(table["encoder"].to_pylist()) == {"colour:v1"}
    assert vectors(table).shape == (15, 3)
    assert vectors(table).argmax(axis=1).tolist() == [0] * 5 + [1] * 5 + [2] * 5, "red, green and blue takes"
    assert check_weights(CONFIG.replace(features=looking)) == []


def test_a_row_and_a_metric_are_scored_and_leave_the_lists_again(toys: None, tmp_path: Path) -> None:
    memory, before = world(2, 1, 1), (list(METHODS), dict(METRICS))
    run_all(memory, tmp_path, evaluated=ROWS)
    metrics = memory.tables["metrics"]
    scored = metrics.filter(pc.and_(pc.equal(metrics["metric"], "First"), pc.is_null(metrics["reference"])))
    assert set(scored["variant"].to_pylist()) >= {"most_frequent", "majority", "no_traj"}
    of = {(row["variant"], row["horizon"], row["seed"]): row["value"] for row in scored.to_pylist()}
    same = [key for key in of if key[0] == "majority"]
    assert same
    assert all(of["most_frequent", *key[1:]] == of[key] for key in same)
    assert (list(METHODS), dict(METRICS)) == before
    scores = memory.tables["take_scores"]
    paired = pair(scores, scores, CompletedEvaluation(bootstrap=100))
    assert "most_frequent" in {one.variant for one in paired.metrics}, "`compare` needs no plugin to pair its row"


def test_a_prediction_knows_which_rows_of_plugins_it_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[object] = [None, SimpleNamespace(config=ROWS.content())]
    monkeypatch.setattr("trajpilot_core.predict.trained.current_manifest", lambda folder, stage: held.pop(0))
    assert [TrainedRoot(*[None] * 8).plugin_rows for _ in range(2)] == [(), ROWS.plugin_rows]  # type: ignore[arg-type]


def test_the_report_shows_the_row_and_the_metric_of_plugins(toys: None) -> None:
    tables, cfg = corpus(n_train=6, n_test=8, n_segments=9), CompletedReport(frames=False)
    named = cfg.replace(plugin_rows=ROWS.plugin_rows, plugin_metrics=ROWS.plugin_metrics)
    with listed(named):
        predicted = predictions(tables, {**SKILL, "most_frequent": 0.3})
        inputs = report_inputs(tables, draws=100, predicted=predicted)
    documents = built(inputs, named).documents
    assert b"Most frequent (plugin)" in documents["report.html"]
    keys = {key for _, key in Reader(documents["report.html"].decode()).cells}
    assert any(key.startswith("most_frequent|") and "First" in key.split("|") for key in keys)


def test_a_name_that_is_none_is_refused_by_the_settings_and_the_report_has_the_plugins_of_the_evaluation() -> None:
    for name in ("toys", "plugin:", "plugin:../x", "plugin:A", "plugin:a@b", "plugin:a@b==", "plugin:a.b"):
        with pytest.raises(ValueError, match="corpus"):
            IngestConfig(corpus=name)
    for stage in (report, evaluation):
        completed = stage.completed(PipelineConfig(evaluation=ROWS))
        assert (completed.plugin_rows, completed.plugin_metrics) == (ROWS.plugin_rows, ROWS.plugin_metrics)


def test_nothing_of_a_package_is_imported_before_a_setting_names_it(toys: None, run: RunOptions) -> None:
    resolve_config(EVERY_STAGE["text_bank"], CONFIG, run)
    plain_settings = CONFIG.replace(text_bank=TextConfig(encoder="bag_of_words"))
    assert text_encoder_spec(plain_settings.text_bank).name == "bag_of_words"
    assert not [name for name in sys.modules if name.startswith(MODULES)]
    assert load("plugin:letters", TEXT_ENCODERS, TextEncoderSpec).name == "letters"
    assert f"{MODULES}.text" in sys.modules
    assert f"{MODULES}.corpus" not in sys.modules


SPEC = "from trajpilot_core.encoders.text.base import TextEncoderSpec\nSPEC = TextEncoderSpec({!r}, None)\n"
FAULTS = {
    "raises": ("raise RuntimeError('no luck')", r"other 2\.0 .* cannot be loaded: RuntimeError: no luck"),
    "has no spec": ("x = 1", r"other 2\.0 .* cannot be loaded: AttributeError"),
    "another kind": ("SPEC = 3", r"other 2\.0 .* is a int, but the group trajpilot\.encoders\.text needs a TextEnc"),
    "clashes": (SPEC.format("egovlpv2"), r"other 2\.0 .* uses the name 'egovlpv2', which is taken"),
}


def test_a_faulty_plugin_is_refused_with_its_distribution_and_version(tmp_path: Path) -> None:
    for fault, (code, message) in FAULTS.items():
        with (
            installed(made_up(tmp_path / fault, "other", "2.0", f"{TEXT_ENCODERS}: words", code)),
            pytest.raises(InputError, match=f"plugin words of {message}"),
        ):
            text_encoder_spec(TextConfig(encoder="plugin:words"))


def test_two_distributions_of_one_name_and_a_plugin_of_another_kind_are_told_apart(tmp_path: Path) -> None:
    one = made_up(tmp_path / "1", "first", "1.0", f"{TEXT_ENCODERS}: words", SPEC.format("words"))
    two = made_up(tmp_path / "2", "second", "2.0", f"{TEXT_ENCODERS}: words", SPEC.format("words"))
    with installed(one):
        assert find("plugin:words", TEXT_ENCODERS).pinned == "plugin:words@first==1.0"
        with pytest.raises(InputError, match="no installed package provides the plugin words"):
            spec_of("plugin:words")
    with installed(one, two), pytest.raises(InputError, match=r"provided by first 1\.0, second 2\.0; keep only one"):
        find("plugin:words", TEXT_ENCODERS)


def test_the_example_of_the_page_is_the_package_that_runs_here() -> None:
    page = (CHECKOUT / "docs" / "plugins.md").read_text()
    shown = dict(re.findall(r"`([\w./]+)`:\n\n```\w+\n(.*?)```\n", page, re.DOTALL))
    assert {"pyproject.toml", "trajpilot_toys/row.py", "trajpilot_toys/metric.py"} <= set(shown)
    for path, text in shown.items():
        assert text == (PACKAGE / path).read_text(), path
