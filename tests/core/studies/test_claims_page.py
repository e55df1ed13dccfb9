"""The pages of the claims: equal tables give equal bytes, what is absent is said, prose follows the figures."""

import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from checkout import CHECKOUT
from claims_fixture import CFG, INFORMED, Planted, evidence_of, small_tables, with_sweep, write_all
from trajpilot_core.studies.claims.verdicts.aims import judge_aims

from schemas.claims import BASE, FEATURE_SPACE, ClaimsRun
from schemas.results import GateRow, LeakCheck, ScorerStudy
from trajpilot_core.errors import InputError
from trajpilot_core.studies.claims.evidence.tables import FILES, RUN_FILE, Origin, read_evidence, write_claims_table
from trajpilot_core.studies.claims.pages.page import FOLDER, RAW, render
from trajpilot_core.studies.claims.pages.scorer import identity_text, queries_text
from trajpilot_core.studies.claims.pages.worlds import entry_tables
from trajpilot_core.studies.claims.verdicts.attribution import attribution_text, lead, sources
from trajpilot_core.studies.claims.verdicts.entries import compare_entries, pairs
from trajpilot_core.studies.claims.worlds.plan import make
from trajpilot_core.studies.claims.worlds.provenance import world_sizes
from trajpilot_core.studies.pages import write_pages

DOCS = CHECKOUT / "docs"
PICTURES = {"claims/rows.svg", "claims/gate.svg"}
TEXTS = ("claims.md", "scorer.md")


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of documentation: the committed texts, and planted tables."""
    path = tmp_path_factory.mktemp("docs")
    write_all(path / FOLDER, with_sweep(Planted()))
    for name in TEXTS:
        (path / name).write_bytes((DOCS / name).read_bytes())
    return path


@pytest.fixture(scope="module")
def pages(docs: Path) -> dict[str, bytes]:
    return render(docs, CFG)


def test_a_world_by_latents_is_said_to_test_the_planners_and_no_other_world_is(
    docs: Path, pages: dict[str, bytes], tmp_path: Path
) -> None:
    said = b"tests the planners, not the pipeline"
    assert not any(said in content for content in pages.values())
    folder = copied(docs, tmp_path / "docs")
    path = folder / FOLDER / RUN_FILE
    run = ClaimsRun.model_validate_json(path.read_bytes())
    sizes = [world_sizes({name: make(name, 0, CFG)})[0] for name in (BASE, FEATURE_SPACE)]
    worlds = (sizes[0], sizes[1].replace(recipe="latents"))
    path.write_text(run.replace(worlds=worlds).model_dump_json(), encoding="utf-8")
    changed = render(folder, CFG)
    assert b"Simulated without pixels: feature_space. Each is entered by latents, so it " + said in changed["claims.md"]
    assert said in changed["claims.html"]


def copied(docs: Path, target: Path) -> Path:
    """Another folder with the same texts and tables."""
    shutil.copytree(docs, target, dirs_exist_ok=True)
    return target


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
    """Renew with `trajpilot docs`."""
    if not is_published(DOCS / FOLDER):
        pytest.skip("docs/claims holds no tables and no run.json: the claims were not run yet")
    for name, content in render(DOCS).items():
        assert (DOCS / name).read_bytes() == content, f"docs/{name} is not what docs/claims gives"


def test_half_of_a_published_run_is_an_error_and_nothing_at_all_is_not(docs: Path, tmp_path: Path) -> None:
    """The planted fault of the byte comparison above: it must not be skipped once a run is there."""
    assert not is_published(tmp_path)
    (tmp_path / "rows.svg").write_text("drawn of nothing")
    assert not is_published(tmp_path)
    for file in (docs / FOLDER).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert is_published(tmp_path)
    (tmp_path / "scores.parquet").unlink()
    with pytest.raises(AssertionError, match=r"without .*scores\.parquet"):
        is_published(tmp_path)
    (tmp_path / RUN_FILE).unlink()
    with pytest.raises(AssertionError, match=f"without {RUN_FILE}"):
        is_published(tmp_path)


def test_equal_tables_give_equal_bytes_in_any_order_of_rows(
    docs: Path, pages: dict[str, bytes], tmp_path: Path
) -> None:
    """Tables that are shown as they are follow the order of their rows; all others do not."""
    other = copied(docs, tmp_path)
    backwards = [(Origin(place.world, place.seed), row) for place, row in reversed(small_tables()["curves"])]
    write_claims_table(other / FOLDER, "curves", backwards)
    assert render(other, CFG) == pages


def test_a_changed_figure_changes_the_pages(docs: Path, pages: dict[str, bytes], tmp_path: Path) -> None:
    """The planted fault of the byte comparison: one row is better in one seed."""
    other = copied(docs, tmp_path)
    write_all(other / FOLDER, with_sweep(Planted(seed_shift={(BASE, "scorer"): (0.0, 0.0, 3.0)})))
    made = render(other, CFG)
    assert {name for name in pages if made[name] != pages[name]} == {*TEXTS, "claims.html", "claims/rows.svg"}


def test_every_picture_is_well_formed_and_linked(pages: dict[str, bytes]) -> None:
    assert {name for name in pages if name.endswith(".svg")} == PICTURES
    text = (pages["claims.md"] + pages["scorer.md"]).decode()
    for picture in PICTURES:
        assert ET.fromstring(pages[picture]).tag.endswith("svg")
        assert f"({picture})" in text
    assert pages["claims.html"].count(b'<svg class="chart"') > len(PICTURES)


def test_every_page_says_that_the_world_is_simulated(pages: dict[str, bytes]) -> None:
    for name in TEXTS:
        assert "**Simulated world" in pages[name].decode()
    assert 'role="note">Simulated world.' in pages["claims.html"].decode()
    assert all(b"simulated world" in pages[name] for name in PICTURES)


def test_the_html_page_loads_nothing_and_has_every_small_table(pages: dict[str, bytes]) -> None:
    page = pages["claims.html"].decode()
    assert "default-src &#39;none&#39;" in page
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    for name in RAW:
        rows = len(small_tables().get(name, ())) or page.count("trained: ")
        assert re.search(rf"<summary>{name}\.parquet <span class=\"n\">{rows} rows", page), name


def test_a_label_in_a_table_cannot_become_markup(docs: Path, tmp_path: Path) -> None:
    other = copied(docs, tmp_path)
    check = LeakCheck(check="<script>alert(1)</script>", value=1.0, bound=2.0, verdict="holds", detail="a|b")
    write_claims_table(other / FOLDER, "leaks", [(Origin(BASE, 0), check)])
    made = render(other, CFG)["claims.html"].decode()
    assert "<script>alert" not in made
    assert "&lt;script&gt;alert" in made


def test_nothing_at_all_is_a_page_of_what_was_not_run(tmp_path: Path) -> None:
    for name in TEXTS:
        (tmp_path / name).write_bytes((DOCS / name).read_bytes())
    made = render(tmp_path, CFG)
    for name in (*TEXTS, "claims.html"):
        text = made[name].decode()
        assert "**holds**" not in text
        assert "v-fails" not in text.split("</style>")[-1]
        assert "not run" in text
        assert not re.search(r"\bnan\b", text)
    assert all(f"{file.name}.parquet" in made["claims.md"].decode() for file in FILES)
    assert RUN_FILE in made["claims.md"].decode()
    assert "nothing is attributed" in made["scorer.md"].decode()


def test_tables_without_rows_are_as_good_as_none(tmp_path: Path) -> None:
    for file in FILES:
        (tmp_path / FOLDER).mkdir(exist_ok=True)
        write_claims_table(tmp_path / FOLDER, file.name, [])
    text = render(tmp_path, CFG)["claims.html"].decode()
    assert "v-holds" not in text.split("</style>")[-1]
    assert "no scores of the world base" in text


def test_the_pages_are_written_next_to_the_folder_and_texts_only_where_they_are(docs: Path, tmp_path: Path) -> None:
    written = write_pages(copied(docs, tmp_path / "a"), CFG)
    assert {str(path.relative_to(tmp_path / "a")) for path in written} == {*PICTURES, *TEXTS, "claims.html"}
    (tmp_path / "a" / "scorer.md").unlink()
    assert tmp_path / "a" / "scorer.md" not in write_pages(tmp_path / "a", CFG)


def test_a_horizon_that_the_claims_do_not_know_is_refused(docs: Path) -> None:
    with pytest.raises(InputError, match="holds horizons"):
        read_evidence(docs / FOLDER, (3, 4, 5))


def test_a_table_that_the_claims_do_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no table 'score'"):
        write_claims_table(tmp_path, "score", [])


def test_scorer_plus_reaches_its_aims_where_it_is_planted(tmp_path: Path) -> None:
    aims = judge_aims(evidence_of(tmp_path, Planted(levels={BASE: INFORMED})), CFG)
    assert {aims.verdict("m1"), aims.verdict("mseq")} == {"holds"}
    assert [share.verdict for share in aims.shares] == ["holds", "holds"]
    assert aims.shares[0].figure is not None
    assert aims.shares[0].figure.value == pytest.approx(13 / 20, abs=0.05)


@pytest.mark.parametrize(("level", "verdict", "share"), [(34.0, "undecided", "fails"), (32.0, "fails", "fails")])
def test_scorer_plus_misses_its_aims_where_that_is_planted(
    tmp_path: Path, level: float, verdict: str, share: str
) -> None:
    """Pool-Mean stands at 34."""
    aims = judge_aims(evidence_of(tmp_path, Planted(levels={BASE: INFORMED | {"scorer_plus": level}})), CFG)
    against = next(c for c in aims.comparisons if (c.rival, c.metric) == ("pool_mean", "m1"))
    assert against.verdict == verdict
    assert aims.verdict("m1") == "fails"
    assert aims.shares[0].verdict == share


def test_five_rows_in_two_metrics_are_adjusted_together(tmp_path: Path) -> None:
    aims = judge_aims(evidence_of(tmp_path, Planted(levels={BASE: INFORMED})), CFG)
    smallest = 2 / (CFG.bootstrap + 1)
    assert {round(c.adjusted_p, 9) for c in aims.comparisons} == {round(10 * smallest, 9)}


def test_entries_that_order_two_rows_differently_beyond_chance_are_seen(tmp_path: Path) -> None:
    swapped = INFORMED | {"scorer": 25.0, "no_traj": 35.0}
    orders = compare_entries(evidence_of(tmp_path, Planted(levels={BASE: INFORMED, FEATURE_SPACE: swapped})), "m1", CFG)
    assert orders.verdict == "fails"
    assert ("scorer", "no_traj") in {(swap.row, swap.reference) for swap in orders.swaps if swap.is_shown()}
    assert orders.tau is not None
    assert orders.tau < 1


def test_entries_with_the_same_order_agree(tmp_path: Path) -> None:
    orders = compare_entries(
        evidence_of(tmp_path, Planted(levels={BASE: INFORMED, FEATURE_SPACE: INFORMED})), "m1", CFG
    )
    assert orders.verdict == "holds"


def test_the_second_pair_of_entries_is_the_largest_world_of_the_curve_on_its_one_seed(tmp_path: Path) -> None:
    planned, nearer = pairs(CFG)
    assert (planned, nearer) == ((BASE, FEATURE_SPACE), (BASE, "takes_600"))
    swapped = INFORMED | {"scorer": 25.0, "no_traj": 35.0}
    evidence = evidence_of(tmp_path, Planted(levels={BASE: INFORMED, FEATURE_SPACE: INFORMED, nearer[1]: swapped}))
    one, other = (compare_entries(evidence, "m1", CFG, worlds) for worlds in (planned, nearer))
    assert (one.seeds, one.verdict) == (CFG.seeds, "holds")
    assert (other.seeds, other.verdict) == ((CFG.sweep_seed,), "fails")
    titles = [table.title for table in entry_tables([one, other])]
    assert "Order of the rows in base and takes_600, M@1, seed 0" in titles


def gate_row(horizon: int | None, rate: float, gain: float, overall: float) -> GateRow:
    return GateRow(
        horizon=horizon,
        seed=0,
        open_rate=rate,
        gain_opened=gain,
        gain_overall=overall,
        harmed=1.0,
        n_opened=5,
        n_windows=10,
    )


def test_the_identity_of_the_gate_is_recomputed() -> None:
    assert "holds" in identity_text([gate_row(3, 50.0, 10.0, 5.0)])
    assert "FAILS" in identity_text([gate_row(3, 50.0, 10.0, 5.0), gate_row(4, 50.0, 10.0, 6.0)])


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
        (
            seed,
            ScorerStudy(
                model="scorer",
                seed=seed,
                share=share,
                n_queries=100 + seed,
                horizon=None,
                quantity="M@1",
                value=value,
                n_windows=9,
            ),
        )
        for share, values in ((10.0, (30.0, 30.0, 30.0)), (100.0, many))
        for seed, value in enumerate(values)
    ]
    assert f"from 10 to 100 % of its queries M@1 {words}" in queries_text(rows, CFG)
