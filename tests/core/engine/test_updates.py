"""After an update of the data exactly the touched shards and stages are computed, and what counts then is, byte for
byte, what a run from scratch on the new data makes."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import updates_fixture as updates
from updates_fixture import SHARDED, TRAININGS, counted_bytes, options, run_all, settings, shards_of

from trajpilot_core.corpora.egoexo4d.takes import take_id
from trajpilot_core.engine import key
from trajpilot_core.engine.execution import reuse
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.planning.plan import PlanRow, plan
from trajpilot_core.engine.sink import Sink
from trajpilot_core.stages import STAGES
from trajpilot_core.store.damage import verify

pytestmark = pytest.mark.timeout(1800)
CAMPAIGN = pytest.mark.campaign


class Case(NamedTuple):
    """One update and what must follow from it."""

    update: Callable[[Path], str]
    computed: tuple[str, ...]
    """Sharded stages that compute the updated take, and no other."""
    removed: int
    cached: tuple[str, ...]
    """Whole stages that are reused; all others are computed."""


CASES = [
    Case(updates.video_changed, ("features",), 0, ("text_bank", "alignment")),
    Case(updates.trajectory_replaced, ("trajectories",), 0, ("ingest", "diagnostics", "text_bank")),
    Case(updates.take_added, SHARDED, 0, ()),
    Case(updates.take_removed, (), 1, ()),
    Case(updates.take_renamed, SHARDED, 0, ("text_bank", *TRAININGS)),
    Case(updates.label_fixed, (), 0, ()),
    Case(updates.split_moved, (), 0, ()),
]


class Base(NamedTuple):
    corpus: Path
    root: Path


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    folder = tmp_path_factory.mktemp("base")
    updates.write_corpus(folder / "corpus")
    run_all(folder / "root", folder / "corpus")
    return Base(folder / "corpus", folder / "root")


@pytest.fixture
def delivered(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Stage -> takes whose shard was computed, as they are handed over."""
    found: dict[str, list[str]] = {stage: [] for stage in SHARDED}
    kept = Sink.shard

    def noting(sink: Sink, shard: str, *rest, **named) -> None:
        found[sink.stage].append(shard)
        kept(sink, shard, *rest, **named)

    monkeypatch.setattr(Sink, "shard", noting)
    return found


def copied(base: Base, folder: Path) -> Base:
    """The same somewhere else, so that the update leaves the original alone."""
    return Base(*(Path(shutil.copytree(path, folder / path.name)) for path in base))


def planned(place: Base) -> dict[str, PlanRow]:
    return {row.stage: row for row in plan(STAGES, settings(), options(place.root, place.corpus))}


# All updates; those that another one covers, or the three at once, are left to `make soak`.
@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.update.__name__, marks=[] if case.update is updates.take_added else CAMPAIGN)
        for case in CASES
    ],
)
def test_an_update_computes_what_it_touches_and_ends_with_the_bytes_of_a_run_from_scratch(
    base: Base, tmp_path: Path, delivered: dict[str, list[str]], case: Case
) -> None:
    place = copied(base, tmp_path)
    take = take_id(case.update(place.corpus))
    done = {}
    for stage in STAGES.values():
        row = planned(place)[stage.name] if stage.name in ("ingest", *SHARDED, *TRAININGS) else None
        done[stage.name] = execute(stage, settings(), options(place.root, place.corpus), STAGES)
        n = done[stage.name].computed
        assert row is None or (n == row.compute if row.bound == "exactly" else n <= row.compute), row
    for name in SHARDED:
        assert delivered[name] == ([take] if name in case.computed else []), name
        assert done[name].removed == case.removed
        assert not case.removed or take not in shards_of(place.root, name)
    asked = [name for name in STAGES if done[name].reused + done[name].computed]  # no planner is
    whole = [name for name in asked if name not in SHARDED]
    assert tuple(name for name in whole if done[name].cached) == case.cached

    elsewhere = Path(shutil.copytree(place.corpus, tmp_path / "elsewhere" / "corpus"))
    run_all(tmp_path / "scratch", elsewhere)
    assert counted_bytes(place.root) == counted_bytes(tmp_path / "scratch")
    assert verify(str(place.root), repair=False) == []
    assert all(row.state == "fresh" for row in planned(place).values())


@pytest.mark.slow
@pytest.mark.campaign
def test_three_updates_at_once_compute_what_each_touches_and_their_reversal_computes_nothing(
    base: Base, tmp_path: Path, delivered: dict[str, list[str]]
) -> None:
    place, before = copied(base, tmp_path), counted_bytes(base.root)
    video, poses, _ = (
        take_id(update(place.corpus))
        for update in (updates.video_changed, updates.trajectory_replaced, updates.split_moved)
    )
    run_all(place.root, place.corpus)
    assert delivered == {"trajectories": [poses], "features": [video]}
    run_all(tmp_path / "scratch", place.corpus)
    assert counted_bytes(place.root) == counted_bytes(tmp_path / "scratch")

    shutil.rmtree(place.corpus)
    shutil.copytree(base.corpus, place.corpus)
    assert {outcome.computed for outcome in run_all(place.root, place.corpus).values()} == {0}
    assert counted_bytes(place.root) == before


@pytest.mark.slow
@pytest.mark.campaign
def test_a_video_that_comes_later_computes_its_take_and_ends_with_the_bytes_of_a_run_that_had_it(
    base: Base, tmp_path: Path, delivered: dict[str, list[str]]
) -> None:
    corpus = Path(shutil.copytree(base.corpus, tmp_path / "corpus"))
    uid = updates.video_withheld(corpus)
    take, video = take_id(uid), updates.video_of(base.corpus, uid)
    run_all(tmp_path / "root", corpus)
    assert all(take not in shards_of(tmp_path / "root", name) for name in SHARDED)
    shutil.copy2(video, corpus / video.relative_to(base.corpus))
    place = Base(corpus, tmp_path / "root")
    assert planned(place)["ingest"].why == f"1 file new: {video.relative_to(base.corpus)}"
    for taken in delivered.values():
        taken.clear()
    run_all(place.root, place.corpus)
    assert delivered == {"trajectories": [take], "features": [take]}
    assert counted_bytes(place.root) == counted_bytes(base.root)


def test_a_run_after_no_update_computes_nothing_wherever_the_corpus_lies(base: Base, tmp_path: Path) -> None:
    place = copied(base, tmp_path)
    before = counted_bytes(place.root)
    assert all(outcome.cached for outcome in run_all(place.root, place.corpus).values())
    assert counted_bytes(place.root) == before


def test_a_key_that_is_blind_to_files_is_found_out(base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that the proofs catch: a shard that is reused although its pose file changed."""
    kept = key.make_shard_keys
    monkeypatch.setattr(key, "make_shard_keys", lambda *given: kept(*given[:-1], dict.fromkeys(given[-1], "")))
    corpus = Path(shutil.copytree(base.corpus, tmp_path / "corpus"))
    run_all(tmp_path / "root", corpus, "trajectories")
    updates.trajectory_replaced(corpus)
    run_all(tmp_path / "root", corpus, "trajectories")
    run_all(tmp_path / "scratch", corpus, "trajectories")
    assert counted_bytes(tmp_path / "root") != counted_bytes(tmp_path / "scratch")


def test_rejects_that_name_files_of_before_a_renaming_are_found_out(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault that the proof of the renamed take catches: its reject rows speak of a folder that is gone."""
    monkeypatch.setattr(reuse, "_files_named", lambda *_: set())
    place = copied(base, tmp_path)
    updates.take_renamed(place.corpus)
    run_all(place.root, place.corpus, "features")
    run_all(tmp_path / "scratch", place.corpus, "features")
    ours, theirs = counted_bytes(place.root), counted_bytes(tmp_path / "scratch")
    assert {path: ours[path] for path in theirs if path in ours} != theirs
