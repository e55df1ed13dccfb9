"""The cause of an outcome reaches only the rows that may see it, planted leaks are detected; and figures of shots."""

import dataclasses
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from shots_fixture import CFG, Shown, fitted, shares, some_shots, untrained, with_probe

from schemas.events import OutcomeRow, ShotAnswer
from trajpilot_core.data.events import TEST, TRAIN, Shots, refuse_late
from trajpilot_core.errors import LeakError
from trajpilot_core.evaluation.event_rows import SHOT_ROWS, OutcomeModels, ShotMethod, check_sight, permuted
from trajpilot_core.evaluation.shot_scores import contrasts_of, scores_of
from trajpilot_core.metrics.shots import SHOT_METRICS, auc
from trajpilot_core.report.outcome_page import main_table
from trajpilot_core.retrieval.events import find_events
from trajpilot_core.training.event_scorer import EventAnswers

SHOTS = some_shots(Shown(in_shot=1.0), n_takes=60)
TESTED = SHOTS.rows(TEST)
QUICK = CFG.train.replace(epochs=5, batch=128, lr=1e-2)


def leaking(read: Callable[[Shots, torch.Tensor], torch.Tensor]) -> ShotMethod:
    """A row that declares the head motion of the shot, and reads something else."""

    def answer(models: OutcomeModels, shots: Shots, rows: torch.Tensor) -> EventAnswers:
        return EventAnswers(read(shots, rows).float().view(len(rows), -1).mean(1))

    return ShotMethod("oracle", "leaking", "what it must not", "event_motion", answer)


LEAKS: dict[str, ShotMethod] = {
    "pixels of the shot": leaking(lambda shots, rows: shots.shot[rows]),
    "text": leaking(lambda shots, rows: shots.labels[rows]),
    "details": leaking(lambda shots, rows: shots.made[rows]),
}


def test_a_row_that_reads_the_outcome_or_more_motion_than_it_declares_is_refused(subtests) -> None:
    check_sight(SHOT_ROWS, untrained(SHOTS), SHOTS, TESTED)
    for name in LEAKS:
        with subtests.test(name), pytest.raises(LeakError, match="sees 'event_motion', but its answer changes"):
            check_sight([LEAKS[name]], untrained(SHOTS), SHOTS, TESTED)

    oracle = next(one for one in SHOT_ROWS if one.id == "oracle")
    for sees in ("pixels", "pixels_motion"):
        with subtests.test(sees), pytest.raises(LeakError, match=sees):
            check_sight([dataclasses.replace(oracle, sees=sees)], untrained(SHOTS), SHOTS, TESTED)


def test_the_head_reads_no_output_of_the_masked_goal() -> None:
    model = untrained(SHOTS).chain.traj
    context, latents, changed = SHOTS.context[:4], torch.randn(4, 2, 16), []
    before, pool_roles = model(context, latents), model.backbone.pool_roles

    def other_goal(x: torch.Tensor) -> torch.Tensor:
        changed.append(pool_roles(x).clone())
        changed[-1][:, -1] = torch.nan
        return changed[-1]

    model.backbone.pool_roles = other_goal  # type: ignore[method-assign]
    assert torch.equal(model(context, latents), before)
    assert len(changed) == 1


def test_no_candidate_is_of_the_take_of_its_query_and_permuted_ones_have_the_motion_of_another_shot() -> None:
    models = untrained(SHOTS)
    rows = models.chain.bank[:20]
    found = find_events(models.chain, SHOTS, rows, 500)
    assert not (SHOTS.take[found.event] == SHOTS.take[rows][:, None])[found.valid].any()
    assert (~found.valid).any(), "more were asked for than there are"
    bank = SHOTS.rows(TRAIN)
    motion_of = permuted(bank, len(SHOTS), 0)
    assert sorted(motion_of[bank].tolist()) == bank.tolist()
    assert (motion_of[bank] != bank).all()


def test_context_that_reaches_past_the_release_is_refused() -> None:
    ids, moment = ("a", "b"), torch.tensor([2.0, 4.0])
    refuse_late(ids, torch.tensor([2.0, 3.5]), moment)
    with pytest.raises(LeakError, match=r"b \(seen until 4\.10 s, shot at 4\.00 s\)"):
        refuse_late(ids, torch.tensor([2.0, 4.1]), moment)


ALL = tuple(one.id for one in SHOT_ROWS)
MARGIN = 0.09
"""Within which a share counts as chance: 360 test shots have a standard error of .026."""


def is_chance(share: float, n: int) -> bool:
    """Return whether the 90 % interval of a share lies within the margin around one half: an equivalence test."""
    half = 1.645 * math.sqrt(0.25 / n)
    return share - half > 0.5 - MARGIN and share + half < 0.5 + MARGIN


CONTROLS = {
    "no error shows": (Shown(), ALL, ()),
    "it shows in the shot": (Shown(in_shot=3.0), ("no_traj", "endpoint_traj", "majority"), ("oracle",)),
    "it shows before the shot alone": (Shown(in_look_before=3.0), ("majority",), ("no_traj", "oracle")),
}
"""World of shots; rows expected at chance in it, where it has them; rows expected above."""
TOKENS = {"no error shows": Shown(tokens=4), "one token before the shot shows it": Shown(in_look_before=3.0, tokens=4)}


@pytest.mark.parametrize("name", TOKENS)
def test_a_probe_uses_a_token_before_the_shot_and_sees_nothing_else(name: str, tmp_path: Path) -> None:
    shots = some_shots(TOKENS[name], n_takes=120)
    cfg = CFG.replace(train=QUICK.replace(epochs=10))
    models = with_probe(untrained(shots, cfg), shots, tmp_path)
    probe = next(one for one in SHOT_ROWS if one.id == "attentive_probe")
    share = shares(models, shots)[probe.id]
    assert share > 0.65 if TOKENS[name].in_look_before else abs(share - 0.5) < 0.1
    check_sight([probe], models, shots, shots.rows(TEST))
    with pytest.raises(LeakError, match="sees 'nothing'"):
        check_sight([dataclasses.replace(probe, sees="nothing")], models, shots, shots.rows(TEST))

    def of_the_shot(models: OutcomeModels, shots: Shots, rows: torch.Tensor) -> EventAnswers | None:
        return probe.answer(models, dataclasses.replace(shots, tokens=shots.shot), rows)

    with pytest.raises(LeakError, match="sees 'pixels'"):
        check_sight([dataclasses.replace(probe, answer=of_the_shot)], models, shots, shots.rows(TEST))


def test_without_tokens_there_is_no_probe_and_the_table_names_the_setting() -> None:
    assert "attentive_probe" not in shares(untrained(SHOTS), SHOTS)
    assert main_table([], []).note.endswith("set features.tokens=temporal")


def test_a_row_is_above_chance_only_where_its_inputs_decide(tmp_path: Path, subtests) -> None:
    cfg = CFG.replace(train=QUICK, scorer=CFG.scorer.replace(train=QUICK))
    for name, (shown, at_chance, above) in CONTROLS.items():
        with subtests.test(name):
            shots = some_shots(shown)
            n = len(shots.rows(TEST))
            found = shares(fitted(shots, tmp_path / name, cfg), shots)
            assert {row for row in at_chance if row in found and not is_chance(found[row], n)} == set(), found
            assert {row for row in above if is_chance(found[row], n)} == set(), found
            if "before" in name:
                factor = shown.in_look_before
                ceiling = 0.5 + math.asin(factor / math.hypot(factor, 1.0)) / math.pi
                assert abs(found["no_traj"] - ceiling) < 0.06, "No-Traj is at its ceiling"
                assert abs(found["oracle"] - ceiling) < 0.08, "head motion adds nothing"


def answers(row: OutcomeRow, right: list[bool], seed: int = 0, takes: int = 8) -> list[ShotAnswer]:
    """Shots that alternate made and missed, of which a row has some right."""
    common = {"row": row, "seed": seed, "gate": None, "opened": None, "candidate": None}
    places = [{"shot_id": f"s{i:03d}", "take_id": f"t{i % takes}", "is_made": i % 2 == 0} for i in range(len(right))]
    said = [0.9 if place["is_made"] == is_right else 0.1 for place, is_right in zip(places, right, strict=True)]
    return [ShotAnswer.model_validate({**common, **place, "p_made": p}) for place, p in zip(places, said, strict=True)]


def test_the_area_under_the_curve_counts_pairs_and_ties_half() -> None:
    rng = np.random.default_rng(0)
    p, made = rng.integers(0, 5, 40) / 4, rng.random(40) < 0.5
    weight = rng.integers(0, 3, (3, 40)).astype(float)
    pairs = [(i, j) for i, j in product(range(40), range(40)) if made[i] and not made[j]]
    for found, w in zip(auc(p, made, weight), weight, strict=True):
        won = sum(w[i] * w[j] * (float(p[i] > p[j]) + 0.5 * float(p[i] == p[j])) for i, j in pairs)
        assert found == pytest.approx(won / sum(w[i] * w[j] for i, j in pairs))


def test_a_row_that_always_answers_made_is_right_for_all_made_and_no_missed_shots() -> None:
    p, made, once = np.full(10, 0.5), np.arange(10) < 6, np.ones((1, 10))
    wanted = {"accuracy": 60.0, "balanced": 50.0, "made": 100.0, "missed": 0.0, "auc": 50.0}
    assert {name: float(SHOT_METRICS[name].values(p, made, once)[0]) for name in wanted} == wanted


def test_scores_count_shots_and_takes_and_few_takes_have_no_interval() -> None:
    found = {(s.metric, s.seed): s for s in scores_of(answers("oracle", [True] * 30 + [False] * 10), CFG)}
    whole = found["accuracy", 0]
    assert (whole.n_shots, whole.n_takes, whole.value) == (40, 8, 75.0)
    assert whole.low <= 75 <= whole.high
    few = scores_of(answers("oracle", [True, False] * 10, takes=3), CFG)[0]
    assert few.high == math.inf


def test_differences_are_paired_and_refuse_other_shots() -> None:
    one = answers("oracle", [True] * 30 + [False] * 10)
    other = answers("no_traj", [True] * 20 + [False] * 20)
    found = next(c for c in contrasts_of([*other, *one], CFG) if c.seed == 0)
    assert found.difference == 25.0
    with pytest.raises(LeakError, match="different shots"):
        contrasts_of([*other, *one[:-1]], CFG)
