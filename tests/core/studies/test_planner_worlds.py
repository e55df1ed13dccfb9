"""Planners of other papers in simulated worlds: what is planned, computed once, judged by rule and printed as it is."""

from pathlib import Path

import pytest
from checkout import CHECKOUT
from claims_fixture import CFG, INFORMED, Planted, evidence_of

from benchmarks import planner_worlds
from deployments.recipes.worlds import claims, planners_in_worlds
from schemas import claims as fixed
from schemas.artifacts import ArtifactRef
from schemas.claims import BASE, ClaimsConfig
from schemas.comparison import PUBLISHED, PlannerCost, PlannerWorldsConfig
from schemas.config import PipelineConfig
from schemas.planners import PLANNERS
from schemas.training import TrainConfig
from trajpilot_core.engine.execution.outcome import Outcome
from trajpilot_core.errors import InputError
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.claims.worlds.jobs import WorldsRoot
from trajpilot_core.studies.claims.worlds.plan import config_of as claims_config_of
from trajpilot_core.studies.claims.worlds.plan import in_one_chain, options_of
from trajpilot_core.studies.planner_worlds.page import NAME, costs_table, render_comparison
from trajpilot_core.studies.planner_worlds.tables import FOLDER, publish_part, read_part
from trajpilot_core.studies.planner_worlds.verdicts import COLLAPSE, judge_collapse, reached
from trajpilot_core.studies.planner_worlds.worlds import (
    PlannedPart,
    TrainingTime,
    config_of,
    plan_lines,
    planned,
    read_costs,
    run_world,
    train_planners,
)

DOCS = CHECKOUT / "docs"
OWN = PlannerWorldsConfig()
SAME = dict.fromkeys(PLANNERS, 25.0)
EVERY_H = OWN.replace(horizons=CFG.horizons)
"""The made-up tables of the claims have all of them."""


def of(part: str) -> PlannedPart:
    return planned(part, OWN, ClaimsConfig())  # type: ignore[arg-type]


def test_each_part_has_a_world_of_its_own_and_that_of_the_claims_has_their_worlds() -> None:
    seeds = {part: [world.seed for world in of(part).worlds] for part in ("pilot", "development", *PUBLISHED)}
    assert seeds == {"pilot": [901], "development": [900], "deterministic": [902], "claims": [3, 4, 5]}
    one, other = (of(part).worlds[0].world for part in ("pilot", "deterministic"))
    assert one.replace(seed=other.seed) == other
    assert (one.rho, one.advance) == (1.0, (0.0, 1.0, 0.0, 0.0))
    assert {world.name for world in of("claims").worlds} == {BASE}


def test_what_the_claims_compute_before_the_planners_is_theirs_in_one_chain() -> None:
    world = of("claims").worlds[0]
    ours, theirs = config_of(world, planners_in_worlds("claims")), claims_config_of(world, claims())
    assert ours.alignment == in_one_chain(claims_config_of(world._replace(kind="main"), claims()).alignment)
    changed = {"planners": theirs.planners, "text_bank": theirs.text_bank}
    assert ours.replace(**changed) == theirs
    assert ours.text_bank.replace(descriptions=theirs.text_bank.descriptions) == theirs.text_bank
    assert ours.planners.seeds == (world.seed,)


def test_the_plan_says_the_cap_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        "cap: 10 thread-minutes for each planner, 30 for each world, 90 in all"
        in (plan_lines(of("claims"), PLANNERS)[-1])
    )
    arguments = planner_worlds.arguments(["--root", str(tmp_path / "root"), "--part", "claims", "--dry"])
    planner_worlds.run(arguments)
    assert "nothing was computed" in capsys.readouterr().err
    assert not (tmp_path / "root").exists()


def test_worlds_of_the_claims_are_refused_until_they_are_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed, "RUN_DIGEST", None)
    with pytest.raises(InputError, match="not fixed yet"):
        planner_worlds.run(planner_worlds.arguments(["--root", str(tmp_path / "root"), "--part", "claims"]))
    assert not (tmp_path / "root").exists()


def quick() -> PipelineConfig:
    """Trainings of two epochs: this is about jobs and tables, not about accuracy."""
    base, short = planners_in_worlds("deterministic"), TrainConfig(epochs=2, patience=None, batch=64)
    nets = base.planners
    few = {"epochs": 2, "step_epochs": None}
    return base.replace(
        ingest=base.ingest.replace(dev_min=1, max_horizon=4),
        text_bank=base.text_bank.replace(bag_width=16),
        alignment=base.alignment.replace(width=16, layers=1, heads=2, hidden=16, train=short),
        predictor=base.predictor.replace(width=16, layers=1, heads=2, hidden=16, queries=1, train=short),
        evaluation=base.evaluation.replace(bootstrap=100),
        planners=nets.replace(
            methods=("pdpp", "viterbi_plan_net"),
            pdpp=nets.pdpp.replace(times=4, sampling_steps=2, epoch_steps=2, train=nets.pdpp.train.replace(epochs=2)),
            viterbi_plan_net=nets.viterbi_plan_net.replace(width=16, train=nets.viterbi_plan_net.train.replace(**few)),
        ),
    )


def small() -> PlannedPart:
    part = of("deterministic")
    size = {"tasks": 2, "positions": 4, "alternatives": 2, "intents": 2, "primitives": 4, "operators": 4}
    size |= {"train_takes": 12, "test_takes": 8, "segments": 7}
    world = part.worlds[0]._replace(world=part.worlds[0].world.replace(**size))
    return part._replace(worlds=(world,), horizons=(3, 4))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[str]]:
    """The tables of a small world, and what the first and the second call said."""
    folder, part = tmp_path_factory.mktemp("worlds"), small()
    runs, heard = WorldsRoot(str(folder / "root"), "cpu"), ([], [])
    for said in heard:
        run_world(part.worlds[0], part, quick(), runs, said.append)
    publish_part(part, OWN, quick(), runs, folder / "docs" / FOLDER)
    return folder, *heard


def test_a_world_is_computed_once_and_every_training_is_timed(published: tuple[Path, list[str], list[str]]) -> None:
    folder, first, second = published
    trained = ("pdpp_h3", "pdpp_h4", "viterbi_plan_net_h3", "viterbi_plan_net_h4")
    assert [line.split(": ")[1].split()[0] for line in first if "trained in" in line] == list(trained)
    assert [line for line in second if "trained in" in line or "computed, " in line] == []
    costs = read_costs(folder / "root" / small().worlds[0].folder)
    assert tuple(costs) == trained
    assert all(cost.is_whole and cost.thread_s is not None and cost.thread_s > 0 for cost in costs.values())


def test_the_tables_hold_every_row_its_ceiling_its_training_and_what_it_took(
    published: tuple[Path, list[str], list[str]],
) -> None:
    tables = read_part(published[0] / "docs" / FOLDER / "deterministic", (3, 4))
    scores = tables.evidence.scores["deterministic"][OWN.deterministic_seed]
    rows = {"no_traj", "no_traj_viterbi", "hmm", "oracle", "previous", "majority", "pdpp", "pdpp_masked"}
    assert rows | {"ceiling/no_traj", "viterbi_plan_net"} <= set(scores.rows)
    judged = {row.check for _, row in tables.evidence.judgements if row.check.startswith("trained: ")}
    models = ("traj", "no_traj", "pdpp", "pdpp_h3", "viterbi_plan_net_h4")
    assert {f"trained: final/{model}, seed {OWN.deterministic_seed}" for model in models} <= judged
    assert {row.word for row in reached(tables.evidence, (3, 4), 100.0) if row.method != "schema"} == {"reached"}
    assert len(tables.costs) == 4
    assert {row.metric for _, row in tables.metrics} >= {"SR", "mIoU"}


def test_a_miss_is_printed(published: tuple[Path, list[str], list[str]]) -> None:
    """Two epochs cannot reach a ceiling: every planner that was trained misses it, and one that was not is not run."""
    tables = read_part(published[0] / "docs" / FOLDER / "deterministic", (3, 4))
    words = {(row.method, row.horizon): row.word for row in reached(tables.evidence, (3, 4), 0.1)}
    assert words["pdpp", 3] == "missed"
    assert words["schema", 3] == "not run"


def with_planners(folder: Path, **changes: object) -> Evidence:
    folder.mkdir()
    return evidence_of(folder, Planted(levels={BASE: INFORMED | SAME}, **changes))  # type: ignore[arg-type]


def verdicts(evidence: Evidence) -> list[str | None]:
    return [row.verdict("claim") for row in judge_collapse(evidence, EVERY_H, CFG)]


def test_the_claim_on_the_horizon_follows_the_effect_that_is_planted(tmp_path: Path) -> None:
    """The lead of Oracle grows, and the ceiling of the planners keeps its distance: the world's fall, not theirs."""
    assert verdicts(with_planners(tmp_path / "a", noise=1.0)) == ["holds", "undecided"]
    assert verdicts(with_planners(tmp_path / "b", noise=1.0, widening=-3.0))[0] == "fails"


def test_the_claim_is_withheld_from_planners_that_were_not_trained_or_reached_too_little(tmp_path: Path) -> None:
    assert verdicts(with_planners(tmp_path / "a", undertrained=("schema",))) == ["undertrained", "undertrained"]
    low = Planted(levels={BASE: INFORMED | SAME | {"pdpp": 10.0}})
    (tmp_path / "b").mkdir()
    assert verdicts(evidence_of(tmp_path / "b", low))[0] == "underpowered"
    (tmp_path / "c").mkdir()
    assert verdicts(evidence_of(tmp_path / "c", Planted())) == ["not run", "not run"]


def test_the_claim_is_one_of_the_papers_and_says_where_it_is_judged() -> None:
    from trajpilot_core.studies.claims.verdicts.hypotheses import CLAIMS

    (known,) = [claim for claim in CLAIMS if claim.key == COLLAPSE[0].key]
    assert known.elsewhere == f"docs/{NAME}"
    assert known.text in COLLAPSE[0].text
    assert {s.row for claim in COLLAPSE for s in claim.statements} == set(PLANNERS)


def test_the_committed_page_is_what_the_committed_tables_give() -> None:
    """Renew it with `trajpilot docs`."""
    for name, content in render_comparison(DOCS).items():
        assert (DOCS / name).read_bytes() == content, f"docs/{name} is not what docs/{FOLDER} gives"


def test_a_part_without_tables_is_not_run(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes((DOCS / NAME).read_bytes())
    page = render_comparison(tmp_path)[NAME].decode()
    for part in PUBLISHED:
        assert f"<!-- computed: {part} rows -->\n\n*Nothing was run for this table.*" in page
        assert f"<!-- computed: {part} run -->\n\nRun: not run." in page


def test_a_planner_over_its_cap_or_with_a_killed_call_says_so(tmp_path: Path) -> None:
    def line(*thread_s: float | None, is_whole: bool = True) -> tuple[str, ...]:
        made = zip(OWN.horizons, thread_s, strict=True)
        costs = [PlannerCost(method="pdpp", seed=1, horizon=h, thread_s=s, is_whole=is_whole) for h, s in made]
        tables = read_part(tmp_path, OWN.horizons)._replace(costs=tuple(costs))
        return tuple(map(str, costs_table("deterministic", tables, OWN).rows[0][-4:]))

    assert line(60.0, 60.0, 90.0) == ("3.5", "4.0", "within", "not run")
    assert line(60.0, 60.0, 90.0, is_whole=False)[0] == "at least 3.5"
    assert line(60.0, 100.0, 90.0)[:3] == ("4.2", "4.0", "over the cap")
    assert line(60.0, 60.0, None)[:3] == ("not run", "4.0", "")


def test_a_training_that_was_killed_is_not_timed_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the first call ends while its training runs."""
    part, heard = small(), list[str]()
    part = part._replace(horizons=(3,))
    world, recipe = part.worlds[0], quick().replace(planners=quick().planners.replace(methods=("pdpp",)))
    options = options_of(world, tmp_path, "cpu")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trajpilot_core.studies.planner_worlds.worlds.execute", killed)
    with pytest.raises(KeyboardInterrupt):
        train_planners(world, ["pdpp_h3"], recipe, options, heard.append)
    assert read_costs(Path(options.root)) == {"pdpp_h3": TrainingTime()}
    ended = Outcome(ArtifactRef(stage="s", uri="u", fingerprint="f", rows=1), 0, 1, 0, {}, 1, 1, 0.1, False, None)
    monkeypatch.setattr("trajpilot_core.studies.planner_worlds.worlds.execute", lambda *_: ended)
    train_planners(world, ["pdpp_h3"], recipe, options, heard.append)
    assert not read_costs(Path(options.root))["pdpp_h3"].is_whole
