"""Whether this machine has what a run is about to need, before anything of it is started. Imports no Prefect."""

import logging
from pathlib import Path

from schemas.config import PipelineConfig, RunOptions
from schemas.world import WorldConfig
from trajpilot_core.engine.needs import size_text
from trajpilot_core.engine.planning.stated import manifests_of, stated_needs
from trajpilot_core.engine.sizes import world_sizes
from trajpilot_core.stages import selected, stages_of
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.lock import require_free_space

LOG = logging.getLogger("trajpilot")


def require_machine(config: PipelineConfig, options: RunOptions, world: WorldConfig | None) -> None:
    """Say what the stages need that have no output yet, and refuse to begin where the disk has no room for them.

    Of a corpus that nothing was computed of, what the paper's would need is said, and refused is nothing: every stage
    looks again before it begins, when what it reads is there.

    Raises:
        StoreError: too little of the disk is free.
    """
    folder, stages = open_folder(options.root, options.protocols), stages_of(config)
    found = manifests_of(folder, stages)
    sizes = None if world is None else world_sizes(config, world)
    stated = stated_needs(stages, config, options, found, folder, sizes)
    left = stated.of([name for name in selected(options, config) if found[name] is None])
    if not left.by_stage:
        return
    stage, most = left.most("host")
    need = f"{size_text(most.bytes)} of memory ({stage}) and {size_text(left.disk())} of disk{stated.at()}"
    LOG.info("needs at most %s", need)
    if not (stated.sizes.assumed or options.ignore_needs):
        require_free_space(Path(options.root), left.disk(), "a run")
