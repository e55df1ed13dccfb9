"""Train scores next to dev: of every model, after every epoch, on a sample; and no model is another one for it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import latent_fixture
import pytest
import shots_fixture
import torch
from kitchens_fixture import CFG as TOKEN_CFG
from latent_fixture import made_up
from planning_fixture import on_cpu
from torch import Tensor
from trainings_fixture import (
    E_TAU,
    PREDICTOR,
    SCORER,
    clear_task,
    collected,
    ended,
    fit_e_tau,
    fit_predictor,
    job_of,
    memory_task,
    scorer_queries,
    segment_task,
    units,
)

from schemas.base import Record
from schemas.results import CurvePoint
from schemas.training import TrainConfig
from trajpilot_core.models.attentive_probe import AttentiveProbe
from trajpilot_core.models.scorer import GateThenRankScorer
from trajpilot_core.training import dev_scores, fit_event, fit_latent, fit_probe, scorer_fit
from trajpilot_core.training import fit_predictor as predictor_module
from trajpilot_core.training.dev_scores import MOST_SAMPLED, mid_accuracy, sampled_fit
from trajpilot_core.training.fit_predictor import measurer, new_predictor
from trajpilot_core.training.jobs import Fit, Task, put_task
from trajpilot_core.training.loop import seeded
from trajpilot_core.training.scorer import NEVER, decide, judged, scores_at
from trajpilot_core.training.scorer_fit import train_scorer

SHORT = TrainConfig(epochs=3, patience=None, batch=32, lr=3e-3, precision="fp32")
Fitted = tuple[dict[str, Tensor], list[CurvePoint]]


def test_the_sample_is_as_large_as_dev_at_most_bounded_and_the_same_every_time() -> None:
    sizes = {3: 1000, 4: 20, 5: 70, 7: 9000}, {3: 40, 4: 50, 6: 9, 7: 5000}
    fitted, dev = ({h: torch.arange(n) for h, n in part.items()} for part in sizes)
    before = torch.get_rng_state()
    sample = sampled_fit(fitted, dev, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    assert {h: len(rows) for h, rows in sample.items()} == {3: 40, 4: 20, 7: MOST_SAMPLED}
    for h, rows in sample.items():
        assert rows.tolist() == sorted(set(rows.tolist()))
        assert 0 <= int(rows[0]) <= int(rows[-1]) < len(fitted[h])
    again, other = (sampled_fit(fitted, dev, seed) for seed in (1, 2))
    assert all(torch.equal(again[h], rows) for h, rows in sample.items())
    assert not torch.equal(other[3], sample[3])


def e_tau(folder: Path) -> Fitted:
    return fit_e_tau(segment_task(60, 20, is_clear=True), folder, E_TAU.replace(dropout=0.2, train=SHORT))


def predictor(folder: Path) -> Fitted:
    config = PREDICTOR.replace(dropout=0.2, trajectory_dropout=0.2, train=SHORT)
    return fit_predictor(memory_task(), "traj", folder, config)


def scorer(folder: Path) -> Fitted:
    config = SCORER.replace(dropout=0.2, train=SHORT)
    queries = [scorer_queries(n, seed, is_clear=True) for n, seed in ((90, 1), (40, 11))]
    fitted = train_scorer(collected(queries[0], queries[1]), config, None, 0, on_cpu(folder))
    return fitted.state, fitted.curve


def from_task(variant: str, config: Record, fit: Fit[Any, Any], task: Task) -> Callable[[Path], Fitted]:
    def fitted(folder: Path) -> Fitted:
        put_task(folder, folder, task)
        return ended(job_of(folder, variant, config), fit)

    return fitted


def latent(folder: Path) -> Fitted:
    config = latent_fixture.CFG.replace(dropout=0.2, train=SHORT)
    task = made_up(n=60)
    fit, dev = ({h: rows.clone() for h, rows in part.items()} for part in (task.fit, task.dev))
    task = replace(task, fit_rows=task.fit_rows.clone(), dev_rows=task.dev_rows.clone(), fit=fit, dev=dev)
    return from_task("plan_trajectory", config, fit_latent.FIT, task)(folder)


N_FIT, EVENTS = 40, 56
ROWS, ACTIONS = torch.arange(EVENTS), torch.arange(EVENTS) % 6
SEEN = units(EVENTS, 3, 16).half()
EVENT = (SEEN, units(EVENTS, 2, 16, seed=1), ROWS[:N_FIT], ROWS[N_FIT:])
"""What is seen, head motion, and which events are fitted and which are dev."""
SHOTS = fit_event.OutcomeTask(*EVENT, SEEN.clone(), ROWS % 2 == 0)
PROBE_CFG = TOKEN_CFG.tuned.replace(rates=(3e-3,), decays=(1e-2,), epochs=3)
PARTS = {"verb": torch.arange(2), "noun": torch.arange(3), "action": torch.arange(6)}
CLIPS = fit_probe.ProbeTask(
    SEEN.clone(), torch.stack([ACTIONS % 2, ACTIONS // 2, ACTIONS], dim=1), ROWS >= N_FIT, PARTS
)


def token_probe(folder: Path) -> Fitted:
    with seeded(0):
        begun = AttentiveProbe(CLIPS.shape(PROBE_CFG)).state_dict()
    task = fit_probe.TokenTask(**vars(CLIPS), token=units(EVENTS, 16).half(), begun=begun)
    config = TOKEN_CFG.replace(epochs=3, rates=PROBE_CFG.rates, decays=PROBE_CFG.decays)
    return from_task("no_traj", config, fit_probe.TOKEN_FIT, task)(folder)


TRAININGS: dict[str, Callable[[Path], Fitted]] = {
    "e_tau": e_tau,
    "traj": predictor,
    "scorer": scorer,
    "latent planner": latent,
    "outcome": from_task("traj", shots_fixture.CFG.replace(train=SHORT), fit_event.SHOT_FIT, SHOTS),
    "action": from_task(
        "traj",
        TOKEN_CFG.replace(train=SHORT),
        fit_event.ACTION_FIT,
        fit_event.ActionTask(*EVENT, ACTIONS, units(6, 16)),
    ),
    "token probe": token_probe,
}


def same(one: Fitted, other: Fitted) -> bool:
    """The same weights and the same rows, train scores aside."""
    rows = [[row for row in curve if row.split == "dev" or row.quantity == "loss"] for _, curve in (one, other)]
    return rows[0] == rows[1] and all(torch.equal(one[0][name], other[0][name]) for name in one[0])


@pytest.mark.parametrize("name", list(TRAININGS))
def test_every_epoch_has_train_scores_and_the_model_is_bit_for_bit_what_it_is_without(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = TRAININGS[name](tmp_path / "whole")
    of = {split: [(r.epoch, r.quantity) for r in whole[1] if r.split == split] for split in ("train", "dev")}
    n_epochs = max(row.epoch for row in whole[1])
    assert sorted(q for q in of["train"] if q[1] != "loss") == sorted(q for q in of["dev"] if q[1] != "threshold")
    assert {epoch for epoch, _ in of["train"]} == set(range(1, n_epochs + 1))
    for module in (predictor_module, fit_latent, dev_scores, scorer_fit):  # measure dev alone
        monkeypatch.setattr(module, "sampled_fit", lambda *_: {})
    alone = TRAININGS[name](tmp_path / "alone")
    assert not [row for row in alone[1] if row.split == "train" and row.quantity != "loss"]
    assert same(whole, alone)


def test_a_measure_that_draws_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, real = TRAININGS["traj"](tmp_path / "a"), predictor_module.measurer

    def drawing(*given: Any, **named: Any) -> Callable[[], dict[str, float]]:
        measure = real(*given, **named)
        return lambda: (torch.rand(1), measure())[1]

    monkeypatch.setattr(predictor_module, "measurer", drawing)
    assert not same(one, TRAININGS["traj"](tmp_path / "b")), "planted: a number of the dropout's generator"


def test_the_predictor_s_train_score_is_that_of_its_fitted_windows() -> None:
    task = clear_task(40, 10)
    with seeded(0):
        model = new_predictor(task, PREDICTOR).eval()
    sample = sampled_fit(task.fit, task.dev, 0)
    assert {h: len(rows) for h, rows in sample.items()} == {3: 10}
    assert all(row in task.fit[3].tolist() for row in sample[3].tolist())
    with torch.no_grad():
        found = measurer(model, task, "no_traj", sample=sample)()
        ends = (task.features[sample[3][:, at]] for at in (0, -1))
        answers = (model(*ends, torch.zeros(10, 3, 16), 3) @ task.bank.T).argmax(-1)[:, 1:-1]
    assert found["train/M@1"] == mid_accuracy({3: answers}, {3: task.labels[sample[3]]})["M@1"]
    assert found["train/M@1 H=3"] == found["train/M@1"]
    assert not [name for name in measurer(model, task, "no_traj")() if name.startswith("train")]


def test_the_scorer_s_train_score_uses_the_threshold_of_dev(tmp_path: Path) -> None:
    train, dev = (scorer_queries(n, seed, is_clear=True) for n, seed in ((30, 1), (12, 11)))
    with seeded(0):
        model = GateThenRankScorer(SCORER, collected(train, dev).shape, None).eval()
    with torch.no_grad():
        found = scorer_fit.measurer(model, train, dev, 8, 0)()
        sample = sampled_fit({2: torch.arange(30)}, {2: torch.arange(12)}, 0)[2]
        gate, choice = decide(model, train, 8)
    expected = scores_at(found["dev/threshold"], gate[sample], judged(choice[sample], train, sample))
    assert {f"train/{k}": v for k, v in expected.items() if k != "threshold"} == {
        k: v for k, v in found.items() if k.startswith("train")
    }
    assert scores_at(NEVER, gate, judged(choice, train, torch.arange(30)))["open rate"] == 0.0
