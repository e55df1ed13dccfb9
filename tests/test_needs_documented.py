"""The table of docs/operations.md states what the stages state."""

from pathlib import Path

from deployments.recipes.simulated import demo
from schemas.config import PipelineConfig
from schemas.world import demo_world
from trajpilot_core.engine.needs import Needs, NeedsMachine
from trajpilot_core.engine.planning.stated import needs_cells
from trajpilot_core.engine.resolve import resolve_precision
from trajpilot_core.engine.sizes import CorpusSizes, paper_sizes, world_sizes
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.stages import EVERY_STAGE

PAGE = Path(__file__).parents[1] / "docs/operations.md"
BEGIN, END = "<!-- needs -->\n", "<!-- /needs -->"


def needs_of(stage: AnyStage, sizes: CorpusSizes, config: PipelineConfig, device: str) -> Needs:
    assert stage.needs is not None
    own = resolve_precision(stage.settings(config), device)
    return stage.needs(sizes, own, NeedsMachine(device if stage.on_gpu(own) else "cpu", 2))


def rows() -> list[str]:
    """The rows of the table, in the order of the stages."""
    found = []
    for name, stage in EVERY_STAGE.items():
        small, large = demo(), PipelineConfig()
        at_demo = needs_cells(needs_of(stage, world_sizes(small, demo_world()), small, "cpu"))
        on_gpu = needs_cells(needs_of(stage, paper_sizes(large), large, "cuda"))
        on_cpu = needs_cells(needs_of(stage, paper_sizes(large), large, "cpu"))
        cells = (f"`{name}`", at_demo[0], at_demo[2], *on_gpu[:3], on_cpu[0])
        found.append(f"| {' | '.join(cells)} |")
    return found


def test_the_page_states_what_the_stages_state() -> None:
    """Renew it by pasting the rows of the failure."""
    table = PAGE.read_text().split(BEGIN)[1].split(END)[0].strip().splitlines()
    assert table[2:] == rows()
    assert table[2:] != [row.replace("GB", "MB", 1) for row in rows()]
