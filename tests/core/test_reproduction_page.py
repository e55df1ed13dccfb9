"""The page is rendered from data; our runs stand under a heading of their own, and say so where there are none."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from trajpilot_core.errors import InputError
from trajpilot_core.reproduction.page import NAME, render, table, write_reproduction
from trajpilot_core.reproduction.simulated import NOT_RUN, SPEAKS, read_claims

DOCS = Path(__file__).parents[2] / "docs"
HORIZONS, SEEDS, TAKES = (3, 5, 8), (0, 1, 2), 8
M1 = {
    "no_traj": {3: 30.0, 5: 25.0, 8: 20.0},
    "scorer": {3: 36.0, 5: 30.0, 8: 24.0},
    "oracle": {3: 40.0, 5: 45.0, 8: 60.0},
}


def scores(**changes: Any) -> pl.DataFrame:
    """Every take is equally good, so means, differences and intervals are known."""
    rows = [
        {
            "world": "base", "variant": variant, "seed": seed, "take_id": f"w{seed}:{take}", "horizon": h,
            "n_windows": 10 + take, "m1": value * (10 + take), "m5": 0.0, "mseq": 0.0,
            "f1": ((h - 2) * value + 2 * 50.0) / h * (10 + take), "f5": 0.0, "fseq": 0.0,
        }
        for variant, by_h in M1.items() for h, value in by_h.items() for seed in SEEDS for take in range(TAKES)
    ]  # fmt: skip
    return pl.DataFrame(rows).with_columns(**changes)


def gate() -> pl.DataFrame:
    rows = [
        {"world": "base", "horizon": h, "seed": seed, "open_rate": rate, "gain_opened": 10.0, "gain_overall": rate / 10,
         "harmed": 5.0, "n_opened": int(rate), "n_windows": 100}
        for seed in SEEDS for h, rate in ((3, 0.0), (5, 40.0), (8, 80.0))
    ]  # fmt: skip
    return pl.DataFrame([*rows, {**rows[0], "horizon": None}])


def headroom() -> pl.DataFrame:
    return pl.DataFrame([
        {"world": "base", "seed": seed, "horizon": h, "pool": pool, "same_step_recall": 50.0, "any_step_recall": 60.0,
         "endpoint_cosine": 0.9 - pool / 100, "endpoint_cosine_random": 0.1, "best_mid_cosine": 0.5 + pool / 100,
         "best_mid_cosine_random": 0.2, "oracle_m1": 70.0, "oracle_mseq": 40.0, "n_windows": 100}
        for seed in SEEDS for h in HORIZONS for pool in (1, 16)
    ])  # fmt: skip


def progress() -> pl.DataFrame:
    return pl.DataFrame([
        {"world": "base", "world_seed": seed, "take_id": f"t{t:02}", "horizon": h, "n_windows": 24,
         "monotone": 24 if h == 3 else 6}
        for seed in SEEDS for t in range(12) for h in HORIZONS
    ])  # fmt: skip


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    folder = tmp_path / "claims"
    folder.mkdir()
    tables = {"scores": scores(), "gate": gate(), "headroom": headroom(), "goal_progress": progress()}
    for name, frame in tables.items():
        frame.write_parquet(folder / f"{name}.parquet")
    return folder


def section(page: str, number: int) -> str:
    """Our side of one contradiction."""
    return page.split(f"#### Simulated world, no. {number}\n")[1].split("\n### ")[0].split("\n## ")[0]


def test_the_committed_page_is_what_the_code_renders() -> None:
    """Renew it with `trajpilot docs`."""
    assert (DOCS / NAME).read_bytes() == render(DOCS / "claims")


def test_writing_puts_the_page_into_the_folder(tmp_path: Path, claims: Path) -> None:
    path = write_reproduction(tmp_path)
    assert path == tmp_path / NAME
    assert path.read_bytes() == render(claims) == render(claims)


def test_without_runs_every_simulated_section_says_not_run(tmp_path: Path) -> None:
    page = render(tmp_path).decode()
    parts = page.split("#### Simulated world, no. ")[1:]
    assert len(parts) == len(SPEAKS) + len(NOT_RUN)
    assert all("Not run" in part.splitlines()[2] for part in parts)
    assert "not comparable" not in page
    assert render(None) == render(tmp_path)


def test_our_figures_stand_below_their_heading_and_nowhere_else(claims: Path) -> None:
    page, without = render(claims).decode(), render(None).decode()
    for number in SPEAKS:
        page = page.replace(section(page, number), "")
        without = without.replace(section(without, number), "")
        assert "not comparable with the published figures" in section(render(claims).decode(), number)
    assert page == without


def test_the_recovered_share_is_computed_from_the_takes(claims: Path) -> None:
    ours = section(render(claims).decode(), 2)
    assert "| recovered share | 0.60 [0.60, 0.60] | 0.25 [0.25, 0.25] | 0.10 [0.10, 0.10] |" in ours
    assert "falls at every step" in ours


def test_a_world_in_which_the_share_grows_is_told_so(claims: Path) -> None:
    better = pl.when((pl.col("variant") == "scorer") & (pl.col("horizon") == 8)).then(60.0 * pl.col("n_windows"))
    scores(m1=better.otherwise(pl.col("m1"))).write_parquet(claims / "scores.parquet")
    assert "does not fall throughout" in section(render(claims).decode(), 2)


def test_oracle_is_compared_with_the_scorer_and_with_the_pool(claims: Path) -> None:
    ours = section(render(claims).decode(), 3)
    assert "| Scorer − Oracle, M@1 | −4.0 [−4.0, −4.0] |" in ours
    assert "| best of the pool of 16 − Oracle, M@1 | +30.0 | +25.0 | +10.0 |" in ours
    assert "at no H." in ours


def test_the_gate_identity_is_checked_on_our_own_rows(claims: Path) -> None:
    assert "The largest deviation from the identity over seeds and horizons is 0.000000 points" in section(
        render(claims).decode(), 4
    )
    gate().with_columns(gain_overall=pl.col("gain_overall") + 1.5).write_parquet(claims / "gate.parquet")
    assert "is 1.500000 points" in section(render(claims).decode(), 4)


def test_plans_that_approach_the_goal_stand_beside_random_order(claims: Path) -> None:
    ours = section(render(claims).decode(), 11)
    assert "| monotone, % | 100.0 [100.0, 100.0] | 25.0 [25.0, 25.0] |" in ours
    assert "The interval holds the fraction of random order at H = 3." in ours


def test_both_readings_of_the_cosine_are_printed(claims: Path) -> None:
    ours = section(render(claims).decode(), 12)
    assert "| mean endpoint cosine, retrieved | 0.890 | 0.740 |" in ours
    assert "| best middle cosine, retrieved | 0.510 | 0.660 |" in ours


def test_endpoint_accuracy_is_what_the_full_metric_implies(claims: Path) -> None:
    assert "| Oracle, implied R@1 of Start and Goal | 50.0 | 50.0 | 50.0 |" in section(render(claims).decode(), 18)


def test_a_gate_that_never_opened_is_counted(claims: Path) -> None:
    assert "opened for no window in 3 of 9 cells" in section(render(claims).decode(), 22)


def test_intervals_come_from_takes(claims: Path) -> None:
    spread = pl.when(pl.col("take_id").str.ends_with("0") & (pl.col("variant") == "oracle")).then(0.0)
    scores(m1=spread.otherwise(pl.col("m1"))).write_parquet(claims / "scores.parquet")
    line = next(x for x in section(render(claims).decode(), 3).splitlines() if x.startswith("| Scorer − Oracle"))
    value, low, high = (float(x.strip(" |[],").replace("−", "-")) for x in line.split("M@1 |")[1].split("|")[0].split())
    assert low < value < high


def test_too_few_takes_have_no_interval(claims: Path) -> None:
    scores().filter(pl.col("take_id").is_in(["w0:0", "w0:1"])).write_parquet(claims / "scores.parquet")
    assert "(too few takes)" in section(render(claims).decode(), 2)


def test_seeds_that_share_their_takes_share_their_resamples(claims: Path) -> None:
    """Three seeds of one world are no three times as many takes: the interval stays that of one seed."""
    noisy = (pl.col("take_id").str.slice(-1).cast(pl.Float64) * pl.col("n_windows")) + pl.col("m1")
    one = scores(take_id=pl.col("take_id").str.slice(-1)).with_columns(
        m1=pl.when(pl.col("variant") == "oracle").then(noisy).otherwise(pl.col("m1"))
    )
    one.write_parquet(claims / "scores.parquet")
    all_seeds = section(render(claims).decode(), 3)
    one.filter(pl.col("seed") == 0).write_parquet(claims / "scores.parquet")
    assert section(render(claims).decode(), 3) == all_seeds


def test_rows_on_different_windows_are_refused(claims: Path) -> None:
    fewer = pl.when((pl.col("variant") == "scorer") & (pl.col("horizon") == 3)).then(1)
    scores(n_windows=fewer.otherwise(pl.col("n_windows"))).write_parquet(claims / "scores.parquet")
    with pytest.raises(InputError, match="different windows"):
        render(claims)


def test_a_take_that_stands_twice_is_refused(claims: Path) -> None:
    pl.concat([scores(), scores()]).write_parquet(claims / "scores.parquet")
    with pytest.raises(InputError, match="twice"):
        render(claims)


def test_a_table_without_a_column_is_refused(claims: Path) -> None:
    gate().drop("harmed").write_parquet(claims / "gate.parquet")
    with pytest.raises(InputError, match="lacks harmed"):
        read_claims(claims)


def test_other_worlds_are_left_out(claims: Path) -> None:
    page = render(claims)
    pl.concat([scores(), scores(world=pl.lit("kappa0"), m1=pl.lit(0.0))]).write_parquet(claims / "scores.parquet")
    assert render(claims) == page
    scores(world=pl.lit("kappa0")).write_parquet(claims / "scores.parquet")
    assert "Not run" in section(render(claims).decode(), 2)


def test_the_page_links_every_finding() -> None:
    page = render(None).decode()
    links = [line.split("](#")[1].split(")")[0] for line in page.splitlines() if "](#" in line]
    heads = [line[4:] for line in page.splitlines() if line.startswith("### ")]
    assert len(links) == len(heads) == 25
    for link, head in zip(links, heads, strict=True):
        assert link == "".join(c for c in head.lower() if c.isalnum() or c in " -").replace(" ", "-")


def test_a_bar_in_a_cell_does_not_break_the_table() -> None:
    assert table(("a", "b"), [("x|y", "z")]) == "| a | b |\n| --- | --- |\n| x\\|y | z |\n"
