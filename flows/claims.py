"""The claims: simulated worlds and their controls, several at a time, then the pages that rest on them."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from prefect import flow
from prefect.futures import as_completed

from schemas.claims import ClaimsConfig, ClaimsJob, ClaimsRun
from schemas.config import PipelineConfig
from tasks.claims import compute_world
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.studies.claims.worlds.collect import publish, published_before, require_fixed
from trajpilot_core.studies.claims.worlds.jobs import WorldsRoot, failure
from trajpilot_core.studies.claims.worlds.plan import chosen
from trajpilot_core.studies.pages import write_pages


@flow(name="claims-worlds", flow_run_name="claims on simulated worlds · {root}", persist_result=False)
def claims_worlds(
    recipe: PipelineConfig, root: str, docs: str, device: str = "cpu", names: Sequence[str] = ()
) -> ClaimsRun:
    """Compute the planned worlds (or those called `names`), then write pages under `docs`.

    Worlds run side by side, as many as the flow's task runner has threads, each in a process of its own. The tables of
    each are written when it ends, so that they can be committed as they come. What is finished is reused, so that an
    interrupted run goes on where it stopped. A fault of the program in one world is published as the failure of that
    world, and raised in the end.

    Raises:
        InputError: the settings are not those that were fixed, or the tables under `docs` have others; nothing runs.
    """
    config, runs = ClaimsConfig(), WorldsRoot(root, resolve_device(device))
    worlds, folder = chosen(config, names), Path(docs) / "claims"
    require_fixed(config, recipe)
    published_before(config, recipe, folder)
    futures = {compute_world.submit(world, recipe, runs): world for world in worlds}
    jobs: list[ClaimsJob] = []
    faults: list[Exception] = []
    for future in as_completed(list(futures)):
        future.wait()
        found = future.state.result(raise_on_failure=False)
        if isinstance(found, Exception):
            faults.append(found)
            jobs.append(failure(futures[future], f"a fault of the program: {type(found).__name__}: {found}"))
        else:
            jobs += cast("tuple[ClaimsJob, ...]", found)
        run = publish(config, recipe, runs, folder, jobs)
    write_pages(Path(docs))
    if faults:
        raise faults[0]
    return run
