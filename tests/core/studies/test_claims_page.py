"""The pages of the claims: equal tables give equal bytes, what is absent is said, prose follows the figures."""

import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow as pa
import pytest
from checkout import CHECKOUT
from claims_fixture import CFG, INFORMED, Planted, evidence_of, small_tables, with_all, write_all, write_claims_table

from schemas.arrow import table_of
from schemas.claims import BASE, BY_FRAMES, BY_VIDEO, ENTRIES
from schemas.results import GateRow, Judgement, LeakCheck
from trajpilot_core.errors import InputError
from trajpilot_core.methods import method
from trajpilot_core.report.loaded import PLANNERS_ONLY
from trajpilot_core.report.tables.results import results_of
from trajpilot_core.studies.claims.evidence.poses import keep_poses
from trajpilot_core.studies.claims.evidence.tables import FILES, RUN_FILE, Origin, read_evidence
from trajpilot_core.studies.claims.pages.page import FOLDER, README, render
from trajpilot_core.studies.claims.pages.scorer import identity_text
from trajpilot_core.studies.claims.pages.summary import NOTHING_YET, plus_text, wrapped
from trajpilot_core.studies.claims.pages.worlds import entry_tables
from trajpilot_core.studies.claims.verdicts.attribution import attribution_text, lead, sources
from trajpilot_core.studies.claims.verdicts.entries import compare_entries
from trajpilot_core.studies.claims.verdicts.families import PLUS, judge_plus, stays_main
from trajpilot_core.studies.pages import write_pages
from trajpilot_core.studies.paper_tables.base import PaperRun

DOCS = CHECKOUT / "docs"
PICTURES = {"claims/rows.svg", "claims/curve.svg"}
TEXTS = ("claims.md", "scorer.md", README)
MOST_WORDS = {"claims.md": 1000, "scorer.md": 900}
"""Asked: about 900 on one page."""
MOST_BYTES = 400_000


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of documentation: the committed texts, and planted tables."""
    path = tmp_path_factory.mktemp("checkout") / "docs"
    path.mkdir()
    write_all(path / FOLDER, with_all(Planted()))
    for name in TEXTS:
        (path / name).write_bytes((DOCS / name).read_bytes())
    return path


@pytest.fixture(scope="module")
def pages(docs: Path) -> dict[str, bytes]:
    return render(docs, CFG)


def test_the_pages_say_that_worlds_without_pixels_test_the_planners(pages: dict[str, bytes]) -> None:
    assert PLANNERS_ONLY.encode() in pages["claims.html"]
    assert "they test the planners, not the pipeline" in pages["claims.md"].decode().replace("\n", " ")


def test_poses_from_video_are_judged_where_a_run_with_two_sources_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: dict[tuple[str, ...], pa.Table] = {}
    found = PaperRun("run", "keystep", results_of([], []), {}, True, lambda *at: held.get(at))
    monkeypatch.setattr("trajpilot_core.studies.claims.evidence.poses.read_run", lambda _: found)
    folder = tmp_path / FOLDER
    before = render(tmp_path, CFG)["claims.html"].decode()
    assert "wants a run of keystep_poses or demo_poses, then trajpilot docs --poses ROOT" in before
    with pytest.raises(InputError, match="has no output of pose_sources"):
        keep_poses("run", folder)
    judged = [Judgement(check="claim: poses serve", verdict="undecided", detail="-0.7 [-4.0, +2.8] points")]
    held["pose_sources", "pose_judgements"] = table_of(Judgement, judged)
    keep_poses("run", folder)
    after = render(tmp_path, CFG)["claims.html"].decode()
    assert "wants a run of keystep_poses" not in after
    line = next(row for row in after.split("<tr>") if "claim: poses serve" in row)
    assert "undecided" in line
    assert "a simulated world in the layout of keystep" in line
    assert "-0.7 [-4.0, +2.8] points" in line


def words_of(page: str) -> int:
    """Count the words of a page, figures included, marks left out."""
    return len([word for word in re.sub(r"<!--.*?-->", "", page).split() if re.search(r"\w", word)])


def test_the_short_pages_are_short_and_the_whole_one_is_small(pages: dict[str, bytes]) -> None:
    """With every table there is."""
    assert {page: words_of(pages[page].decode()) <= most for page, most in MOST_WORDS.items()} == dict.fromkeys(
        MOST_WORDS, True
    ), {page: words_of(pages[page].decode()) for page in MOST_WORDS}
    assert len(pages["claims.html"]) < MOST_BYTES


def test_what_the_readme_says_is_made_from_the_tables(docs: Path, pages: dict[str, bytes], tmp_path: Path) -> None:
    """The planted fault: a figure that is changed by hand, or a table that has changed."""
    readme = pages[README].decode()
    assert "Oracle is +40" in readme
    other = copied(docs, tmp_path / "docs")
    (tmp_path / "README.md").write_bytes(pages[README].replace(b"Oracle is +40", b"Oracle is +99"))
    assert render(other, CFG)[README] == pages[README]
    write_all(other / FOLDER, with_all(Planted(seed_shift={(BASE, "oracle"): (9.0, 9.0, 9.0)})))
    assert render(other, CFG)[README] != pages[README]
    (tmp_path / "README.md").write_text("no block")
    assert README not in render(other, CFG)


def copied(docs: Path, target: Path) -> Path:
    """Another folder with the same texts and tables."""
    shutil.copytree(docs, target, dirs_exist_ok=True)
    shutil.copy(docs / README, target / README)
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


def test_the_committed_pages_are_what_the_committed_tables_give() -> None:
    """Renew with `trajpilot docs`."""
    is_published(DOCS / FOLDER)
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
    other = copied(docs, tmp_path / "docs")
    backwards = [(Origin(place.world, place.seed), row) for place, row in reversed(small_tables()["curves"])]
    write_claims_table(other / FOLDER, "curves", backwards)
    assert render(other, CFG) == pages


def test_a_changed_figure_changes_the_pages(docs: Path, pages: dict[str, bytes], tmp_path: Path) -> None:
    """The planted fault of the byte comparison: one row is better in one seed."""
    other = copied(docs, tmp_path / "docs")
    write_all(other / FOLDER, with_all(Planted(seed_shift={(BASE, "scorer"): (0.0, 0.0, 3.0)})))
    made = render(other, CFG)
    assert {name for name in pages if made[name] != pages[name]} == {*TEXTS, "claims.html", "claims/rows.svg"}


def test_every_picture_is_well_formed_and_linked(pages: dict[str, bytes]) -> None:
    assert {name for name in pages if name.endswith(".svg")} == PICTURES
    text = pages["claims.md"].decode()
    for picture in PICTURES:
        assert ET.fromstring(pages[picture]).tag.endswith("svg")
        assert f"({picture})" in text
    assert pages["claims.html"].count(b'<svg class="chart"') > len(PICTURES)


def test_every_page_says_that_the_world_is_simulated(pages: dict[str, bytes]) -> None:
    for name in ("claims.md", "scorer.md"):
        assert "**Simulated world" in pages[name].decode()
    assert 'role="note">Simulated world.' in pages["claims.html"].decode()
    assert all(b"Simulated world" in pages[name] for name in PICTURES)


def test_the_html_page_loads_nothing(pages: dict[str, bytes]) -> None:
    page = pages["claims.html"].decode()
    assert "default-src &#39;none&#39;" in page
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)


def test_a_label_in_a_table_cannot_become_markup(docs: Path, tmp_path: Path) -> None:
    other = copied(docs, tmp_path / "docs")
    check = LeakCheck(check="<script>alert(1)</script>", value=1.0, bound=2.0, verdict="holds", detail="a|b")
    write_claims_table(other / FOLDER, "leaks", [(Origin(BASE, 0), check)])
    made = render(other, CFG)["claims.html"].decode()
    assert "<script>alert" not in made
    assert "&lt;script&gt;alert" in made


def test_nothing_at_all_is_a_page_of_what_was_not_run(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in TEXTS:
        (docs / name).write_bytes((DOCS / name).read_bytes())
    made = render(docs, CFG)
    for name in (*TEXTS, "claims.html"):
        text = made[name].decode()
        assert "**holds**" not in text
        assert "v-fails" not in text.split("</style>")[-1]
        assert not re.search(r"\bnan\b", text)
        assert "not run" in text or name == README
    assert "Not run: all worlds." in made["claims.md"].decode()
    assert "Nothing is attributed" in made["scorer.md"].decode()
    assert wrapped(NOTHING_YET) in made[README].decode()


def test_worlds_that_are_not_computed_yet_are_not_run_and_the_others_stand(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in TEXTS:
        (docs / name).write_bytes((DOCS / name).read_bytes())
    write_all(docs / FOLDER, Planted(levels={BASE: INFORMED}, n_takes=8))
    text = render(docs, CFG)["claims.md"].decode()
    assert "Not run: no_style (seed 3, 4, 5), no_information (seed 3, 4, 5)" in text
    assert "| **holds** | not run: not run, +40" in text


def test_tables_without_rows_are_as_good_as_none(tmp_path: Path) -> None:
    for file in FILES:
        (tmp_path / FOLDER).mkdir(exist_ok=True)
        write_claims_table(tmp_path / FOLDER, file.name, [])
    text = render(tmp_path, CFG)["claims.html"].decode()
    assert "v-holds" not in text.split("</style>")[-1]
    assert "no scores of the world base" in text


def test_the_pages_are_written_next_to_the_folder_and_texts_only_where_they_are(docs: Path, tmp_path: Path) -> None:
    written = write_pages(copied(docs, tmp_path / "a"), CFG)
    assert set(written) == {tmp_path / "a" / name for name in (*PICTURES, *TEXTS, "claims.html")}
    (tmp_path / "a" / "scorer.md").unlink()
    assert tmp_path / "a" / "scorer.md" not in write_pages(tmp_path / "a", CFG)


def test_a_horizon_that_the_claims_do_not_know_is_refused(docs: Path) -> None:
    with pytest.raises(InputError, match="holds horizons"):
        read_evidence(docs / FOLDER, (3, 4, 5))


@pytest.mark.parametrize(("level", "verdict"), [(38.0, "holds"), (34.0, "undecided"), (31.0, "fails")])
def test_scorer_plus_stays_a_main_row_only_above_rows_that_decode_jointly(
    tmp_path: Path, level: float, verdict: str
) -> None:
    """Endpoint-Traj + Viterbi stands at 34, HMM with motion at 33."""
    compared = judge_plus(evidence_of(tmp_path, Planted(levels={BASE: INFORMED | {PLUS: level}})), CFG)
    assert stays_main(compared) == verdict
    assert ("stays a main row" in plus_text(compared)) == (verdict == "holds")
    smallest = 2 / (CFG.bootstrap + 1)
    assert verdict != "holds" or {round(c.adjusted_p, 9) for c in compared} == {round(6 * smallest, 9)}


def test_a_committed_run_that_speaks_against_scorer_plus_has_taken_its_role() -> None:
    """A run in which it is not above its rivals, and a row that is still called a main one, contradict each other."""
    evidence = read_evidence(DOCS / FOLDER, CFG.horizons)
    if stays_main(judge_plus(evidence, CFG)) != "not run":
        assert (method(PLUS).role == "main") == (stays_main(judge_plus(evidence, CFG)) == "holds")


def test_entries_that_order_two_rows_differently_beyond_chance_are_seen(tmp_path: Path) -> None:
    swapped = INFORMED | {"scorer": 25.0, "no_traj": 35.0}
    levels = {**dict.fromkeys(ENTRIES, INFORMED), BY_VIDEO: swapped}
    evidence = evidence_of(tmp_path, Planted(levels=levels))
    orders = {each.worlds: each for each in compare_entries(evidence, "m1", CFG)}
    assert len(orders) == 3
    found = {(p.row, p.reference) for p in orders[BY_VIDEO, BY_FRAMES].opposite if p.is_shown()}
    assert ("no_traj", "scorer") in found
    assert (orders[BY_VIDEO, BY_FRAMES].tau or 0) < (orders[BY_FRAMES, "by_latents"].tau or 0)
    text = "\n".join(table.markdown() for table in entry_tables(evidence, tuple(orders.values()), CFG))
    assert "| by_video and by_frames | No-Traj − Scorer | +" in text
    assert "| by_frames and by_latents |" not in text


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
    [(25.0, "no gain to attribute"), (20.5, "below its own fallback"), (36.0, "(ii) memory")],
)
def test_the_attribution_follows_the_figures(tmp_path: Path, level: float, words: str) -> None:
    levels = INFORMED | {"scorer": level, "no_traj": 25.0, "scorer_no_labels": level + 3}
    evidence = evidence_of(tmp_path, Planted(levels={BASE: levels}))
    text = attribution_text(lead(evidence, "scorer", "no_traj", "m1", CFG), sources(evidence, "scorer", CFG))
    assert words in text
    assert "labels of the candidates" not in text


def test_the_attribution_speaks_the_words_of_the_verdicts(tmp_path: Path) -> None:
    """The planted fault: an interval above zero, of a row that has reached a quarter of its ceiling."""
    weak = INFORMED | {"endpoint_traj": 15.0, "no_traj": 12.0}
    evidence = evidence_of(tmp_path, Planted(levels={BASE: weak}))
    found = sources(evidence, "scorer", CFG)
    assert found[0].findings[0].shown == "holds"
    assert found[0].verdict == "underpowered"
    text = attribution_text(lead(evidence, "scorer", "no_traj", "m1", CFG), found)
    assert "underpowered" in text
    assert "Nothing is attributed" in text


def test_a_part_of_the_seeds_is_not_attributed(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, Planted(levels={BASE: INFORMED}, missing=((BASE, 5),)))
    text = attribution_text(lead(evidence, "scorer", "no_traj", "m1", CFG), sources(evidence, "scorer", CFG))
    assert "lacks seed 5" in text
    assert "Nothing is attributed" in text
