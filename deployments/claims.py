"""Flow of the deployment `claims`: the worlds of the claims with the recipe that is fixed for them."""

from typing import Annotated, Any, cast

from prefect import flow
from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from pydantic import Field

from deployments.recipes.worlds import claims as fixed_recipe
from flows.claims import claims_worlds
from schemas.claims import ClaimsRun
from schemas.devices import DeviceName
from schemas.places import Place


@flow(name="claims", persist_result=False)
def claims(
    root: Place = "runs/claims",
    docs: Place = "docs",
    jobs: Annotated[int, Field(ge=1, le=64)] = 2,
    device: DeviceName = "auto",
    worlds: tuple[str, ...] = (),
) -> ClaimsRun:
    """Compute the worlds of the claims, `jobs` at a time, and write docs/claims.md and the pages next to it.

    Args:
        root: Where the worlds write.
        docs: Where the pages and their tables go.
        jobs: Worlds side by side.
        device: Where the models run.
        worlds: Worlds such as base-s3; none: all that are planned.
    """
    runner = cast("TaskRunner[PrefectFuture[Any]]", ThreadPoolTaskRunner(max_workers=jobs))
    side_by_side = claims_worlds.with_options(task_runner=runner)
    return side_by_side(fixed_recipe(), root, docs, device, worlds)
