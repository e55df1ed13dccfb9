"""The page's computed blocks are what the data files and our runs give, and its prose holds no other figure."""

import re
from pathlib import Path

import pytest
from checkout import CHECKOUT
from claims_fixture import CFG, INFORMED, Planted, evidence_of, small_tables, write_all, write_claims_table
from page_blocks import blocks_of
from paper_audit.numbers import NumberKey, published
from paper_audit.page import MARK, audit_blocks

from schemas.claims import BASE, ClaimsConfig
from trajpilot_core.errors import InputError
from trajpilot_core.paper.published import ATOMIC
from trajpilot_core.report.blocks import renewed
from trajpilot_core.report.tables.table import Value
from trajpilot_core.studies.claims.evidence.contrasts import contrast
from trajpilot_core.studies.claims.evidence.tables import read_evidence
from trajpilot_core.studies.paper_audit.ours import our_tables
from trajpilot_core.studies.paper_audit.page import NAME, NOT_OURS, renew_reproduction

DOCS = CHECKOUT / "docs"
PAGE = (DOCS / NAME).read_text()
NUMBER = re.compile(r"[+−]?\d[\d,]*(?:\.\d+)?")
SECTIONS = {int(part.split(".")[0]): part for part in re.split(r"(?m)^### (?=\d)", PAGE)[1:]}


@pytest.mark.slow
def test_the_committed_page_is_what_the_code_renews() -> None:
    """Renew it with `trajpilot docs`."""
    cfg = ClaimsConfig()
    assert renew_reproduction(PAGE, read_evidence(DOCS / "claims", cfg.horizons), cfg) == PAGE


def test_what_the_page_says_of_the_published_numbers_is_recomputed() -> None:
    """Renew it with `PYTHONPATH=.:tests/fixtures python -m paper_audit.page`."""
    blocks, held = audit_blocks(published()), blocks_of(PAGE, MARK)
    assert set(held) == set(blocks)
    assert [name for name, text in blocks.items() if held[name] != text.strip()] == []


def figures_outside(section: str) -> list[str]:
    """Figures of the prose of one statement that stand neither in its block nor in what the paper says."""
    before, block, after = section.partition("<!-- end -->")
    prose = re.sub(
        r"<!-- (?:checked|computed).*?<!-- end -->", "", after.split("<a id")[0].split("\n## ")[0], flags=re.DOTALL
    )
    allowed = {number.strip(",") for number in NUMBER.findall(before + block)}
    return [number for number in NUMBER.findall(prose) if number.strip(",") not in allowed]


@pytest.mark.parametrize("number", SECTIONS)
def test_every_figure_of_the_prose_stands_in_the_block_above_it(number: int) -> None:
    assert figures_outside(SECTIONS[number]) == []


def test_a_figure_that_is_typed_into_the_prose_is_seen() -> None:
    """The planted fault."""
    section = SECTIONS[2].replace("The share falls", "The share of 77.7 falls")
    assert figures_outside(section) == ["77.7"]


def test_another_number_of_the_paper_changes_the_blocks_that_rest_on_it_alone() -> None:
    key = NumberKey(ATOMIC, "qwen_sft_llm", "M@1", 5)
    closer = str(published().printed(*key) + 1)
    blocks, other = audit_blocks(published()), audit_blocks(published().with_value(key, closer))
    assert {name for name, block in blocks.items() if other[name] != block} == {"statement 1", "statement 18"}


@pytest.mark.parametrize("fault", ["<!-- computed: ours 3 -->", "<!-- computed: decisions -->"])
def test_a_page_that_lacks_a_block_or_has_a_strange_one_is_refused(fault: str) -> None:
    nothing = read_evidence(Path("nowhere"), CFG.horizons)
    with pytest.raises(InputError, match="lacks the blocks"):
        renew_reproduction(PAGE.replace(fault, "<!-- computed: cake -->"), nothing, CFG)


def test_prose_around_a_block_is_kept() -> None:
    page = "a\n<!-- computed: x -->\nold\n<!-- end -->\nb 1.5\n"
    assert renewed(page, {"x": "new"}, "page") == "a\n<!-- computed: x -->\n\nnew\n\n<!-- end -->\nb 1.5\n"
    assert renewed(page, {"x": str.upper}, "page").count("OLD") == 1


def test_the_summary_links_every_statement() -> None:
    linked = {int(number) for number in re.findall(r"\]\(#s(\d+)\)", PAGE)}
    assert linked == set(SECTIONS) == {int(number) for number in re.findall(r'<a id="s(\d+)">', PAGE)}


def test_without_runs_our_side_is_not_run(tmp_path: Path) -> None:
    page = renew_reproduction(PAGE, read_evidence(tmp_path, CFG.horizons), CFG)
    ours = {name: text for name, text in blocks_of(page).items() if name not in ("decisions", "labels")}
    assert set(ours.values()) == {NOT_OURS}
    assert len(ours) == 4


def test_the_recovered_share_is_the_quotient_of_the_gains(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, Planted(levels={BASE: INFORMED}, widening=0.0, noise=0.0))
    rows = {row[0]: row[1] for row in our_tables(evidence, CFG)[2].rows}
    assert rows["recovered share"] == Value(pytest.approx(10 / 35), digits=2)
    gain = rows["Scorer − No-Traj, M@1"]
    assert isinstance(gain, Value)
    assert gain.value == pytest.approx(10)


def test_oracle_is_compared_with_the_scorer_and_with_the_pool(tmp_path: Path) -> None:
    write_all(tmp_path, Planted(levels={BASE: INFORMED}))
    rows = {row[0]: row[1] for row in our_tables(read_evidence(tmp_path, CFG.horizons), CFG)[3].rows}
    difference = rows["Scorer − Oracle, M@1"]
    assert isinstance(difference, Value)
    assert difference.high is not None
    assert difference.high < 0
    assert "best of the pool − Oracle, M@1" in rows


def test_plans_that_approach_the_goal_stand_beside_random_order(tmp_path: Path) -> None:
    write_claims_table(tmp_path, "goal_progress", small_tables()["goal_progress"])
    table = our_tables(read_evidence(tmp_path, CFG.horizons), CFG)[11]
    assert [str(cell) for cell in table.rows[0][:3]] == ["monotone, %", "50.0 [50.0, 50.0]", "50.0 [50.0, 50.0]"]
    assert [str(cell) for cell in table.rows[1][1:3]] == ["100.00", "50.00"]


def test_endpoint_accuracy_is_what_the_full_metric_implies(tmp_path: Path) -> None:
    """F@1 is planted equal to M@1, so the endpoints are as good as the middle."""
    evidence = evidence_of(tmp_path, Planted(levels={BASE: INFORMED}, widening=0.0, noise=0.0))
    line = next(row for row in our_tables(evidence, CFG)[18].rows if str(row[0]).startswith("Scorer"))
    mid = our_tables(evidence, CFG)
    values = [cell.value for cell in line[1:] if isinstance(cell, Value)]
    level = contrast(evidence, BASE, "scorer", None, "m1", CFG).profile
    assert level is not None
    assert values == pytest.approx(level.points.mean(axis=0).tolist(), abs=1e-6)
    assert mid[18].header[1:] == tuple(f"H={h}" for h in CFG.horizons)
