"""The estimate of a first run: counted operations over rates; no rate and no work gives no time of 0 s."""

import io

import pytest
from rich.console import Console

from deployments.cli import first_run as shown
from deployments.recipes import recipe
from schemas.config import RunOptions
from trajpilot_core.encoders.video.throughput import n_operations
from trajpilot_core.engine.planning.stated import StatedNeeds
from trajpilot_core.engine.sizes import paper_sizes
from trajpilot_core.errors import InputError
from trajpilot_core.studies import first_run
from trajpilot_core.studies.first_run import ENCODER_SHARE, MachineRates, first_run_seconds, probe_machine, trainings_of

CONFIG = recipe("atomic")
SIZES = paper_sizes(CONFIG)
RATES = MachineRates(product=1e14, training=1e13)


def test_the_encoder_takes_its_operations_and_trainings_theirs() -> None:
    found = first_run_seconds(CONFIG, SIZES, RATES)
    cfg = CONFIG.features
    each = n_operations(cfg.model, cfg.n_frames, cfg.size_px)
    assert found["features"] == pytest.approx(151_838 * each / (ENCODER_SHARE * 1e14))
    assert set(found) == {"features", *shown.ESTIMATED}
    slower = first_run_seconds(CONFIG, SIZES, MachineRates(product=1e14, training=5e12))
    assert slower["predictor"] == pytest.approx(2 * found["predictor"])
    assert slower["features"] == found["features"]


def test_every_seed_and_every_chain_is_counted() -> None:
    one = CONFIG.replace(alignment=CONFIG.alignment.replace(seeds=(0,)))
    n_seeds = len(CONFIG.alignment.seeds)
    assert n_seeds > 1
    assert all(trainings_of(CONFIG)[name][1] == n_seeds * n for name, (_, n) in trainings_of(one).items())
    assert trainings_of(one)["alignment"][1] == CONFIG.alignment.folds + 1


def test_released_features_are_not_encoded() -> None:
    assert "features" not in first_run_seconds(recipe("laptop"), paper_sizes(recipe("laptop")), RATES)


@pytest.mark.parametrize("rates", [MachineRates(0.0, 1e9), MachineRates(1e9, 0.0)])
def test_a_rate_of_zero_is_refused(rates: MachineRates) -> None:
    with pytest.raises(InputError, match="rates must be positive"):
        first_run_seconds(CONFIG, SIZES, rates)


def test_this_machine_has_rates() -> None:
    rates = probe_machine("cpu")
    assert rates.product > rates.training > 0


def told(names: list[str], monkeypatch: pytest.MonkeyPatch, rates: MachineRates) -> str:
    monkeypatch.setattr(first_run, "probe_machine", lambda device: rates)
    written = io.StringIO()
    console = Console(file=written, width=10_000)
    shown.show_first_run(console, names, StatedNeeds({}, SIZES), CONFIG, RunOptions(root="r", device="cpu"))
    return written.getvalue()


def test_the_line_is_called_an_estimate_and_says_for_which_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    line = told(["ingest", "features", "predictor"], monkeypatch, RATES)
    assert "an estimate" in line
    assert "the paper's sizes, because ingest has not counted yours yet" in line
    assert "no estimate for ingest" in line
    assert "alignment" not in line, "it has a measured time or is not to be computed"


def test_no_estimate_is_zero_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    line = told(list(shown.ESTIMATED), monkeypatch, MachineRates(1e30, 1e30))
    assert " 1 s to 1 s" in line
    assert " 0 s" not in line


def test_nothing_is_probed_where_no_stage_encodes_or_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(["ingest", "report"], monkeypatch, MachineRates(0.0, 0.0)) == ""
