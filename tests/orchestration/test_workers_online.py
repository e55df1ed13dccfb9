"""How many workers a pool has decides how many trainings make a group."""

from types import SimpleNamespace
from typing import Any, cast

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import WorkerStatus
from prefect.exceptions import ObjectNotFound

from tasks.group_runs import workers_online


class Server:
    """Answers for one deployment, whose pool has some workers."""

    def __init__(self, *workers: WorkerStatus, pool: str | None = "gpu", fault: Exception | None = None) -> None:
        self.workers, self.pool, self.fault = workers, pool, fault

    def read_deployment_by_name(self, name: str) -> Any:
        assert name == "predictor-group/predictor-group"
        if self.fault is not None:
            raise self.fault
        return SimpleNamespace(work_pool_name=self.pool)

    def read_workers_for_work_pool(self, pool: str) -> list[Any]:
        assert pool == self.pool
        return [SimpleNamespace(status=status) for status in self.workers]


def online(server: Server) -> int:
    return workers_online(cast(SyncPrefectClient, server), "predictor-group")


def test_workers_that_went_silent_do_not_count() -> None:
    assert online(Server(WorkerStatus.ONLINE, WorkerStatus.OFFLINE, WorkerStatus.ONLINE)) == 2


def test_a_pool_of_which_nothing_is_known_has_this_worker() -> None:
    unknown = (Server(), Server(WorkerStatus.OFFLINE), Server(pool=None))
    silent = (Server(fault=ObjectNotFound(Exception("gone"))), Server(fault=httpx.ConnectError("refused")))
    assert [online(server) for server in (*unknown, *silent)] == [1] * 5
