"""A stage in groups of takes: balance, the keys that must agree, what is skipped, and failures that are not hidden."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_stages import TOYS, VECTOR, options, run_toys, toys_with, tree_bytes, write_corpus

from schemas.artifacts import ShardGroup
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import ComputeContext, Outcome, execute
from trajpilot_core.engine.execution.groups import (
    balance,
    compute_group,
    gather,
    handed,
    made,
    share_out,
    unfinished,
)
from trajpilot_core.engine.key import KeyedStage
from trajpilot_core.engine.stage import AnyStage, Source
from trajpilot_core.errors import InputError, StoreError

STAGES = toys_with(VECTOR, video_s=lambda source: 10.0)
Task = Callable[[PipelineConfig, RunOptions, ShardGroup], object]


def compute(config: PipelineConfig, run: RunOptions, group: ShardGroup) -> None:
    """Compute a group as a worker does."""
    compute_group(config, run, STAGES, group)


def shared(
    run: RunOptions, task: Task = compute, stages: dict[str, AnyStage] = STAGES, target_s: float = 20.0
) -> Outcome:
    """Run the toy's vectors in groups, each handed to `task`; its errors are what a pool would tell."""

    def elsewhere(work: KeyedStage, job: ComputeContext, pending: tuple[Source, ...]) -> tuple[Source, ...]:
        groups = share_out(work, job, pending, target_s)
        config, given = handed(work, job, PipelineConfig())
        reasons = {}
        for group in groups:
            try:
                task(config, given, group)
            except (StoreError, InputError) as error:
                reasons[group.number] = str(error)
        return gather(work, job, pending, groups, reasons) if groups else pending

    return execute(stages["toy_vectors"], PipelineConfig(), run, stages, elsewhere=elsewhere)


@pytest.fixture
def run(tmp_path: Path) -> RunOptions:
    """A root whose first stage is done, over a corpus of seven takes."""
    made_run = options(tmp_path / "root", write_corpus(tmp_path / "corpus", takes=7))
    run_toys(made_run, STAGES, until="toy_ingest")
    return made_run


def alone(run: RunOptions, root: Path) -> dict[str, bytes]:
    """Bytes of the same work in one process."""
    other = run.replace(root=str(root), force=())
    run_toys(other, STAGES, until="toy_vectors")
    return tree_bytes(root)


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=6), st.floats(0, 5000), min_size=1, max_size=60),
    st.floats(1.0, 3000),
)
def test_each_take_is_in_one_group_and_no_group_outweighs_another_by_more_than_a_take(
    video_s: dict[str, float], target_s: float
) -> None:
    groups = balance(video_s, target_s)
    assert sorted(take for group in groups for take in group) == sorted(video_s)
    assert all(groups)
    assert all([take] in groups for take in video_s if video_s[take] > target_s)
    rest = [group for group in groups if all(video_s[take] <= target_s for take in group)]
    loads = [sum(video_s[take] for take in group) for group in rest]
    if len(loads) > 1:
        assert max(loads) - min(loads) <= max(video_s[take] for group in rest for take in group) + 1e-6
        assert len(loads) <= sum(loads) / target_s + 1


def test_groups_make_the_bytes_of_one_process_and_what_is_finished_is_not_shared_out_again(
    run: RunOptions, tmp_path: Path
) -> None:
    labels, told = [], []

    def noted(config: PipelineConfig, given: RunOptions, group: ShardGroup) -> None:
        labels.append(group.label())
        told.append(compute_group(config, given, STAGES, group).message())

    outcome = shared(run, noted)
    assert (outcome.reused, outcome.computed) == (0, 7)
    assert labels[0] == "toy_vectors group 1 of 4 · 2 takes, 20 s of video"
    assert tree_bytes(Path(run.root)) == alone(run, tmp_path / "alone")
    assert list((Path(run.root) / "scratch").iterdir()) == []

    told.clear()
    assert shared(run.replace(force=("toy_vectors",)), noted).computed == 7
    assert told[0] == "reused 0, computed 2, rejected 0"
    assert tree_bytes(Path(run.root)) == alone(run, tmp_path / "alone")

    (Path(run.data_root) / "take0.txt").write_text("7 8 9")
    outcome = shared(run, lambda *_: pytest.fail("one take is left: this process does it"))
    assert (outcome.reused, outcome.computed) == (6, 1)
    (Path(run.data_root) / "take0.txt").write_text("7 8")
    (Path(run.data_root) / "take1.txt").write_text("7 8")
    assert shared(run, lambda *_: pytest.fail("no seconds of video are known"), TOYS).computed == 2


def test_a_group_that_failed_is_named_and_nothing_is_committed_in_its_place(run: RunOptions) -> None:
    def broken(config: PipelineConfig, given: RunOptions, group: ShardGroup) -> None:
        if group.number == 3:
            raise StoreError("the machine caught fire")
        compute(config, given, group)

    with pytest.raises(StoreError, match=r"1 of 4 groups failed.*group 3 \(2 takes.*caught fire"):
        shared(run, broken)
    assert not list((Path(run.root) / "artifacts" / "toy_vectors").glob("*/manifest.json"))
    outcome = shared(run)
    assert (outcome.reused, outcome.computed) == (5, 2)
    buggy = toys_with(STAGES["toy_vectors"], run=lambda work: 1 // 0)
    forced = run.replace(force=("toy_vectors",))
    with pytest.raises(ZeroDivisionError):  # a bug in a stage is not swallowed
        shared(forced, lambda config, given, group: compute_group(config, given, buggy, group), buggy)


def test_groups_of_another_version_corpus_or_root_and_those_that_deliver_nothing_are_refused(
    run: RunOptions, tmp_path: Path
) -> None:
    newer = toys_with(STAGES["toy_vectors"], version=2)
    other = write_corpus(tmp_path / "other", takes=7)
    (other / "take3.txt").write_text("5 5 5")
    there = run.replace(root=str(tmp_path / "there"))
    run_toys(there, STAGES, until="toy_ingest")
    for changes, stages, failed in (
        ({}, newer, "has version 2 here but 1 in the parent run"),
        ({"root": there.root}, STAGES, "4 of 4 groups failed.*no reason known"),  # the workers are content
        ({"data_root": str(other)}, STAGES, "1 of 1 takes differ from those of the parent run: take3"),
    ):

        def elsewhere(config, given, group, stages=stages, changes=changes) -> None:
            compute_group(config, given.replace(**changes), stages, group)

        with pytest.raises(StoreError, match=failed):
            shared(run, elsewhere)
    with pytest.raises(StoreError, match="shards assigned to other processes are missing"):
        execute(STAGES["toy_vectors"], PipelineConfig(), run, STAGES, elsewhere=lambda work, job, pending: ())


def test_a_file_that_changes_meanwhile_costs_its_take_and_not_the_run(run: RunOptions) -> None:
    def touching(config: PipelineConfig, given: RunOptions, group: ShardGroup) -> None:
        if "take3" in group.shards:
            (Path(run.data_root) / "take3.txt").write_text("11 12 13 14")
        compute(config, given, group)

    outcome = shared(run, touching)
    assert dict(outcome.rejected) == {"INPUT_UNSTABLE": 4}
    again = shared(run)
    assert (again.reused, again.computed, dict(again.rejected)) == (6, 1, {})


def test_precision_and_device_are_written_out_for_the_others(run: RunOptions) -> None:
    seen: list[tuple[str, str]] = []
    stages = toys_with(STAGES["toy_vectors"], uses_gpu=True)

    def noted(config: PipelineConfig, given: RunOptions, group: ShardGroup) -> None:
        seen.append((config.features.precision, given.device))
        compute_group(config, given, stages, group)

    shared(run.replace(device="auto", group_video_s=20.0), noted, stages)
    assert set(seen) <= {("fp32", "cpu"), ("bf16", "cuda")}
    assert len(seen) == 4


def test_groups_computed_at_the_same_time_by_several_threads_make_the_same_bytes(
    run: RunOptions, tmp_path: Path
) -> None:
    def elsewhere(work: KeyedStage, job: ComputeContext, pending: tuple[Source, ...]) -> tuple[Source, ...]:
        groups = share_out(work, job, pending, 10.0)
        config, given = handed(work, job, PipelineConfig())
        with ThreadPoolExecutor(2 * len(groups)) as crowd:
            list(crowd.map(lambda group: compute(config, given, group), (*groups, *groups)))
        assert sum(made(job.folder, group) for group in groups) == 7
        assert [unfinished(work, job, group.shards) for group in groups] == [()] * 7
        return gather(work, job, pending, groups, {})

    execute(STAGES["toy_vectors"], PipelineConfig(), run, STAGES, elsewhere=elsewhere)
    assert tree_bytes(Path(run.root)) == alone(run, tmp_path / "alone")


def test_features_and_trajectories_weigh_a_take_by_what_its_segments_cover() -> None:
    from trajpilot_core.stages import STAGES as REAL

    source = Source("take", (), {"segments": [["a", 0.0, 2.5], ["b", 7.0, 8.0]]})
    weigh = {name: stage.video_s(source) for name, stage in REAL.items() if stage.video_s is not None}
    assert weigh == {"features": 3.5, "trajectories": 3.5}
