"""TrajPilot's token in the attentive probe: rows, controls equally long, verdicts, and what each row may see."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from kitchens_fixture import CFG, TEXT, VIDEOS, Kitchens, token_kitchens, with_tokens
from planning_world import run_stage

from schemas.arrow import rows_of, table_of
from schemas.config import CompletedReport
from schemas.events import TOKEN_CONTROLS, TOKEN_ROWS, ProbeScore, TokenContrast
from schemas.poses import TrajectoryConfig
from schemas.rejects import Reject
from schemas.results import CurvePoint, Judgement
from trajpilot_core.arrays import Codes
from trajpilot_core.data.events import BEFORE, DURING, TEST, TRAIN, ActionEvents, load_events
from trajpilot_core.errors import InputError, LeakError
from trajpilot_core.evaluation.action_scores import (
    check_motion,
    check_trained,
    judge_tokens,
)
from trajpilot_core.evaluation.event_rows import TOKEN_METHODS, TOKEN_NAMES, TokenMaker, TokenModels, check_sight
from trajpilot_core.metrics.epic_kitchens import EPIC_METRICS, SPACES, SUBSETS, ActionPart
from trajpilot_core.models.attentive_probe import AttentiveProbe, ProbeShape
from trajpilot_core.models.events import ActionPredictor, TokenProbe
from trajpilot_core.models.predictor import PredictorShape
from trajpilot_core.report.action_page import build_alone
from trajpilot_core.stages import EVERY_STAGE as STAGES
from trajpilot_core.stages import action_token
from trajpilot_core.stages.event_run import EventRun
from trajpilot_core.stages.report import TOKEN_STAGES
from trajpilot_core.stages.trajectories import spans_of
from trajpilot_core.training.event_scorer import EventAnswers
from trajpilot_core.training.fit_probe import answers

CLIPS = 12
SHORT = CFG.replace(epochs=2, train=CFG.train.replace(epochs=1))


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Kitchens:
    """A finished stage, where head motion tells the action and nothing that is seen before it does."""
    return with_tokens(token_kitchens(), tmp_path_factory.mktemp("token"), SHORT)


@pytest.fixture(scope="module")
def events() -> ActionEvents:
    return load_events(token_kitchens(), seen_s=1.0)[0]


def judged(memory: Kitchens) -> dict[str, str]:
    return {one.check: one.verdict for one in rows_of(Judgement, memory.tables["token_checks"])}


def test_every_row_is_scored_in_every_metric_and_answers_every_tested_clip(memory: Kitchens) -> None:
    found = rows_of(ProbeScore, memory.tables["token_scores"])
    assert len(found) == len(TOKEN_ROWS) * len(EPIC_METRICS) * len(SUBSETS) * len(SPACES)
    assert {one.n_clips for one in found if (one.subset, one.space) == ("overall", "challenge")} == {
        VIDEOS["test"] * CLIPS
    }
    contrasts = rows_of(TokenContrast, memory.tables["token_contrasts"])
    value = {(one.row, one.metric): one.value for one in found if (one.subset, one.space) == ("overall", "challenge")}
    for one in contrasts:
        assert one.difference == pytest.approx(value[one.row, one.metric] - value[one.against, one.metric])
    assert memory.counts == (372, 372)
    checks = judged(memory)
    assert {verdict for check, verdict in checks.items() if check.startswith(("leak", "sight"))} == {"holds"}
    assert len([check for check in checks if check.startswith("token: ")]) == 3
    tuned = memory.entries["token_models"].weights
    assert {name.split("/")[-1] for name in tuned} == {"traj", "no_traj", "scorer", *(f"probe_{r}" for r in TOKEN_ROWS)}


def test_every_row_is_fine_tuned_equally_long(memory: Kitchens) -> None:
    last: dict[str, int] = {}
    for point in rows_of(CurvePoint, memory.tables["token_tuned_curves"]):
        if point.model.startswith("probe/"):
            last[point.model] = max(last.get(point.model, 0), point.epoch)
    assert {name.removeprefix("probe/").split(",")[0] for name in last} == set(TOKEN_ROWS)
    assert set(last.values()) == {SHORT.epochs}


def test_too_little_head_motion_and_predictors_below_the_commonest_label_are_noticed() -> None:
    """Planted: two of ten actions without head motion; a predictor that is right less often than one label."""
    motion = np.ones((10, 2), dtype=bool)
    assert check_motion(motion, 3).verdict == "holds"
    motion[:2, DURING] = False
    assert check_motion(motion, 3).verdict == "undecided"
    point = {"model": "final/traj", "seed": 0, "split": "dev", "quantity": "action"}
    for values, verdict in (
        ([0.4] * 4, "undertrained"),
        ([0.6] * 4, "holds"),
        ([0.6, 0.6, 0.6, 0.51], "undertrained"),
    ):
        curve = [CurvePoint.model_validate({**point, "epoch": n, "value": v}) for n, v in enumerate(values)]
        assert check_trained(curve, np.array([0, 0, 1, 2]))[0].verdict == verdict


def contrast(row: str, against: str, low: float, high: float) -> TokenContrast:
    values = {"row": row, "against": against, "low": low, "high": high, "difference": (low + high) / 2}
    return TokenContrast.model_validate({**values, "metric": "Action", "n_clips": 9, "n_takes": 9})


def test_a_gain_over_the_visual_row_alone_is_no_verdict_for_a_token() -> None:
    """Planted: a token that beats no token, but not a learned constant."""
    above = {row: (1.0, 2.0) for row in TOKEN_CONTROLS}
    ends = {"all": above, "but one": above | {"constant": (-0.5, 2.0)}, "below": above | {"zero": (-2.0, -1.0)}}
    said = {
        name: judge_tokens([contrast("oracle", row, *at) for row, at in of.items()], TOKEN_NAMES)[0].verdict
        for name, of in ends.items()
    }
    assert said == {"all": "holds", "but one": "undecided", "below": "fails"}
    (gains,) = judge_tokens([contrast("constant", "visual", 0.5, 2.0)], TOKEN_NAMES)
    assert gains.verdict == "fails", "a control that gains takes the ground from under every token"
    (too_few,) = judge_tokens([contrast("zero", "visual", -np.inf, np.inf)], TOKEN_NAMES)
    assert too_few.verdict == "undecided"


def some_models(events: ActionEvents) -> TokenModels:
    """Untrained models, whose gate is always open."""
    from trajpilot_core.data.chains import load_e_tau
    from trajpilot_core.data.cross_fitting import FINAL
    from trajpilot_core.models.scorer import GateThenRankScorer
    from trajpilot_core.retrieval.events import EventChain
    from trajpilot_core.training.event_scorer import action_target
    from trajpilot_core.training.scorer_fit import ScorerDecision

    with torch.random.fork_rng():
        torch.manual_seed(0)
        width = events.tokens.shape[2]
        nets = [ActionPredictor(CFG.predictor, PredictorShape(width, 1, TEXT, 3)).eval() for _ in range(2)]
        shape = ProbeShape(width, 4, 5, 20, heads=4, blocks=1)
        probes = {row: TokenProbe(row, shape, TEXT).eval() for row in TOKEN_ROWS}
        scorer = GateThenRankScorer(CFG.scorer, action_target(events, CFG).shape).eval()
    e_tau = load_e_tau(token_kitchens().models("e_tau"), FINAL, 0, "cpu")
    decision = ScorerDecision(threshold=0.0, knn_temperature=1, pool_temperature=1)
    chain = EventChain(e_tau, nets[0], nets[1], None, events.rows(TRAIN))
    classes: dict[ActionPart, Codes] = {"verb": np.arange(4), "noun": np.arange(5), "action": np.arange(20)}

    def read(
        models: Sequence[TokenProbe], rows: torch.Tensor, tokens: Sequence[torch.Tensor]
    ) -> list[dict[ActionPart, Codes]]:
        return [answers(one, events.tokens[rows], classes, token) for one, token in zip(models, tokens, strict=True)]

    return TokenModels(TokenMaker(chain, scorer, decision, CFG), probes, read)


def test_no_row_sees_more_than_it_says_and_one_that_peeks_is_named(events: ActionEvents) -> None:
    """Planted: a token with the action, its text or its head motion in it, and the oracle's."""
    models, rows = some_models(events), events.rows(TEST)
    check_sight(TOKEN_METHODS, models, events, rows)
    honest, oracle = (next(one for one in TOKEN_METHODS if one.id == id_) for id_ in ("no_traj", "oracle"))
    for field in ("labels", "classes", "motions"):

        def peeks(maker: TokenMaker, events: ActionEvents, rows: torch.Tensor, field: str = field) -> EventAnswers:
            seen = getattr(events, field)[rows].float().reshape(len(rows), -1)
            return EventAnswers(honest.answer(maker, events, rows).prediction + 1e-3 * seen[:, -1:])

        with pytest.raises(LeakError, match="'No-Traj' declares that it sees 'pixels'"):
            check_sight([replace(honest, answer=peeks)], models, events, rows)
    with pytest.raises(LeakError, match="'Oracle'"):
        check_sight([replace(oracle, sees="pixels_motion")], models, events, rows)


def test_the_predictor_sees_the_last_second_and_no_predicted_token_and_motion_that_reaches_into_the_gap_is_refused(
    events: ActionEvents,
) -> None:
    """Two frames, 0.5 s apart, are one tubelet; the two tokens after it are left out. Planted: 0.2 s too much.

    A clip without head motion is kept and given none.
    """
    looked, data = load_events(token_kitchens(look=2.0), seen_s=1.0)
    assert torch.equal(looked.context[:, 0], torch.tensor(data.tokens[:, 0]))
    assert events.has_motion[0].tolist() == [part != BEFORE for part in range(2)]
    assert not events.motions[0, BEFORE].any()
    assert events.has_motion[1:].all()
    with pytest.raises(LeakError, match="head motion before 372 of 372 actions ends later than 1 s"):
        load_events(token_kitchens(late_s=0.2), seen_s=1.0, gap_s=1.0)


def test_motions_cover_the_segment_the_action_or_the_gap_between_them() -> None:
    memory = token_kitchens()
    cfg = TrajectoryConfig(source="odometry")
    ends = {
        span: spans_of(memory, cfg.replace(span=span)).slice(0, 1).to_pylist()[0]
        for span in ("segment", "gap", "action")
    }
    assert (ends["segment"]["start_s"], ends["segment"]["end_s"]) == (8.0, 9.0)
    assert (ends["gap"]["start_s"], ends["gap"]["end_s"]) == (9.0, 10.0)
    assert ends["action"]["start_s"] == 10.0 < ends["action"]["end_s"]
    details = memory.tables["details"]
    at = details.schema.get_field_index("annotated_end_s")
    nothing = pa.nulls(details.num_rows, pa.float64())
    memory.tables["details"] = details.set_column(at, details.schema.field(at), nothing)
    assert spans_of(memory, cfg).num_rows == 372
    with pytest.raises(InputError, match="needs segments that each precede an action"):
        spans_of(memory, cfg.replace(span="action"))


def test_a_predictor_that_saw_another_clip_than_its_chain_may_is_noticed(
    memory: Kitchens, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Planted: every chain is fitted on all training clips; what trainings note of themselves shows it."""
    monkeypatch.setattr(EventRun, "fitted", lambda this, chain: this.events.rows(TRAIN))
    other = token_kitchens()  # before the stage, with the finished probe
    other.entries["probe_models"] = memory.entries["probe_models"]
    run_stage(action_token.STAGE, SHORT.replace(epochs=1), other, tmp_path)
    assert judged(other)["leak: tokens are made by models that have not seen the video"] == "fails"


def test_the_page_has_the_rows_their_differences_and_the_checks(memory: Kitchens) -> None:
    alone = [STAGES[name] for name in TOKEN_STAGES]
    for stage in alone:
        memory.tables[f"{stage.name}.rejects"] = table_of(Reject, [])
    takes = memory.tables["takes"]
    simulated = takes.append_column("corpus", pa.array(["simulated"] * takes.num_rows))
    memory.tables["takes"] = simulated
    found = build_alone(memory, CompletedReport(corpus="epic_kitchens", has_token=True), alone)
    page, written = found["report.html"].decode(), json.loads(found["report.json"])
    assert all(name in page for name in TOKEN_NAMES.values())
    assert "SIMULATED" in page
    assert "64.07" not in page, "no published number on a simulated page"
    titles = [table["title"] for table in written["tables"]]
    assert titles[2:] == [
        "With TrajPilot’s token, every tested clip",
        "With TrajPilot’s token, clips whose pair of verb and noun training has",
        "Differences on the same clips",
    ]
    assert {"token", "control"} <= {one["check"].split(":")[0] for one in written["judgements"]}
    without = build_alone(memory, CompletedReport(corpus="epic_kitchens"), alone)["report.html"].decode()
    assert "not run: TrajPilot’s token" in without


def test_only_a_given_token_is_read() -> None:
    shape = ProbeShape(16, 4, 5, 20, heads=4, blocks=1)
    tokens = torch.randn(3, 2, 16)
    one, other = torch.randn(3, TEXT), torch.randn(3, TEXT)
    for row in TOKEN_ROWS:
        model = TokenProbe(row, shape, TEXT).eval()
        same = torch.equal(model(tokens, one)["verb"], model(tokens, other)["verb"])
        assert same == (row in ("visual", "constant", "zero")), row
    zero, plain = TokenProbe("zero", shape, TEXT).eval(), AttentiveProbe(shape).eval()
    plain.load_state_dict(zero.probe.state_dict())
    assert not torch.equal(zero(tokens, one)["verb"], plain(tokens)["verb"]), "a zero token takes attention"
