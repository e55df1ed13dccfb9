"""What ingest could lose without counting it ends the stage, in every layout: unreadable files, empty splits."""

import itertools
import json
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from egoexo_fixture import ingest, write, write_json
from layouts_fixture import court_world, small_world, undrawn
from segment_corpora_fixture import table
from test_ingest_basketball import Court

from schemas.config import IngestConfig
from schemas.rejects import RejectCode
from trajpilot_core.corpora.base import CorpusReading
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.errors import InputError
from trajpilot_core.store.corpus_files import open_corpus

pytestmark = pytest.mark.usefixtures("no_decoder")
METADATA = ("takes.json", "annotations/splits.json")
NO_TAKES = b'{"annotations": {}}'


class Layout(NamedTuple):
    """The layout of a corpus, its annotation files, and for each split a whole file that leaves nothing of it."""

    name: str
    files: tuple[str, ...]
    nothing: dict[str, tuple[str, bytes]]

    def write(self, folder: Path) -> Path:
        few = {"tasks": 1, "train_takes": 4, "test_takes": 2, "broken": "none"}
        plain = court_world if self.name == "basketball" else partial(small_world, self.name)
        return undrawn(folder, plain(**few)).folder


def _files(name: str) -> tuple[str, str]:
    return f"annotations/{name}_train.json", f"annotations/{name}_val.json"


ATOMIC, KEYSTEP = _files("atomic_descriptions"), _files("keystep")
GOALSTEP = tuple(f"v2/annotations/goalstep_{name}" for name in ("train.json", "val.json", "video_groups.tsv"))
CLASSES = tuple(
    f"EPIC_100_{name}.csv"
    for name in ("verb_classes", "noun_classes", "tail_verbs", "tail_nouns", "unseen_participant_ids_validation")
)
ACTIONS = ("EPIC_100_train.csv", "EPIC_100_validation.csv")
LISTS = ("tea/training.txt", "tea/validation.txt")


def emptied(files: tuple[str, ...], content: bytes) -> dict[str, tuple[str, bytes]]:
    return {"train": (files[0], content), "val": (files[1], content)}


LAYOUTS = {
    "egoexo4d_atomic": Layout("egoexo4d", (*METADATA, *ATOMIC), emptied(ATOMIC, NO_TAKES)),
    "egoexo4d_keystep": Layout("keystep", (*METADATA, *KEYSTEP), emptied(KEYSTEP, NO_TAKES)),
    "egoexo4d_basketball": Layout("basketball", (*METADATA, *ATOMIC), emptied(ATOMIC, NO_TAKES)),
    "goalstep": Layout("goalstep", (*GOALSTEP, "ego4d.json"), emptied(GOALSTEP, b'{"videos": []}')),
    "egoper": Layout("egoper", ("annotation.json", *LISTS), emptied(LISTS, b"\n")),
    "epic_kitchens": Layout("epic_kitchens", (*ACTIONS, *CLASSES), emptied(ACTIONS, table([]))),
}
DAMAGES = ("missing", "empty", "truncated", "no table", "other shape")
OTHER_SHAPE = {"json": b'[{"message": "Not Found"}]', "csv": b"<html>\n<p>gone</p>\n", "tsv": b"<html>\n<p>gone</p>\n"}


def damaged(content: bytes, damage: str, file: str) -> bytes | None:
    """Return a file's content after a damage; None where the file is gone."""
    shapes = {**OTHER_SHAPE, "txt": b'{"message": "Not Found"}\n'}
    return {
        "missing": None, "empty": b"", "truncated": content[: len(content) * 2 // 3],
        "no table": b"\x1f\x8b\x08\x00\xff\xfe", "other shape": shapes[file.rsplit(".", 1)[1]]
    }[damage]  # fmt: skip


def config(corpus: str, **changes: object) -> IngestConfig:
    base = IngestConfig(corpus=corpus, dev_min=1, max_horizon=4, video="full")  # type: ignore[arg-type]
    if corpus != "egoexo4d_basketball":
        return base
    return base.replace(basketball=base.basketball.replace(balance=False, **{"split": "released", **changes}))


@pytest.mark.parametrize("corpus", LAYOUTS)
def test_an_unreadable_annotation_file_is_an_error(corpus: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    root = LAYOUTS[corpus].write(tmp_path)
    assert {row["split"] for row in ingest(root, config(corpus)).rows("takes")} == {"train", "dev", "test"}
    for file, damage in itertools.product(LAYOUTS[corpus].files, DAMAGES):
        if file in LISTS and damage == "truncated":
            continue  # a list of names that was cut off is still a list; what it no longer names is counted below
        whole = (root / file).read_bytes()
        content = damaged(whole, damage, file)
        (root / file).unlink() if content is None else write(root / file, content)
        with subtests.test(file=file, damage=damage):
            with pytest.raises(InputError) as caught:
                ingest(root, config(corpus))
            is_empty_list = file in LISTS and damage == "empty"
            assert caught.match("no take of the released split" if is_empty_list else file.rsplit("/", 1)[-1])
            assert caught.match("download|fetch|clone|ask its authors")
        write(root / file, whole)
    if corpus == "egoper":
        write(root / LISTS[0], (root / LISTS[0]).read_bytes()[:-5])
        found = ingest(root, config(corpus)).codes()
        assert (found["TAKE_UNKNOWN"], found["NO_SPLIT"] > 0) == (0, True)


RECORDS: dict[str, dict[str, object]] = {
    "usable": {},
    "dropped": {"is_dropped": True},
    "without a video": {"frame_aligned_videos": {}},
    "of a bad name": {"take_name": "../x"},
}


@pytest.mark.parametrize("corpus", [name for name in LAYOUTS if name.startswith("egoexo4d")])
def test_a_take_that_vanishes_from_the_splits_is_named(corpus: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    root = LAYOUTS[corpus].write(tmp_path)
    takes, splits = (json.loads((root / name).read_text()) for name in METADATA)
    for name, record in RECORDS.items():
        write_json(root / "takes.json", [takes[0] | record, *takes[1:]])
        write_json(root / METADATA[1], splits)
        before = spec_of(corpus).read(open_corpus(str(root)), config(corpus))
        assert before.n_in == units(before)
        assert not [r for r in before.rejects if r.code is RejectCode.NO_SPLIT]
        for uid in splits["take_uid_to_split"]:
            kept = {other: split for other, split in splits["take_uid_to_split"].items() if other != uid}
            write_json(root / METADATA[1], {"take_uid_to_split": kept})
            after = spec_of(corpus).read(open_corpus(str(root)), config(corpus))
            with subtests.test(record=name, uid=uid):
                assert [r.take for r in after.rejects if r.code is RejectCode.NO_SPLIT] == [f"egoexo4d:{uid}"]
                assert after.n_in == units(after)


def units(reading: CorpusReading) -> int:
    """Segments of the candidates and units of the rejects."""
    return sum(len(c.points) for c in reading.candidates) + sum(r.n_units for r in reading.rejects)


@pytest.mark.parametrize("corpus", LAYOUTS)
def test_a_split_of_which_nothing_is_left_is_an_error(corpus: str, tmp_path: Path) -> None:
    root = LAYOUTS[corpus].write(tmp_path)
    for split, (file, content) in LAYOUTS[corpus].nothing.items():
        whole = (root / file).read_bytes()
        write(root / file, content)
        with pytest.raises(InputError, match=f"no take of the released split {split} is left") as caught:
            ingest(root, config(corpus))
        assert caught.match("to do: |download them again")
        write(root / file, whole)
    if corpus == "egoper":
        for name in (root / LISTS[1]).read_text().split():
            (root / f"tea/trim_videos/{name}.mp4").unlink()
        with pytest.raises(InputError, match=r"split val is left: 2 takes .*VIDEO_MISSING: 2 takes, \d+ segments"):
            ingest(root, config(corpus))


def test_a_draw_that_leaves_no_take_to_test_is_an_error(tmp_path: Path) -> None:
    court = Court(tmp_path)
    for name in ("b", "c"):
        del court.corpus.train[f"uid-{name}"]
    del court.corpus.val["uid-t"]
    with pytest.raises(InputError, match=r"no take of the released split (train|val) is left"):
        ingest(court.corpus.write(), config("egoexo4d_basketball", split="drawn"))


@pytest.mark.parametrize("layout", ["egoexo4d_atomic", "egoexo4d_keystep"])
def test_the_file_of_a_split_that_nobody_names_may_be_absent_but_not_broken(layout: str, tmp_path: Path) -> None:
    root = LAYOUTS[layout].write(tmp_path)
    val = LAYOUTS[layout].nothing["val"][0]
    named = json.loads((root / METADATA[1]).read_text())["take_uid_to_split"]
    splits = {uid: split for uid, split in named.items() if split == "train"}
    write_json(root / METADATA[1], {"take_uid_to_split": splits})
    write_json(
        root / "takes.json", [t for t in json.loads((root / "takes.json").read_text()) if t["take_uid"] in splits]
    )
    (root / val).unlink()
    assert len(ingest(root, config(layout)).rows("takes")) == len(splits)
    write(root / val, b"{")
    with pytest.raises(InputError, match=val):
        ingest(root, config(layout))
