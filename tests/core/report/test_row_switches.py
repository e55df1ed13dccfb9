"""What the script switches and sorts by: every row and every number is found (in a browser: docs, the report)."""

import json
from importlib import resources

from report_page import Reader
from synthetic_results import Kept

from trajpilot_core.methods import METHODS
from trajpilot_core.report.tables.names import row_name


def test_every_row_of_the_run_can_be_switched_and_is_found_by_its_id(kept: Kept, page: Reader) -> None:
    offered = [(a["data-of"], a["data-name"]) for tag, a in page.tags if tag == "div" and "data-of" in a]
    assert [name for _, name in offered] == [row_name(str(id_)) for id_, _ in offered]
    shown = {a["data-row"] for tag, a in page.tags if tag == "tr" and "data-row" in a}
    assert {id_ for id_, _ in offered} == shown, "a row that cannot be switched, or a switch without a row"
    assert shown <= {one.id for one in METHODS}
    legends = {a["data-row"] for tag, a in page.tags if tag == "li" and "data-row" in a}
    assert {"oracle", "scorer", "pool_mean"} <= legends <= shown


def test_what_is_sorted_by_is_the_number_behind_the_cell(kept: Kept, page: Reader) -> None:
    tables = json.loads(kept.documents["report.json"])["tables"]
    known = {cell["key"]: cell["value"] for table in tables for cell in table["cells"]}
    cells = [a for tag, a in page.tags if tag == "td" and "data-key" in a]
    assert len(cells) > 1000
    assert all(float(str(a["data-value"])) == known[str(a["data-key"])] for a in cells)
    heads = {a["data-metric"] for tag, a in page.tags if tag == "th" and "data-metric" in a}
    assert heads == {str(a["data-key"]).rsplit("|", 1)[1] for a in cells}


def test_the_page_offers_nothing_to_click_without_the_script(page: Reader) -> None:
    assert not {"button", "input", "label"} & {tag for tag, _ in page.tags}
    script = resources.files("trajpilot_core.report").joinpath("templates/report.js").read_text()
    for hook in ("data-of", "[data-row=", "data-metric", "dataset.key", "dataset.value"):
        assert hook in script
