"""status, plan, verify, gc, doctor and compare as a user types them, on a root that holds the first stage."""

import json
import os
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import egoexo_fixture as egoexo
import pytest
from click.testing import Result
from typer.testing import CliRunner
from video_fixture import decoded_here
from whole_run import typed

from deployments.cli.inspect import numbers_of
from deployments.cli.main import app
from deployments.cli.options import change
from deployments.recipes.paper import atomic
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.needs import Needs
from trajpilot_core.engine.planning.plan import PlanRow
from trajpilot_core.engine.settings import remember_run, values_of
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.stages import STAGES
from trajpilot_core.store.lock import root_lock

WIDE = {"COLUMNS": "400", "PREFECT_API_URL": ""}
DEV = ("--set", "ingest.dev_min=1")


def ask(*arguments: object) -> Result:
    result = CliRunner(env=WIDE).invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def cells(result: Result, first: str) -> list[str]:
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if "│" in line]
    return next(row[1:] for row in rows if row[0] == first)


def configuration() -> PipelineConfig:
    base = atomic()
    return base.replace(ingest=base.ingest.replace(dev_min=1))


def options(corpus: Path, root: Path) -> RunOptions:
    return RunOptions(root=str(root), data_root=str(corpus), device="cpu", workers=1, max_reject_ratio=1.0)


def ingested(folder: Path) -> tuple[Path, Path]:
    """(corpus, root): ingest ran, and was remembered."""
    corpus, root = egoexo.healthy(folder / "corpus").write(), folder / "root"
    remember_run(configuration(), options(corpus, root))
    execute(STAGES["ingest"], configuration(), options(corpus, root), STAGES)
    return corpus, root


@pytest.fixture(scope="module", autouse=True)
def no_decoder_processes() -> Iterator[None]:
    with decoded_here():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of all tests that change nothing of it."""
    return ingested(tmp_path_factory.mktemp("ingested"))


@pytest.fixture
def own(tmp_path: Path) -> tuple[Path, Path]:
    return ingested(tmp_path)


def test_status_says_fresh_missing_and_why_with_and_without_saying_the_run_again(made: tuple[Path, Path]) -> None:
    corpus, root = made
    for arguments in (("--data", corpus, *DEV), ()):
        result = ask("status", "--root", root, *arguments)
        assert cells(result, "ingest")[0] == "fresh"
        assert cells(result, "trajectories")[0] == "missing"
        assert cells(result, "trajectories")[-1] == "never ran"
    changed = cells(ask("status", "--root", root, "--set", "ingest.max_horizon=4"), "ingest")
    assert (changed[0], changed[-1]) == ("stale", "max_horizon 8 -> 4")
    for command in ("status", "plan"):  # reasons for what is not fresh alone
        said = ask(command, "--root", root).stdout
        assert ("nothing changed" in said, "never ran" in said) == (False, True)


def test_a_command_without_the_root_of_a_run_asks_for_one(tmp_path: Path) -> None:
    for command in ("status", "plan", "verify", "ui"):
        with pytest.raises(InputError, match="give the --root of a run"):
            ask(command, "--root", tmp_path)


def test_a_wrong_place_metric_or_setting_is_refused_in_a_sentence_that_is_printed_as_it_is(
    made: tuple[Path, Path],
) -> None:
    for command in ("status", "plan"):
        with pytest.raises(InputError, match="--data nowhere is not a folder"):
            ask(command, "--root", made[1], "--data", "nowhere")
    for command in ("plan", "doctor"):
        with pytest.raises(InputError, match="device is 'tpu'"):
            ask(command, "--root", made[1], "--device", "tpu")
    for line, message in (
        (("compare", made[1], made[1]), "has no evaluation"),
        (("compare", made[1], made[1], "--metric", "accuracy"), "no such metric"),
    ):
        with pytest.raises(InputError, match=message):
            ask(*line)
    markup = "error: InputError: --set [/x]=3: no such setting"
    assert markup in typed("plan", "--root", str(made[1]), "--set", "[/x]=3")[1]
    with pytest.raises(InputError, match="is not a folder of this machine"):
        ask("run", "--data", made[0], "--root", "s3://bucket/prefix")
    with pytest.raises(StoreError, match="cannot write to /proc/"):
        ask("run", "--data", made[0], "--root", "/proc/nowhere")


def test_an_object_store_without_credentials_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("s3fs", reason="the s3 extra is not installed")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    lines = [f"{name} --root ADDRESS" for name in ("status", "plan", "verify", "gc")]
    lines += [f"{name} --root . --data ADDRESS" for name in ("status", "plan", "run")]
    lines += ["predict x.mp4 --start 1-2 --goal 3-4 --root ADDRESS", "compare ADDRESS ADDRESS"]
    for line in lines:
        said = r"s3://no-bucket/x cannot be used \(Unable to locate .* set AWS_ACCESS_KEY_ID"
        with pytest.raises(InputError, match=said):
            ask(*line.replace("ADDRESS", "s3://no-bucket/x").split())
    assert list(Path.cwd().iterdir()) == []
    for option, row in (("--root", "root"), ("--data", "data root")):
        ill = ask("doctor", "--root", tmp_path, option, "s3://no-bucket/x")
        assert ill.exit_code == 1
        assert cells(ill, row)[2] == "bad"
        assert f"to do, {row}: s3://no-bucket/x cannot be used (Unable to locate credentials)" in ill.stdout


def test_the_ui_refuses_a_port_that_is_none(made: tuple[Path, Path]) -> None:
    for port in ("80000", "0"):
        wrong = ask("ui", "--root", made[1], "--port", port)
        assert wrong.exit_code == 2
        assert "Invalid value for '--port'" in wrong.output
        assert "http://" not in wrong.output


def test_a_wrong_setting_is_refused_with_the_nearest_and_a_missing_value_is_named() -> None:
    for wrong, said in (
        ("scorer.candiates=32", r"no such setting; did you mean scorer\.candidates( or [a-z.]+)?\?"),
        ("Features.size_px=256", r"no such setting; did you mean features\.size_px"),
        ("features.size=256", r"did you mean .*features\.size_px"),
        ("features.size_px:256", r"did you mean features\.size_px( or [a-z_.]+)?\?"),
        ("scorer.candidates.x=1", r"did you mean scorer\.candidates( or [a-z.]+)?\?"),
        ("cooking.time=3", "no such setting; `trajpilot config` lists all"),
        ("scorer.candidates", r"no value given; write --set scorer\.candidates=VALUE"),
    ):
        with pytest.raises(InputError, match=f"^--set {re.escape(wrong)}: .*{said}"):
            change(atomic(), [wrong])
    for name, value in values_of(atomic()).items():
        assert change(atomic(), [f"{name}={json.dumps(value)}"]) == atomic(), name


def test_tables_lose_no_word_at_any_width(own: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, root = own
    os.utime(corpus / "takes/train_1/frame_aligned_videos/downscaled/448/aria02_214-1.mp4")
    for width, command in product((80, 120), ("status", "plan", "doctor")):
        monkeypatch.setitem(WIDE, "COLUMNS", str(width))
        shown = ask(command, "--root", root).stdout
        assert "…" not in shown, shown
        assert all(len(line) <= width for line in shown.splitlines() if "│" in line)
    plan = ask("plan", "--root", root).stdout
    assert "ingest: 1 file touched: takes/train_1/frame_aligned_videos/downscaled/448/aria02_214-1.mp4" in plan
    assert "│trajectories│" in plan.replace(" ", "")


def test_plan_counts_what_is_asked_for_only(made: tuple[Path, Path]) -> None:
    _, root = made
    result = ask("plan", "--root", root, "--only", "trajectories")
    assert cells(result, "trajectories")[2] == "exactly 4"
    assert cells(result, "features")[2:4] == ["-", "-"]
    assert cells(result, "features")[-1].startswith("not requested; ")
    assert cells(ask("plan", "--root", root, "--from", "features"), "trajectories")[-1].startswith("not requested; ")
    forced = cells(ask("plan", "--root", root, "--force", "ingest"), "ingest")
    assert (forced[0], forced[2], forced[-1]) == ("stale", "exactly 1", "forced")
    with pytest.raises(InputError, match="this run has no cooking"):
        ask("plan", "--root", root, "--only", "cooking")


def test_plan_and_doctor_show_what_stages_took_and_that_a_first_run_is_unknown(made: tuple[Path, Path]) -> None:
    _, root = made
    forced = ask("plan", "--root", root, "--force", "ingest", "--only", "ingest").stdout
    assert re.search(r"│ \d+ s, memory \d+ MB, disk ", forced)
    assert re.search(r"total: about .* of memory at most \(ingest\); .* of memory are free", forced)
    assert "│ first run: unknown │" in ask("plan", "--root", root).stdout
    assert "by its last run; first run: unknown for " in ask("doctor", "--root", root).stdout
    row = PlanRow("ingest", "stale", "", 1, "at most", reused=0, needs=Needs(0.04, 10, 0, 10))
    assert numbers_of(row)[-1] == "up to 1 s, memory 1 MB, disk 1 MB", "what is to be done never takes no time"


def data_file(root: Path) -> Path:
    return sorted(root.glob("artifacts/ingest/*/data-*.parquet"))[0]


def test_verify_names_a_damaged_and_a_missing_file_and_ends_with_status_1(own: tuple[Path, Path]) -> None:
    _, root = own
    whole = ask("verify", "--root", root)
    assert (whole.exit_code, "is intact" in whole.stdout) == (0, True)
    file = data_file(root)
    file.write_bytes(b"damaged")
    damaged = ask("verify", "--root", root)
    assert re.search(rf"^{file.relative_to(root)}: .* is damaged: .*; needed by artifacts/ingest/", damaged.stdout)
    file.unlink()
    missing = ask("verify", "--root", root)
    assert (damaged.exit_code, missing.exit_code, file.name in missing.stdout) == (1, 1, True)
    status = cells(ask("status", "--root", root), "ingest")
    assert (status[0], status[-1]) == ("stale", f"1 output file missing: {file.parent.name}/{file.name}")
    assert ask("verify", "--root", root, "--repair").exit_code == 1
    assert ask("verify", "--root", root).exit_code == 1  # the pointer leads nowhere until a run fixes it


def test_verify_needs_a_root_and_repair_waits_for_no_run(tmp_path: Path, own: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="contains no artifact"):
        ask("verify", "--root", tmp_path / "nowhere")
    with root_lock(str(own[1]), 0.0), pytest.raises(StoreError, match="in use by"):
        ask("verify", "--root", own[1], "--repair")


def test_gc_shows_first_and_removes_with_yes(own: tuple[Path, Path]) -> None:
    corpus, root = own
    other = configuration().replace(ingest=configuration().ingest.replace(max_horizon=4))
    before = {path for path in root.rglob("*") if path.is_file()}
    execute(STAGES["ingest"], other, options(corpus, root), STAGES)
    assert "dry run: 0 files" in ask("gc", "--root", root).stdout
    dry = ask("gc", "--root", root, "--keep-h", "0")
    assert int(cells(dry, "artifacts/ingest")[0]) > 3
    assert before <= {path for path in root.rglob("*") if path.is_file()}
    assert "deleted " in ask("gc", "--root", root, "--keep-h", "0", "--yes").stdout
    assert data_file(root) not in before
    assert ask("verify", "--root", root).exit_code == 0
    with pytest.raises(InputError, match="is not a folder"):
        ask("gc", "--root", root / "nowhere")


def test_doctor_ends_with_status_1_where_something_stops_a_run(made: tuple[Path, Path], tmp_path: Path) -> None:
    _, root = made
    asked = ("doctor", "--root", root, "--set", "text_bank.encoder=bag_of_words", "--set", "features.model=tiny")
    well = ask(*asked)
    assert well.exit_code == 0, well.stdout
    assert cells(well, "videos")[:3] == ["4", "4", "ok"]
    assert {cells(well, row)[2] for row in ("packages", "GPU", "root", "server", "memory", "disk")} == {"ok"}
    ill = ask("doctor", "--root", root, "--data", root / "nowhere")
    assert (ill.exit_code, cells(ill, "data root")[2], "checks would stop a run" in ill.stdout) == (1, "bad", True)
    assert cells(ill, "weights of features")[2] == "bad"
    first = ask("doctor", "--root", tmp_path)
    assert (first.exit_code, cells(first, "data root")[1:3]) == (0, ["not given", "note"])


def test_doctor_of_a_corpus_says_what_is_missing_and_how_it_is_got_without_any_run(tmp_path: Path) -> None:
    corpus = egoexo.healthy(tmp_path / "my corpus")
    root = corpus.write()
    well = ask("doctor", "--corpus", "egoexo4d_atomic", "--data", root)
    assert well.exit_code == 0, well.stdout
    assert "egoexo -o" not in well.stdout
    corpus.video("train_1").unlink()
    note = ask("doctor", "--corpus", "egoexo4d_atomic", "--data", root)
    assert (note.exit_code, cells(note, "videos")[0], cells(note, "videos")[2]) == (0, "4", "note")
    assert f"egoexo -o '{root}' --parts metadata annotations" in note.stdout
    ill = ask("doctor", "--corpus", "egoper", "--data", tmp_path)
    assert ill.exit_code == 1
    assert cells(ill, "data root")[1:3] == ["unusable", "bad"]
    assert "e-mail" in ill.stdout
    with pytest.raises(InputError, match="no such corpus: 'kitchens'; the corpora are egoexo4d_atomic"):
        ask("doctor", "--corpus", "kitchens", "--data", root)
