"""What is missing or fails reaches the page: ceilings, leak checks, self-checks, seeds, sizes, times."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from claims_fixture import CFG, Planted, small_tables, with_all, write_all, write_claims_table

from schemas.base import Record
from schemas.claims import BASE, NO_STYLE, ClaimsJob, curve_worlds, full_worlds, sweep_worlds, world_seeds
from schemas.results import Ceiling, Headroom, Judgement, LeakCheck
from trajpilot_core.report.tables.table import Table
from trajpilot_core.studies.claims.evidence.readings import name, spread
from trajpilot_core.studies.claims.evidence.tables import Evidence, Origin, read_evidence
from trajpilot_core.studies.claims.pages.ceilings import ceiling_bounds, ceilings_tables, ceilings_verdict, needed_rows
from trajpilot_core.studies.claims.pages.checks import leaks_tables, leaks_verdict, planned_origins, self_checks_tables
from trajpilot_core.studies.claims.pages.run import facts, run_tables
from trajpilot_core.studies.claims.pages.scorer import gate_table, pool_table, queries_table
from trajpilot_core.studies.claims.pages.worlds import sweep_tables

Rows = list[tuple[Origin, Record]]


def printed(tables: Sequence[Table]) -> str:
    """What readers see of some tables."""
    return "\n".join(table.markdown() for table in tables)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("docs") / "claims"
    write_all(path, with_all(Planted(n_takes=8)))
    return path


@pytest.fixture(scope="module")
def evidence(planted: Path) -> Evidence:
    return read_evidence(planted, CFG.horizons)


@pytest.fixture
def folder(planted: Path, tmp_path: Path) -> Path:
    """A copy of everything that was planted."""
    for file in planted.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def with_rows(folder: Path, table: str, rows: Rows) -> Evidence:
    """Everything but one table as planted."""
    write_claims_table(folder, table, rows)
    return read_evidence(folder, CFG.horizons)


def cell(row: str, metric: str = "M@1", horizon: int | None = None, difference: float = -10.0) -> Ceiling:
    binding = horizon is None and metric in ("M@1", "MSeq")
    return Ceiling(
        variant=row,
        horizon=horizon,
        metric=metric,
        value=35.0 + difference,
        ceiling=35.0,
        difference=difference,
        standard_error=1.0,
        n_takes=30,
        n_windows=1000,
        binding=binding,
        above=difference > 3.0,
    )


def whole(evidence: Evidence) -> Rows:
    """Every binding cell that is asked for, far below its ceiling."""
    return [
        (Origin(world, seed), cell(row, metric))
        for world in (*full_worlds(), *curve_worlds(CFG))
        for seed in world_seeds(CFG, world)
        for row in needed_rows(evidence, world, CFG)
        for metric in ("M@1", "MSeq")
    ]


def test_ceilings_hold_where_every_planned_cell_is_there_and_low(evidence: Evidence, folder: Path) -> None:
    found = with_rows(folder, "ceilings", whole(evidence))
    assert {bound.verdict() for bound in ceiling_bounds(found, CFG)} == {"holds"}
    assert ceilings_verdict(found, CFG).startswith("Every row lies below its ceiling: holds")


@pytest.mark.parametrize(
    ("world", "seed", "row"),
    [
        (BASE, None, None),
        (BASE, 4, None),
        (BASE, None, "scorer_plus"),
        (NO_STYLE, 5, "oracle"),
        ("by_video", 3, None),
        ("takes_8000", 3, None),
    ],
)
def test_ceilings_that_lack_a_world_a_seed_or_a_row_do_not_hold(
    evidence: Evidence, folder: Path, world: str, seed: int | None, row: str | None
) -> None:
    kept = [
        (place, c)
        for place, c in whole(evidence)
        if not (place.world == world and seed in (None, place.seed) and row in (None, getattr(c, "variant", "")))
    ]
    found = with_rows(folder, "ceilings", kept)
    text = printed(ceilings_tables(found, CFG))
    assert "Every row lies below its ceiling: not run" in text
    assert {b.world for b in ceiling_bounds(found, CFG) if b.verdict() == "not run"} == {world}
    assert "not run" in text


def test_a_row_above_its_ceiling_fails(evidence: Evidence, folder: Path) -> None:
    rows = [
        (place, cell("scorer", difference=10.0) if (place.world, getattr(c, "variant", "")) == (BASE, "scorer") else c)
        for place, c in whole(evidence)
    ]
    found = with_rows(folder, "ceilings", rows)
    bounds = [bound for bound in ceiling_bounds(found, CFG) if bound.verdict() == "fails"]
    assert {(bound.world, bound.row) for bound in bounds} == {(BASE, "scorer")}
    assert ceilings_verdict(found, CFG).startswith("Every row lies below its ceiling: fails")


def test_a_difference_that_is_no_number_is_not_below(evidence: Evidence) -> None:
    bound = ceiling_bounds(evidence, CFG)[0]
    assert bound._replace(value=0.0, ceiling=1.0, error=1.0, n_seeds=3, n_planned=3).verdict() == "holds"
    assert bound._replace(value=float("nan"), error=1.0, n_seeds=3, n_planned=3).verdict() == "not run"


def test_a_cell_that_does_not_bind_but_lies_above_is_listed(evidence: Evidence, folder: Path) -> None:
    extra: Rows = [
        (Origin(NO_STYLE, 4), cell("oracle", "M@5", None, 7.0)),
        (Origin(BASE, 3), cell("scorer", "M@1", 4, 8.0)),
        (Origin(BASE, 3), cell("scorer", "FSeq", 5)),
    ]
    text = printed(ceilings_tables(with_rows(folder, "ceilings", [*whole(evidence), *extra]), CFG))
    assert "3 cells, 2 above;" in text
    assert f"| {NO_STYLE} 4 | {name('oracle')} | M@5 | mean | 42.0 | 35.0 | +7.0 |" in text
    assert f"| {BASE} 3 | {name('scorer')} | M@1 | 4 | 43.0 |" in text


def leak(title: str, value: float, verdict: str) -> LeakCheck:
    bound = None if verdict == "not run" else 50.0
    return LeakCheck.model_validate({"check": title, "value": value, "bound": bound, "verdict": verdict, "detail": "%"})


def leaks(title: str = "leak: x") -> Rows:
    return [(place, leak(title, 20.0, "holds")) for place in planned_origins(CFG)]


def test_nothing_is_given_away_where_every_planned_world_was_checked(folder: Path) -> None:
    text = leaks_verdict(with_rows(folder, "leaks", leaks()), CFG)
    assert text == "No leak found: holds (12 checks in 12 worlds and seeds, 0 fail, 0 not run)"


def test_the_worst_leak_of_a_check_is_the_one_that_is_shown(folder: Path) -> None:
    rows = [(place, leak("leak: x", 70.0, "fails") if place == (BASE, 4) else row) for place, row in leaks()]
    text = printed(leaks_tables(with_rows(folder, "leaks", rows), CFG))
    assert "| leak: x | 12 | **fails** | 70 | 50 | base 4 | % |" in text
    assert "No leak found: fails (12 checks in 12 worlds and seeds, 1 fail, 0 not run)." in text


def test_a_world_without_leak_checks_and_a_check_that_was_not_run_are_named(folder: Path) -> None:
    rows: Rows = [(place, row) for place, row in leaks() if place not in ((NO_STYLE, 4), (NO_STYLE, 5))]
    rows.append((Origin(BASE, 3), leak("leak: y", 0.0, "not run")))
    text = printed(leaks_tables(with_rows(folder, "leaks", rows), CFG))
    assert (
        "No leak found: not run (11 checks in 10 worlds and seeds, 0 fail, 1 not run; 2 worlds and seeds have none)"
        in text
    )
    assert f"Without any leak check: {NO_STYLE} seed 4, 5." in text
    assert f"| {BASE} 3 | leak: y | % |" in text


CHECKS = ("identity: M@1 is at most M@5", "leak: only test takes are scored", "ceiling: oracle lies below")


def self_checks() -> Rows:
    return [
        (place, Judgement(check=check, verdict="holds", detail="fine"))
        for place in planned_origins(CFG)
        for check in CHECKS
    ]


@pytest.mark.parametrize("check", CHECKS)
def test_a_self_check_that_fails_reaches_the_page(folder: Path, check: str) -> None:
    bad = Judgement(check=check, verdict="fails", detail="12 of 30 windows")
    rows = [
        (place, bad if (place, getattr(r, "check", "")) == ((NO_STYLE, 5), check) else r) for place, r in self_checks()
    ]
    text = printed(self_checks_tables(with_rows(folder, "judgements", rows), CFG))
    assert f"| {NO_STYLE} 5 | {check} | **fails** | 12 of 30 windows |" in text
    assert "| 11 | 1 | 0 | 0 |  |" in text


def test_a_world_without_self_checks_is_named(folder: Path) -> None:
    rows = [(place, row) for place, row in self_checks() if place != (BASE, 5)]
    text = printed(self_checks_tables(with_rows(folder, "judgements", rows), CFG))
    assert text.count(f"| 11 | 0 | 0 | 0 | {BASE} seed 5 |") == 3


def test_missing_seeds_are_counted_on_the_page_of_the_scorer(folder: Path) -> None:
    tables = small_tables()
    for table in ("gate", "headroom", "study"):
        write_claims_table(folder, table, [(place, row) for place, row in tables[table] if place.seed < 5])
    evidence = read_evidence(folder, CFG.horizons)
    for table in (gate_table(evidence, CFG), pool_table(evidence, CFG), queries_table(evidence, CFG)):
        assert "; 2 of 3 seeds)" in table.markdown()
    assert "seeds" not in spread([1.0, 2.0, 3.0], 3)


def test_a_seed_that_lacks_a_horizon_enters_no_mean_over_horizons(folder: Path) -> None:
    rows = [
        (place, row)
        for place, row in small_tables()["headroom"]
        if not (isinstance(row, Headroom) and (place.seed, row.horizon) == (4, 8))
    ]
    assert "; 2 of 3 seeds)" in pool_table(with_rows(folder, "headroom", rows), CFG).markdown()


def test_a_headroom_that_was_not_run_has_no_pool(folder: Path) -> None:
    assert "Nothing was run" in pool_table(with_rows(folder, "headroom", []), CFG).markdown()


def test_all_nine_points_of_the_sweep_stand_on_the_page(evidence: Evidence) -> None:
    tables = sweep_tables(evidence, CFG)
    assert len(tables) == 2
    for table in tables:
        points = {(str(row[1]), str(row[0])) for row in table.rows}
        assert points == {(f"{kappa:g}", f"{style:g}") for kappa, style in sweep_worlds(CFG).values()}
        assert "not run" not in table.markdown()
    assert len(sweep_worlds(CFG)) == 9


def test_the_page_says_on_what_size_and_what_was_not_run(evidence: Evidence) -> None:
    text = " ".join(facts(evidence, CFG))
    assert "each a world and models of its own: 1,400 takes for training, 400 test takes" in text
    assert "Not run" not in text
    partly = Evidence(**{**vars(evidence), "scores": {BASE: {3: evidence.scores[BASE][3]}}})
    assert "Not run: base (seed 4, 5), no_style (seed 3, 4, 5)" in " ".join(facts(partly, CFG))
    assert "Not run: all worlds." in " ".join(facts(Evidence(**{**vars(evidence), "scores": {}}), CFG))
    text = printed(run_tables(evidence, CFG))
    assert "| (96, 2, 10) |" in text
    assert all(f"| {world} |" in text for world in (*curve_worlds(CFG), "by_video", "sweep_k0_s0"))


def with_run(evidence: Evidence, **changes: object) -> Evidence:
    """The same tables with another run.json."""
    assert evidence.run is not None
    return Evidence(**{**vars(evidence), "run": evidence.run.replace(**changes)})


def test_a_job_that_nobody_timed_is_said(evidence: Evidence) -> None:
    jobs = tuple(
        ClaimsJob(world=BASE, seed=3, job=name, status="done", seconds=seconds)
        for name, seconds in (("world", None), ("features", 600.0), ("predictor", 6.0))
    )
    text = " ".join(facts(with_run(evidence, jobs=jobs), CFG))
    assert (
        "Cost: 0.2 hours, summed over the jobs, of which several may have run at once; 1 of 3 jobs not timed." in text
    )


def test_the_page_says_when_jobs_were_begun_and_on_which_machines(evidence: Evidence) -> None:
    run = {"first_started": "2026-11-23T09:08:07+00:00", "last_started": "2026-11-24T10:09:08+00:00"}
    text = " ".join(facts(with_run(evidence, **run, version="0.1.0, commit abc", machines=("one", "two")), CFG))
    assert "jobs begun from 2026-11-23 09:08 to 2026-11-24 10:09 UTC" in text
    assert "on one; two (CPU)" in text
    assert "version 0.1.0, commit abc" in text
