"""The benchmark counts what torch counts, and its rates mean what they say."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from deployments.cli.main import app
from schemas.config import FeatureConfig
from trajpilot_core.encoders.video import throughput
from trajpilot_core.encoders.video.throughput import Speed, matrix_tera_hz, measure, n_operations
from trajpilot_core.encoders.video.vjepa import SIZES, VjepaEncoder

SMALL = FeatureConfig(model="tiny", size_px=64, n_frames=4, batch=2)


@pytest.mark.parametrize(("n_frames", "size_px"), [(4, 64), (16, 96)])
def test_operations_are_those_that_torch_counts(n_frames: int, size_px: int) -> None:
    with torch.device("meta"):
        encoder, clip = VjepaEncoder(SIZES["tiny"]), torch.empty(1, 3, n_frames, size_px, size_px)
    with FlopCounterMode(display=False) as counted, torch.inference_mode():
        encoder(clip)
    assert counted.get_total_flops() == n_operations("tiny", n_frames, size_px)


@pytest.mark.parametrize(
    ("model", "tera"), [("vit_gigantic", 23.77), ("vit_giant", 14.1), ("vit_large", 4.88), ("vit_base", 1.58)]
)
def test_a_clip_of_the_paper_costs_what_the_docs_say(model: str, tera: float) -> None:
    assert n_operations(model, 16, 384) / 1e12 == pytest.approx(tera, rel=4e-3)


def speed(waited_share: float, decoded_hz: float = 5.0, both_hz: float = 2.5) -> Speed:
    return Speed("tiny", "fp32", 1, 2.0, 10.0, decoded_hz, both_hz, waited_share, 40.0)


def test_overlap_is_the_share_of_the_decoding_that_nobody_waits_for() -> None:
    assert speed(0.0).overlap == 1
    assert speed(0.25).overlap == pytest.approx(0.5)
    assert speed(0.5).overlap == pytest.approx(0)
    assert speed(0.9).overlap == 0
    assert speed(0.0).matrix_share == pytest.approx(0.5)


def test_waiting_is_seen_where_decoders_are_slow_and_not_where_the_encoder_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a decoder, and then an encoder, that takes its time; the clock moves only for them."""
    now_s = [0.0]
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: now_s[0])

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    def slow(seconds: float) -> Iterator[NDArray[np.uint8]]:
        for _ in range(6):
            sleep(seconds)
            yield np.zeros((1, 1), np.uint8)

    class Sleeps:
        config, late = FeatureConfig(batch=2), 0

        def begin(self, clips: list[NDArray[np.uint8]]) -> Callable[[], None]:
            return lambda: sleep(0.05)

    took_s, waited_s = throughput._drained(slow(0.05), None)
    assert waited_s == pytest.approx(took_s)
    took_s, waited_s = throughput._drained(slow(0.0), Sleeps())  # type: ignore[arg-type]
    assert took_s == pytest.approx(0.15)
    assert waited_s == 0


def test_a_small_encoder_is_measured_on_a_cpu(tmp_path: Path) -> None:
    found = measure(SMALL, "cpu", workers=1, n_clips=4, folder=tmp_path)
    assert (found.model, found.arithmetic, found.batch) == ("tiny", "fp32", 2)
    assert min(found.encoded_hz, found.decoded_hz, found.both_hz, found.matrix_tera_hz) > 0
    assert 0 < found.matrix_share < 2
    assert measure(SMALL.replace(precision="bf16"), "cpu", 1, 4, tmp_path).arithmetic == "bf16"


def test_the_matrix_rate_is_that_of_this_machine() -> None:
    assert 1e-4 < matrix_tera_hz("cpu", torch.float32, rounds=1) < 1e3


def test_the_command_says_that_no_gpu_was_used() -> None:
    asked = ["bench", "features", "--model", "tiny", "--clips", "2", "--workers", "1", "--device", "cpu"]
    asked += ["--set", "features.size_px=64", "--set", "features.n_frames=4", "--set", "features.batch=2"]
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "no GPU is used" in done.output
    assert "TFLOP a clip" in done.output


def test_a_name_that_is_no_encoder_is_refused() -> None:
    done = CliRunner().invoke(app, ["bench", "features", "--model", "vit_small", "--device", "cpu"])
    assert "vit_gigantic" in str(done.exception)
