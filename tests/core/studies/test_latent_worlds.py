"""Planning in latents in simulated worlds: what is planned, computed once, judged by rule and printed as it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import CHECKOUT
from latent_worlds_fixture import BLIND, CFG, INFORMED, PLAIN, PLANS, Planted, tables_of

from benchmarks import latent_worlds
from deployments.recipes.worlds import latents_in_worlds
from schemas.config import PipelineConfig
from schemas.latent_worlds import BASE, LATENT_WORLDS, NO_INFORMATION, PLAIN_LOOKS, STRAIGHT, LatentWorldsConfig
from schemas.world import claims_world
from trajpilot_core.errors import InputError
from trajpilot_core.studies.claims.verdicts.hypotheses import CLAIMS
from trajpilot_core.studies.claims.worlds.jobs import WorldsRoot
from trajpilot_core.studies.latent_worlds.page import NAME, render_latent
from trajpilot_core.studies.latent_worlds.profiles import claims_of, correlation_profile
from trajpilot_core.studies.latent_worlds.statements import JUDGED_HERE, LATENT_CLAIMS
from trajpilot_core.studies.latent_worlds.tables import FOLDER, LatentTables, publish_part, read_tables, require_fixed
from trajpilot_core.studies.latent_worlds.verdicts import JudgedLatentClaim, judge_latents_study
from trajpilot_core.studies.latent_worlds.worlds import PlannedLatentWorlds, planned, run_world

DOCS = CHECKOUT / "docs"
OWN = LatentWorldsConfig()


def judged(folder: Path, **changes: Any) -> dict[str, JudgedLatentClaim]:
    return {row.claim.key: row for row in judge_latents_study(tables_of(folder, Planted(**changes)), CFG)}


def verdicts(folder: Path, **changes: Any) -> dict[str, tuple[str, ...]]:
    """Claim -> verdict of every statement."""
    return {key: tuple(one.verdict for one in row.findings) for key, row in judged(folder, **changes).items()}


def plans(**of_world: dict[str, float]) -> dict[str, Any]:
    return {"plans": Planted().plans | {world: PLANS | rows for world, rows in of_world.items()}}


def l1(**of_world: dict[str, float]) -> dict[str, Any]:
    return {"l1": Planted().l1 | {world: INFORMED | rows for world, rows in of_world.items()}}


def test_where_every_effect_is_planted_every_claim_and_control_holds_but_that_text_adds_nothing(tmp_path: Path) -> None:
    found = verdicts(tmp_path)
    assert found.pop("text") == ("fails", "holds", "holds")
    assert {word for words in found.values() for word in words} == {"holds"}


def test_a_claim_fails_where_the_effect_is_the_other_way(tmp_path: Path) -> None:
    turned = l1(base={"trajectory": 33.0, "shuffled_trajectory": 14.0})
    found = verdicts(tmp_path / "a", **turned)
    assert (found["motion"][0], found["shuffle"][0]) == ("fails", "fails")
    assert verdicts(tmp_path / "b", **plans(base={"cem": 60.0}))["cem"][0] == "fails"
    assert verdicts(tmp_path / "c", r={BASE: -0.4, STRAIGHT: -0.6})["l1_to_goal"][0] == "fails"
    assert verdicts(tmp_path / "d", **l1(base={"text_and_trajectory": 22.0}))["text"][0] == "holds"


def test_cem_harms_only_where_cem_bank_is_below_too(tmp_path: Path) -> None:
    """The planted case: CEM alone lies below; real motions do as well as none, or better."""
    row = judged(tmp_path / "a", **plans(base={"cem_bank": 50.0}))["cem"]
    assert (row.findings[0].verdict, row.verdict("claim")) == ("holds", "undecided")
    assert judged(tmp_path / "b", **plans(base={"cem_bank": 60.0}))["cem"].verdict("claim") == "fails"


def test_a_control_fails_where_the_effect_is_still_there(tmp_path: Path) -> None:
    seeing = {"l1": Planted().l1 | {NO_INFORMATION: INFORMED, PLAIN_LOOKS: INFORMED}}
    found = verdicts(tmp_path / "a", **seeing)
    assert (found["motion"][1], found["shuffle"][1], found["text"][2]) == ("fails", "fails", "fails")
    blind_text = l1(no_information=BLIND | {"text_and_trajectory": 17.0})
    assert verdicts(tmp_path / "b", **blind_text)["motion"][1:] == ("holds", "fails")
    assert verdicts(tmp_path / "c", **plans(straight={"cem": 35.0}))["cem"][2] == "fails"
    assert verdicts(tmp_path / "d", r={BASE: 0.0, STRAIGHT: 0.0})["l1_to_goal"][1] == "fails"
    helpless = verdicts(tmp_path / "e", **l1(base={"text": 30.0}, plain_looks=PLAIN))
    assert helpless["text"][1:] == ("fails", "vacuous")


def test_a_control_that_has_nothing_to_take_away_is_vacuous(tmp_path: Path) -> None:
    """The planted case: in the informative world the effect is within the margin, too."""
    small = {"trajectory": 29.5, "text": 19.5, "text_and_trajectory": 19.2, "shuffled_trajectory": 19.5}
    found = verdicts(tmp_path / "a", **l1(base=small, no_information=BLIND, plain_looks=PLAIN))
    assert (found["motion"][1:], found["shuffle"][1]) == (("vacuous", "vacuous"), "vacuous")
    harmless = plans(base={"cem": 49.0}, straight={"cem": 50.0})
    assert verdicts(tmp_path / "b", **harmless)["cem"][2] == "vacuous"


def test_models_that_are_not_trained_withhold_what_rests_on_them_and_nothing_else(tmp_path: Path) -> None:
    found = verdicts(tmp_path / "a", undertrained=((BASE, "next_trajectory"),))
    assert found["motion"] == ("undertrained", "undertrained", "holds")
    assert (found["text"][0], found["cem"]) == ("undertrained", ("holds",) * 3)
    found = verdicts(tmp_path / "b", undertrained=((BASE, "plan_trajectory"),))
    assert (found["cem"], found["l1_to_goal"]) == (("undertrained",) * 3, ("undertrained", "holds"))
    whole = tables_of(tmp_path / "c", Planted())
    unknown = whole._replace(evidence=without_judgements(whole))
    assert {one.verdict for row in judge_latents_study(unknown, CFG) for one in row.findings} == {"undertrained"}


def without_judgements(tables: LatentTables) -> Any:
    from dataclasses import replace

    return replace(tables.evidence, judgements=())


def test_planners_that_reach_too_little_of_their_ceilings_are_underpowered(tmp_path: Path) -> None:
    weak = {"latent_no_traj": 25.0, "cem": 15.0, "cem_bank": 15.0, "latent_oracle": 40.0}
    found = verdicts(tmp_path / "a", **plans(base=weak))
    assert (found["cem"][:2], found["l1_to_goal"][0]) == (("underpowered",) * 2, "underpowered")
    assert found["cem"][2] == "holds", "a control is asked whether it is vacuous"


def test_shares_too_far_apart_are_confounded(tmp_path: Path) -> None:
    apart = {"latent_no_traj": 64.0, "latent_oracle": 65.0}
    assert verdicts(tmp_path, **plans(base=apart))["cem"][:2] == ("confounded by training",) * 2


def test_few_takes_or_noise_leave_it_undecided_and_a_missing_world_not_run(tmp_path: Path) -> None:
    close = verdicts(tmp_path / "a", **l1(no_information=BLIND | {"trajectory": 29.05, "text_and_trajectory": 19.05}))
    assert close["motion"][1:] == ("undecided", "undecided")
    planted = Planted()
    few = {name: getattr(planted, name) for name in ("l1", "plans", "r")}
    few = {name: {world: held for world, held in of.items() if world == BASE} for name, of in few.items()}
    found = verdicts(tmp_path / "b", **few)
    assert (found["motion"], found["cem"]) == (("holds", "not run", "not run"), ("holds", "holds", "not run"))
    assert found["l1_to_goal"] == ("holds", "not run")


def test_a_correlation_of_takes_is_that_of_their_windows(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, Planted())
    of = correlation_profile(tables, STRAIGHT, "last_mid", "bank", claims_of(CFG, "r"))
    assert of is not None
    assert np.allclose(of.points, -0.6, atol=0.06)
    assert (of.draws.std(1) < 0.05).all()
    constant = tuple((at, one.replace(accuracy_squares=one.accuracy_sum**2 / 50)) for at, one in tables.energy_takes)
    flat = [(at, one.replace(accuracy_sum=0.0, accuracy_squares=0.0, products=0.0)) for at, one in constant]
    blank = tables._replace(energy_takes=tuple(flat))
    assert correlation_profile(blank, STRAIGHT, "last_mid", "bank", claims_of(CFG, "r")) is None


def test_worlds_differ_from_the_informative_one_by_what_their_names_say() -> None:
    worlds = {one.name: one.world for one in planned("final", OWN).worlds}
    assert tuple(worlds) == LATENT_WORLDS
    base = worlds[BASE].model_dump()
    changed = {name: {k for k, v in world.model_dump().items() if v != base.get(k)} for name, world in worlds.items()}
    assert changed[NO_INFORMATION] - {"name"} == {"kappa", "style"}
    assert changed[PLAIN_LOOKS] - {"name"} == {"label_appearance", "place_fidelity"}
    assert changed[STRAIGHT] - {"name"} == {"straight", "scene"}
    assert [one.seed for one in planned("development", OWN).worlds] == [900]
    assert OWN.seed not in (*range(6), *range(900, 904))
    assert "straight" not in claims_world().content(), "no digest of an older world changes"


def test_the_claims_that_are_judged_here_say_so_in_the_claims_table() -> None:
    there = {claim.key for claim in CLAIMS if claim.elsewhere == f"docs/{NAME}"}
    assert there == set(JUDGED_HERE)
    texts = {claim.key: claim.text for claim in (*CLAIMS,)}
    assert {texts[claim.key] for claim in LATENT_CLAIMS if claim.key in there} == {
        claim.text for claim in LATENT_CLAIMS if claim.key in there
    }


def test_final_worlds_are_computed_with_what_was_fixed_and_with_nothing_else() -> None:
    """The planted faults: another margin, another world, another recipe."""
    recipe = latents_in_worlds()
    require_fixed(planned("final", OWN), OWN, recipe)
    require_fixed(planned("development", OWN), OWN, quick())
    for cfg, of in ((OWN.replace(l1_margin=2.0), recipe), (OWN.replace(test_takes=99), recipe), (OWN, quick())):
        with pytest.raises(InputError, match="not those that were fixed on 2026"):
            require_fixed(planned("final", cfg), cfg, of)


def quick() -> PipelineConfig:
    """Trainings of two epochs: this is about stages and tables, not about what is learned."""
    base = latents_in_worlds()
    own = base.latent
    return base.replace(
        ingest=base.ingest.replace(dev_min=1, max_horizon=4),
        text_bank=base.text_bank.replace(bag_width=16),
        evaluation=base.evaluation.replace(bootstrap=100),
        latent=own.replace(
            width=16,
            layers=1,
            heads=2,
            hidden=16,
            key_width=4,
            correlation_windows=20,
            bootstrap=100,
            train=own.train.replace(epochs=2),
            head=own.head.replace(epochs=2),
            search=own.search.replace(samples=4, iterations=2, elites=2),
        ),
    )


def small(name: str) -> PlannedLatentWorlds:
    part = planned("final", OWN)
    size = {"positions": 4, "alternatives": 2, "intents": 2, "primitives": 4, "operators": 4}
    size |= {"train_takes": 10, "test_takes": 8, "segments": 6}
    worlds = tuple(one._replace(world=one.world.replace(**size)) for one in part.worlds if one.name == name)
    return part._replace(worlds=worlds)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[str]]:
    """The tables of a small straight world, and what the first and the second call said."""
    folder, part = tmp_path_factory.mktemp("latent_worlds"), small(STRAIGHT)
    runs, heard = WorldsRoot(str(folder / "root"), "cpu"), ([], [])
    for said in heard:
        run_world(part.worlds[0], quick(), runs, said.append)
    publish_part(part, OWN, quick(), runs, folder / "docs" / FOLDER)
    return folder, *heard


def test_a_world_goes_through_the_stages_of_a_run_once(published: tuple[Path, list[str], list[str]]) -> None:
    _, first, second = published
    assert len(first) == len(second) == 8
    assert not any("cached" in line.lower() for line in first)
    assert all("computed 0" in line or "cached" in line.lower() or "reused" in line for line in second), second


def test_its_tables_hold_every_figure_that_the_page_shows(published: tuple[Path, list[str], list[str]]) -> None:
    docs = published[0] / "docs"
    cfg = OWN.replace(horizons=(3, 4), bootstrap=100)
    tables = read_tables(docs / FOLDER, cfg.horizons)
    rows = set(tables.evidence.scores[STRAIGHT][OWN.seed].rows)
    assert {"latent_no_traj", "latent_oracle", "cem", "cem_bank", "majority", "ceiling/no_traj"} <= rows
    assert {one.condition for _, one in tables.condition_takes} == set(INFORMED)
    whole = sum(one.total for _, one in tables.condition_takes if one.condition == "copy")
    pairs = sum(one.n_pairs for _, one in tables.condition_takes if one.condition == "copy")
    (copied,) = [c for _, c in tables.conditions if (c.condition, c.split, c.seed) == ("copy", "test", None)]
    assert whole / pairs / 100 == pytest.approx(copied.l1, rel=1e-6)
    (docs / NAME).write_bytes((DOCS / NAME).read_bytes())
    page = render_latent(docs, cfg)
    assert {"latent/cem_vs_none.svg", "latent/cem_full_mean.svg"} < set(page)
    assert "Not run: base, no_information, plain_looks." in page[NAME].decode()
    r = correlation_profile(tables, STRAIGHT, "last_mid", "bank", claims_of(cfg, "r"))
    stored = [
        c.pearson for _, c in tables.correlations if (c.energy, c.distance, c.motion) == ("last_mid", "l1", "bank")
    ]
    assert r is None or np.allclose(r.points[0], np.array(stored, dtype=float), atol=1e-6)


def test_nothing_is_published_of_a_world_that_is_not_done(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no world of the part final is done"):
        publish_part(planned("final", OWN), OWN, quick(), WorldsRoot(str(tmp_path / "root"), "cpu"), tmp_path / "docs")
    assert not (tmp_path / "docs").exists()


def test_the_plan_computes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latent_worlds.run(latent_worlds.arguments(["--root", str(tmp_path / "root"), "--dry"]))
    assert "nothing was computed" in capsys.readouterr().err
    assert not (tmp_path / "root").exists()


def test_the_committed_page_is_what_the_committed_tables_give() -> None:
    """Renew it with `trajpilot docs`."""
    for name, content in render_latent(DOCS).items():
        assert (DOCS / name).read_bytes() == content, f"docs/{name} is not what docs/{FOLDER} gives"


def test_a_page_without_tables_says_not_run(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes((DOCS / NAME).read_bytes())
    page = render_latent(tmp_path)[NAME].decode()
    assert f"Run: not run. Not run: {', '.join(LATENT_WORLDS)}." in page
    assert "| holds |" not in page.partition("computed: statements")[2].partition("<!-- end -->")[0]
