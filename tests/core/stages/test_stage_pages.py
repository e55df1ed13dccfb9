"""The stages and pools that the pages list are those of the code."""

import re
from pathlib import Path

import yaml
from checkout import CHECKOUT

from trajpilot_core.stages import EVERY_STAGE

ARCHITECTURE, OPERATIONS = CHECKOUT / "docs" / "architecture.md", CHECKOUT / "docs" / "operations.md"
PREFECT_FILE = CHECKOUT / "deployments" / "prefect.yaml"


def table_rows(text: str) -> list[str]:
    """Stages of the table of stages, in order."""
    table = text.partition("| stage | reads | writes |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def pools_of_page(text: str) -> dict[str, set[str]]:
    """Pool -> deployments, as the first paragraphs state them."""
    words = " ".join(text.split())
    gpu = re.search(r"`trajpilot-gpu` for stages that need a GPU \(([^)]*)\)", words)
    cpu = re.search(r"`trajpilot-cpu` for the rest \(([^)]*)\)", words)
    assert gpu is not None
    assert cpu is not None
    return {
        pool: set(re.findall(r"`([\w-]+)`", found[1]))
        for pool, found in (("trajpilot-gpu", gpu), ("trajpilot-cpu", cpu))
    }


def pools_declared(path: Path) -> dict[str, set[str]]:
    """The same as the Prefect file has it; a pool that depends on the recipe counts as CPU."""
    pools: dict[str, set[str]] = {"trajpilot-gpu": set(), "trajpilot-cpu": set()}
    for item in yaml.safe_load(path.read_text())["deployments"]:
        if "group" not in item["tags"]:
            pools["trajpilot-gpu" if item["work_pool"]["name"] == "trajpilot-gpu" else "trajpilot-cpu"].add(
                item["name"]
            )
    return pools


def test_the_table_of_stages_has_every_stage_in_order() -> None:
    assert table_rows(ARCHITECTURE.read_text()) == list(EVERY_STAGE)


def test_a_row_that_is_missing_misnamed_or_out_of_order_is_seen() -> None:
    for before, after in (
        (r"\| `scorer` .*\n", ""),
        ("`features` \\|", "`feature` |"),
        (r"(\| `planners` .*\n)(\| `latent` .*\n)", r"\2\1"),
    ):
        text, n_changed = re.subn(before, after, ARCHITECTURE.read_text())
        assert n_changed == 1
        assert table_rows(text) != list(EVERY_STAGE)


def test_the_page_for_operators_lists_the_deployments_of_each_pool() -> None:
    assert pools_of_page(OPERATIONS.read_text()) == pools_declared(PREFECT_FILE)
    moved, n_changed = re.subn(r"`scorer`,\s", "", OPERATIONS.read_text(), count=1)
    assert n_changed == 1
    assert pools_of_page(moved) != pools_declared(PREFECT_FILE)
