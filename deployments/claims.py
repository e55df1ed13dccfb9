"""Flow of the deployment `claims`: the worlds of the claims with the recipes that are fixed for them."""

from typing import Any, cast

from prefect import flow
from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from deployments.recipes import claims as files_recipe
from deployments.recipes import claims_controls
from flows.claims import claims_worlds
from schemas.claims import ClaimsRun


@flow(name="claims", persist_result=False)
def claims(
    root: str = "runs/claims", docs: str = "docs", jobs: int = 2, device: str = "auto", worlds: tuple[str, ...] = ()
) -> ClaimsRun:
    """Compute the worlds of the claims, `jobs` at a time, and write docs/claims.md and the pages beside it."""
    runner = cast("TaskRunner[PrefectFuture[Any]]", ThreadPoolTaskRunner(max_workers=jobs))
    side_by_side = claims_worlds.with_options(task_runner=runner)
    return side_by_side(files_recipe(), claims_controls(), root, docs, device, worlds)
