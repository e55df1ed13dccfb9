"""The attentive probe as a stage: chosen once on dev, scored on tested clips, refused where it would see the action."""

from pathlib import Path

import pyarrow as pa
import pytest
from kitchens_fixture import NEW, SMALL, VIDEOS, Kitchens, kitchens, probed

from schemas.arrow import rows_of
from schemas.events import ProbeConfig, ProbeScore
from schemas.results import CurvePoint, Judgement
from schemas.training import TrainConfig
from trajpilot_core.data.action_clips import load_clips
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.action_scores import check_splits
from trajpilot_core.metrics.epic_kitchens import EPIC_METRICS, SPACES, SUBSETS
from trajpilot_core.training.fit_probe import cosine, grid, probe_task

N_TEST = VIDEOS["test"] * 12


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Kitchens:
    """The tables of a probe that learned."""
    return probed(kitchens(), tmp_path_factory.mktemp("probe"))


def scores(memory: Kitchens) -> list[ProbeScore]:
    return rows_of(ProbeScore, memory.tables["probe_scores"])


def action(found: list[ProbeScore], row: str) -> float:
    """The recall of actions among the pairs that training has."""
    wanted = (row, "Action", "overall", "trained_pairs")
    (one,) = [s for s in found if (s.row, s.metric, s.subset, s.space) == wanted]
    assert one.value is not None
    return one.value


def test_the_probe_reads_the_action_off_one_token_and_beats_the_floor(memory: Kitchens) -> None:
    found = scores(memory)
    assert len(found) == 2 * len(EPIC_METRICS) * len(SUBSETS) * len(SPACES)
    assert action(found, "probe") > 80
    assert action(found, "majority") == pytest.approx(100 * 5 / 20)
    for one in (one for one in found if one.value is not None):
        assert 0 <= one.value <= 100
        assert one.low - 1e-9 <= one.value <= one.high + 1e-9 or one.n_takes < 6


def test_a_probe_of_noise_does_not_and_a_second_run_of_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """Planted: nothing tells the action, and the same probe must fail."""
    first, again = (probed(kitchens(strength=0.0), tmp_path / str(n)) for n in range(2))
    assert action(scores(first), "probe") < 50
    for name in ("probe_scores", "probe_curves"):
        assert again.tables[name].equals(first.tables[name])


def test_a_pair_that_training_lacks_is_missed_in_the_challenge_and_dropped_in_the_other_space(memory: Kitchens) -> None:
    found = scores(memory)
    rows = {
        one.space: one for one in found if one.row == "probe" and one.metric == "Action" and one.subset == "overall"
    }
    assert rows["challenge"].n_clips == N_TEST
    assert rows["trained_pairs"].n_clips == N_TEST - VIDEOS["test"]
    assert rows["challenge"].n_classes == rows["trained_pairs"].n_classes + 1


def test_the_best_trial_on_dev_answers_every_metric_and_leaks_are_noticed(memory: Kitchens) -> None:
    curve = rows_of(CurvePoint, memory.tables["probe_curves"])
    own = [one for one in scores(memory) if one.row == "probe"]
    chosen, other = "rate 0.02, decay 0.001", "rate 1e-05, decay 0.001"
    assert {one.trial for one in own} == {chosen}
    assert {point.model for point in curve} == {"final/probe", f"final/probe, {other}"}
    dev = [point for point in curve if (point.split, point.quantity) == ("dev", "Action")]
    assert max(dev, key=lambda point: point.value).model == "final/probe"
    assert {row.verdict for row in rows_of(Judgement, memory.tables["probe_checks"])} == {"holds"}
    assert check_splits(["epic:a", "epic:b"], ["epic:b"]).verdict == "fails"


def test_clips_that_show_their_action_are_refused(tmp_path: Path) -> None:
    """Planted: windows that end after the action has begun, as the stop anchor makes them."""
    late = kitchens(late_s=1.2)
    with pytest.raises(InputError, match=r"372 of 372 clips is later than 1 s before the action"):
        probed(late, tmp_path / "refused")


def test_tokens_of_tested_clips_reach_no_training() -> None:
    data = load_clips(kitchens())
    task = probe_task(data)
    assert len(task.tokens) == (VIDEOS["train"] + VIDEOS["dev"]) * 12
    assert int(task.is_dev.sum()) == VIDEOS["dev"] * 12
    assert NEW[1] not in task.classes["noun"].tolist()


def test_features_segments_or_settings_without_what_a_probe_needs_are_refused(tmp_path: Path) -> None:
    other = kitchens()
    details = other.tables["details"]
    at = details.schema.get_field_index("verb_class")
    other.tables["details"] = details.set_column(at, details.field(at), pa.nulls(details.num_rows, pa.int64()))
    for memory, cfg, words in (
        (kitchens(tokens=1), SMALL, "the features are pooled"),
        (other, SMALL, "no verb and noun classes"),
        (kitchens(), ProbeConfig(), r"set probe\.tokens=temporal"),
    ):
        with pytest.raises(InputError, match=words):
            probed(memory, tmp_path, cfg)


def test_the_published_grid_has_twenty_trials_and_the_rate_ends_at_zero() -> None:
    trials = grid(ProbeConfig())
    assert len(trials) == 20
    assert (trials[0].rate, trials[0].decay, trials[-1].rate, trials[-1].decay) == (5e-3, 1e-4, 1e-4, 1e-1)
    assert cosine(99, 100, TrainConfig(lr=1.0)) == pytest.approx(0.0)
    assert cosine(49, 100, TrainConfig(lr=1.0)) == pytest.approx(0.5)
