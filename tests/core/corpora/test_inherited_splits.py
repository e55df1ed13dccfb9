"""Dev captures of another run: what they are there they are here, and only others are sampled."""

from pathlib import Path

import pytest
from egoexo_fixture import SMALL, EgoExoCorpus, healthy, ingest, list_sources, pretend_probe
from hypothesis import given, settings
from hypothesis import strategies as st
from other_run import whole, with_takes
from stored_world import SETTINGS, run_world

from schemas.config import IngestConfig
from schemas.places import OtherRun
from trajpilot_core.corpora.records.splits import dev_captures
from trajpilot_core.data.other_runs import manifest_sha256
from trajpilot_core.errors import InputError
from trajpilot_core.store.files import LocalFolder
from trajpilot_core.store.manifest import current_key

names = st.text("abcdef", min_size=1, max_size=2)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.sets(names), st.dictionaries(names, st.booleans()), st.integers(1, 5))
def test_known_captures_stay_what_they_are_and_others_fill_dev_up(
    captures: set[str], known: dict[str, bool], least: int
) -> None:
    config = IngestConfig(dev_min=least)
    dev = dev_captures(captures, config, known)
    assert {capture for capture in dev if capture in known} == {c for c in captures if known.get(c)}
    assert dev_captures(captures, config, {}) == dev_captures(captures, config)
    inherited, new = sum(known.get(capture, False) for capture in captures), captures - known.keys()
    wanted = max(config.dev_min, round(config.dev_share * len(captures)))
    assert len(dev) == inherited + min(len(new), max(0, wanted - inherited))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> OtherRun:
    """A run whose dev is two captures of the small corpus, one of three that it has in training, and none in test."""
    root = tmp_path_factory.mktemp("other") / "root"
    captures = {8: "capture-train_2", 9: "capture-train_3", 0: "capture-train_0", 11: "capture-train_4"}
    changes = {f"egoexo4d:{number:04d}": {"capture": capture} for number, capture in captures.items()}
    run_world(root, with_takes(whole(), changes), SETTINGS, until="ingest")
    folder = LocalFolder(str(root))
    sha256 = manifest_sha256(folder, "ingest", str(current_key(folder, "ingest")))
    assert sha256 is not None
    return OtherRun(place=str(root), sha256=sha256)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EgoExoCorpus:
    monkeypatch.setattr("trajpilot_core.corpora.records.videos.probe_many", pretend_probe())
    return healthy(tmp_path, n_train=8)


def dev_of(corpus: EgoExoCorpus, config: IngestConfig) -> set[str]:
    return {row["name"] for row in ingest(corpus.write(), config).rows("takes") if row["split"] == "dev"}


def test_ingest_holds_out_the_dev_captures_of_the_other_run(corpus: EgoExoCorpus, other: OtherRun) -> None:
    inherits = SMALL.replace(splits_of=other)
    assert dev_of(corpus, inherits) == {"train_2", "train_3"}
    many = dev_of(corpus, inherits.replace(dev_min=5))
    assert {"train_2", "train_3"} < many
    assert len(many) == 5
    assert not {"train_0", "train_4"} & many, "they are known there and are not dev"
    assert dev_of(corpus, SMALL) != {"train_2", "train_3"}, "the planted fault: nothing is inherited"


def test_a_run_that_is_not_there_stops_ingest_where_it_is_planned(corpus: EgoExoCorpus, other: OtherRun) -> None:
    root = corpus.write()
    list_sources(root, SMALL.replace(splits_of=other))
    gone = SMALL.replace(splits_of=other.replace(place=str(root)))
    with pytest.raises(InputError, match=r"ingest\.splits_of: there is no output of the stage ingest under"):
        list_sources(root, gone)
