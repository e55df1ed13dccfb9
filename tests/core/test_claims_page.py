"""The pages of the claims: equal tables give equal bytes, what is absent is said, prose follows the figures."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from claims_fixture import CFG, INFORMED, Planted, evidence_of, small_tables, with_sweep, write_all

from schemas.claims import BASE, DRAWN
from schemas.results import GateRow, ScorerStudy
from trajpilot_core.claims.aims import judge_aims
from trajpilot_core.claims.attribution import attribution_text, lead, sources
from trajpilot_core.claims.doors import compare_doors, pairs
from trajpilot_core.claims.page import FOLDER, render, write_claims_pages
from trajpilot_core.claims.page_worlds import doors_section
from trajpilot_core.claims.scorer_page import gate_text, identity_text
from trajpilot_core.claims.study import queries_text
from trajpilot_core.claims.tables import FILES, RUN_FILE, Placed, read_evidence, write_claims_table
from trajpilot_core.errors import InputError

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = {
    "differences.svg",
    "scorer_plus.svg",
    "rows.svg",
    "sweep.svg",
    "takes.svg",
    "curves.svg",
    "gate.svg",
    "headroom.svg",
    "queries.svg",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("docs") / FOLDER
    write_all(path, with_sweep(Planted()))
    return path


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, bytes]:
    return render(folder, CFG)


def is_published(folder: Path) -> bool:
    """Say whether docs/claims holds a run; half of one is an error."""
    run, tables = (folder / RUN_FILE).is_file(), [folder / f"{file.name}.parquet" for file in FILES]
    held = [path.name for path in tables if path.is_file()]
    absent = sorted({path.name for path in tables} - set(held))
    if run or held:
        assert run, f"{folder} holds {held} without {RUN_FILE}: commit what `trajpilot claims` wrote, all of it"
        assert not absent, f"{folder} holds {RUN_FILE} without {absent}: commit what `trajpilot claims` wrote"
    return run


@pytest.mark.slow
def test_the_committed_pages_are_what_the_committed_tables_give() -> None:
    """Renew with `trajpilot claims`, which renders the pages from docs/claims when it has nothing left to compute."""
    if not is_published(DOCS / FOLDER):
        pytest.skip("docs/claims holds no tables and no run.json: the claims were not run yet")
    for name, content in render(DOCS / FOLDER).items():
        assert (DOCS / name).read_bytes() == content, f"docs/{name} is not what docs/claims gives"


def test_half_of_a_published_run_is_an_error_and_nothing_at_all_is_not(folder: Path, tmp_path: Path) -> None:
    """The planted fault of the byte comparison above: it must not be skipped once a run is there."""
    assert not is_published(tmp_path)
    (tmp_path / "rows.svg").write_text("drawn of nothing")
    assert not is_published(tmp_path)
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert is_published(tmp_path)
    (tmp_path / "scores.parquet").unlink()
    with pytest.raises(AssertionError, match=r"without .*scores\.parquet"):
        is_published(tmp_path)
    (tmp_path / RUN_FILE).unlink()
    with pytest.raises(AssertionError, match=f"without {RUN_FILE}"):
        is_published(tmp_path)


def test_equal_tables_give_equal_bytes_in_any_order_of_rows(
    folder: Path, pages: dict[str, bytes], tmp_path: Path
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    backwards = [(Placed(place.world, place.seed), row) for place, row in reversed(small_tables()["gate"])]
    write_claims_table(tmp_path, "gate", backwards)
    assert render(tmp_path, CFG) == pages


def test_a_changed_figure_changes_the_page(folder: Path, pages: dict[str, bytes], tmp_path: Path) -> None:
    """The planted fault of the byte comparison: one take of one row differs."""
    planted = with_sweep(Planted(seed_shift={(BASE, "scorer"): (0.0, 0.0, 3.0)}))
    write_all(tmp_path, planted)
    assert render(tmp_path, CFG)["claims.md"] != pages["claims.md"]


def test_every_picture_is_well_formed_and_linked(pages: dict[str, bytes]) -> None:
    drawn = {name.removeprefix("claims/") for name in pages if name.endswith(".svg")}
    assert drawn == PICTURES
    text = (pages["claims.md"] + pages["scorer.md"]).decode()
    for picture in drawn:
        assert ET.fromstring(pages[f"claims/{picture}"]).tag.endswith("svg")
        assert f"(claims/{picture})" in text


def test_every_page_says_that_the_world_is_simulated(pages: dict[str, bytes]) -> None:
    assert "**Simulated world" in pages["claims.md"].decode()
    assert "**Simulated world" in pages["scorer.md"].decode()
    assert all(b"simulated world" in pages[f"claims/{name}"] for name in ("rows.svg", "sweep.svg", "gate.svg"))


def test_nothing_at_all_is_a_page_of_what_was_not_run(tmp_path: Path) -> None:
    pages = render(tmp_path, CFG)
    text = pages["claims.md"].decode()
    assert "**holds**" not in text
    assert "**fails**" not in text
    assert "not run" in text
    assert all(f"`{file.name}.parquet`" in text for file in FILES)
    assert f"`{RUN_FILE}`" in text
    assert "nan" not in text
    assert "nothing is attributed" in pages["scorer.md"].decode()


def test_tables_without_rows_are_as_good_as_none(tmp_path: Path) -> None:
    for file in FILES:
        write_claims_table(tmp_path, file.name, [])
    text = render(tmp_path, CFG)["claims.md"].decode()
    assert "**holds**" not in text
    assert "no scores of the world base" in text


def test_the_pages_are_written_beside_the_folder(folder: Path) -> None:
    written = write_claims_pages(folder.parent, CFG)
    assert {path.name for path in written} == PICTURES | {"claims.md", "scorer.md"}
    assert (folder.parent / "claims.md").is_file()


def test_a_horizon_that_the_claims_do_not_know_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="holds horizons"):
        read_evidence(folder, (3, 4, 5))


def test_a_table_that_the_claims_do_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no table 'score'"):
        write_claims_table(tmp_path, "score", [])


def test_scorer_plus_reaches_its_aims_where_it_is_planted(tmp_path: Path) -> None:
    aims = judge_aims(evidence_of(tmp_path, Planted(levels={BASE: INFORMED})), CFG)
    assert {aims.verdict("m1"), aims.verdict("mseq")} == {"holds"}
    assert [share.verdict for share in aims.shares] == ["holds", "holds"]
    assert aims.shares[0].figure is not None
    assert aims.shares[0].figure.value == pytest.approx(13 / 20, abs=0.05)


@pytest.mark.parametrize(("level", "verdict", "share"), [(34.0, "undecided", "fails"), (30.0, "fails", "fails")])
def test_scorer_plus_misses_its_aims_where_that_is_planted(
    tmp_path: Path, level: float, verdict: str, share: str
) -> None:
    """Pool-Mean stands at 34."""
    aims = judge_aims(evidence_of(tmp_path, Planted(levels={BASE: INFORMED | {"scorer_plus": level}})), CFG)
    against = next(c for c in aims.comparisons if (c.rival, c.metric) == ("pool_mean", "m1"))
    assert against.verdict == verdict
    assert aims.verdict("m1") == "fails"
    assert aims.shares[0].verdict == share


def test_five_comparisons_are_adjusted_together(tmp_path: Path) -> None:
    aims = judge_aims(evidence_of(tmp_path, Planted(levels={BASE: INFORMED})), CFG)
    smallest = 2 / (CFG.bootstrap + 1)
    assert {round(c.adjusted_p, 9) for c in aims.comparisons} == {round(5 * smallest, 9)}


def test_doors_that_order_two_rows_differently_beyond_chance_are_seen(tmp_path: Path) -> None:
    swapped = INFORMED | {"scorer": 25.0, "no_traj": 35.0}
    doors = compare_doors(evidence_of(tmp_path, Planted(levels={BASE: INFORMED, DRAWN: swapped})), "m1", CFG)
    assert doors.verdict == "fails"
    assert ("scorer", "no_traj") in {(swap.row, swap.reference) for swap in doors.swaps if swap.is_shown()}
    assert doors.tau is not None
    assert doors.tau < 1


def test_doors_with_the_same_order_agree(tmp_path: Path) -> None:
    doors = compare_doors(evidence_of(tmp_path, Planted(levels={BASE: INFORMED, DRAWN: INFORMED})), "m1", CFG)
    assert doors.verdict == "holds"


def test_the_second_pair_of_doors_is_the_largest_world_of_the_curve_on_its_one_seed(tmp_path: Path) -> None:
    planned, nearer = pairs(CFG)
    assert (planned, nearer) == ((BASE, DRAWN), (BASE, "takes_600"))
    swapped = INFORMED | {"scorer": 25.0, "no_traj": 35.0}
    evidence = evidence_of(tmp_path, Planted(levels={BASE: INFORMED, DRAWN: INFORMED, nearer[1]: swapped}))
    one, other = (compare_doors(evidence, "m1", CFG, worlds) for worlds in (planned, nearer))
    assert (one.seeds, one.verdict) == (CFG.seeds, "holds")
    assert (other.seeds, other.verdict) == ((CFG.sweep_seed,), "fails")
    page = doors_section([one, other])
    assert page.count("Added after the first tables had been seen") == 1
    assert "`base` and `takes_600`, seed 0" in page


def gate_row(horizon: int | None, rate: float, gain: float, overall: float) -> GateRow:
    return GateRow(
        horizon=horizon, seed=0, open_rate=rate, gain_opened=gain, gain_overall=overall, harmed=1.0, n_opened=5,
        n_windows=10,
    )  # fmt: skip


def test_the_identity_of_the_gate_is_recomputed() -> None:
    assert "holds" in identity_text([gate_row(3, 50.0, 10.0, 5.0)])
    assert "**fails**" in identity_text([gate_row(3, 50.0, 10.0, 5.0), gate_row(4, 50.0, 10.0, 6.0)])


@pytest.mark.parametrize(
    ("first", "last", "gain", "words"),
    [
        (20.0, 80.0, 3.0, ("more often than", "gains in every seed")),
        (80.0, 20.0, -3.0, ("less often than", "loses in every")),
    ],
)
def test_what_is_said_about_the_gate_follows_its_figures(
    first: float, last: float, gain: float, words: tuple[str, str]
) -> None:
    rows = {
        3: [gate_row(3, first, gain, 0.0)],
        8: [gate_row(8, last, gain, 0.0)],
        None: [gate_row(None, 50.0, gain, 0.0)],
    }
    text = gate_text(rows, CFG)
    assert all(word in text for word in words)


@pytest.mark.parametrize(
    ("level", "words"),
    [(25.0, "no gain to attribute"), (15.0, "loses to its own fallback"), (40.0, "(ii) memory")],
)
def test_the_attribution_follows_the_figures(tmp_path: Path, level: float, words: str) -> None:
    levels = INFORMED | {"scorer": level, "no_traj": 25.0, "scorer_no_labels": level}
    evidence = evidence_of(tmp_path, Planted(levels={BASE: levels}))
    text = attribution_text(lead(evidence, "scorer", "no_traj", "m1", CFG), sources(evidence, "scorer", CFG))
    assert words in text
    assert "labels of the candidates" not in text


def test_a_part_of_the_seeds_is_not_attributed(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, Planted(levels={BASE: INFORMED}, missing=((BASE, 2),)))
    text = attribution_text(lead(evidence, "scorer", "no_traj", "m1", CFG), sources(evidence, "scorer", CFG))
    assert "lacks seed 2" in text
    assert "nothing is attributed" in text


@pytest.mark.parametrize(
    ("many", "words"),
    [
        ((33.0, 31.0, 35.0), "rises in every seed"),
        ((25.0, 20.0, 29.0), "falls in every"),
        ((33.0, 20.0, 30.0), "moves by no common"),
    ],
)
def test_what_is_said_about_more_queries_follows_the_seeds(many: tuple[float, ...], words: str) -> None:
    rows = [
        (seed, ScorerStudy(model="scorer", seed=seed, share=share, n_queries=100 + seed, horizon=None,
                           quantity="M@1", value=value, n_windows=9))
        for share, values in ((10.0, (30.0, 30.0, 30.0)), (100.0, many))
        for seed, value in enumerate(values)
    ]  # fmt: skip
    assert f"from 10 to 100 % of its queries M@1 {words}" in queries_text(rows, CFG)
