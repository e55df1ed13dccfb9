"""Outputs of another run: found by the digest of their manifest, read-only, verified, and with what they came from."""

import re
import shutil
from pathlib import Path

import pytest
from other_run import THERE, other_root, output_of, take, there_world, whole, with_takes
from stored_world import SETTINGS, options, run_world, stages_on

from schemas.places import OtherRun
from schemas.training import AlignmentConfig
from trajpilot_core.data import other_runs
from trajpilot_core.data.cross_fitting import FITTED, deal_folds, draw_folds, noted_fitted
from trajpilot_core.data.imported_fits import dev_of_captures, fits_of, folds_for, note_imported
from trajpilot_core.data.other_runs import open_other, outputs_that_count, starting_from
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.store.files import LocalFolder
from trajpilot_core.store.manifest import current_key

CFG = AlignmentConfig(folds=3)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with trained predictors."""
    return other_root(tmp_path_factory)


@pytest.fixture
def root(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "root"))


def manifest_file(root: Path, stage: str) -> Path:
    return root / "artifacts" / stage / str(current_key(LocalFolder(str(root)), stage)) / "manifest.json"


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_an_output_is_opened_and_read_without_a_trace(root: Path) -> None:
    before = files_of(root)
    output = open_other(output_of(root, "alignment"), "alignment")
    assert {one.take_id: one.split for one in output.takes()} == {
        row["take_id"]: row["split"] for row in there_world().tables["takes"].to_pylist()
    }
    assert output.share("alignment_curves", "fold0/s0/e_tau").num_rows > 0
    assert output.models("e_tau").read("final/s0/e_tau")["scale"].shape == (6,)
    fits = fits_of(output, "e_tau")
    assert fits["final"].captures == {f"c{number}" for number in range(6)}
    assert fits["fold0"].takes | fits["fold1"].takes == fits["final"].takes
    assert files_of(root) == before


def test_an_output_that_no_longer_counts_is_found_as_long_as_what_it_was_made_from_is_there(root: Path) -> None:
    asked, old = output_of(root, "alignment"), manifest_file(root, "ingest").parent
    run_world(root, with_takes(there_world(), {take(0): {"split": "dev"}}), THERE, until="ingest")
    assert {one.take_id: one.split for one in open_other(asked, "alignment").takes()}[take(0)] == "train"
    with pytest.raises(
        StoreError, match=r"alignment under .* was made from an older 'takes' than the current one of ingest"
    ):
        outputs_that_count(str(root))
    shutil.rmtree(old)
    with pytest.raises(InputError, match=r"alignment\.pretrained: alignment of .* was made from 'takes' that no"):
        open_other(asked, "alignment").takes()


def test_outputs_that_belong_together_are_those_that_count(root: Path) -> None:
    found = outputs_that_count(str(root))
    assert found == {stage: output_of(root, stage) for stage in ("ingest", "alignment", "predictor")}
    config = starting_from(SETTINGS, str(root))
    assert config.predictor.pretrained == found["predictor"]
    shutil.rmtree(root / "artifacts/predictor")
    with pytest.raises(InputError, match="contains no output of the stage predictor; name the root of a run"):
        starting_from(SETTINGS, str(root))


def test_another_digest_is_an_error_that_says_which_there_are(root: Path) -> None:
    asked = output_of(root, "alignment")
    for wrong in (output_of(root, "ingest").sha256, "0" * 64):
        with pytest.raises(InputError) as refused:
            open_other(asked.replace(sha256=wrong), "alignment")
        assert str(refused.value).startswith("alignment.pretrained: no output of the stage alignment under")
        assert wrong in str(refused.value)
        assert asked.sha256 in str(refused.value)
    path = manifest_file(root, "alignment")
    path.write_text(path.read_text().replace('"n_in"', '"n_in" '))
    with pytest.raises(InputError, match="has a manifest with the sha256"):
        open_other(asked, "alignment")


def test_an_output_that_lacks_files_or_an_entry_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = output_of(root, "alignment")
    with monkeypatch.context() as newer:
        newer.setitem(other_runs.WANTED, "alignment", ("e_tau", "of_tomorrow"))
        with pytest.raises(InputError, match="has no of_tomorrow: an older version wrote it"):
            open_other(asked, "alignment")
    lost = next(path for path in sorted((root / "artifacts/alignment").rglob("*.safetensors")))
    lost.unlink()
    with pytest.raises(InputError, match=f"is damaged: 1 files are missing or have another size, e.g. .*{lost.name}"):
        open_other(asked, "alignment")


def test_a_fold_that_no_take_is_left_for_is_refused(root: Path) -> None:
    """Its models would have no takes to answer for, and nobody would see that a chain is missing."""
    pretrained = output_of(root, "alignment")
    rows = open_other(pretrained, "alignment").table("folds", ("take_id", "fold")).to_pylist()
    first = [row["take_id"] for row in rows if row["fold"] == 0]
    cfg = THERE.alignment.replace(pretrained=pretrained)
    assert folds_for([row["take_id"] for row in rows], cfg) == {row["take_id"]: row["fold"] for row in rows}
    with pytest.raises(InputError, match="fold 1 has no training take here: 3 of 3 keep their fold"):
        folds_for(first, cfg)


def test_models_that_do_not_say_what_they_were_fitted_on_are_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a chain whose note is gone."""
    output, real = open_other(output_of(root, "alignment"), "alignment"), noted_fitted

    def without_fold0(about: dict[str, str], kind: str = FITTED) -> dict[str, list[str]]:
        return {chain: takes for chain, takes in real(about, kind).items() if chain != "fold0"}

    monkeypatch.setattr("trajpilot_core.data.imported_fits.noted_fitted", without_fold0)
    with pytest.raises(InputError, match="chains fold0 were fitted"):
        fits_of(output, "e_tau")


def test_a_place_that_has_no_such_run_is_an_error_that_names_the_setting_before_a_stage_begins(
    root: Path, tmp_path: Path
) -> None:
    for place, words in (
        (str(tmp_path / "nowhere"), "no output of the stage ingest under"),
        ("../up", "is no address of a folder"),
        ("gs://bucket/run", "has the protocol 'gs'; allowed are file, s3"),
    ):
        with pytest.raises(InputError, match=rf"^ingest\.splits_of: .*{re.escape(words)}"):
            dev_of_captures(OtherRun(place=place, sha256="0" * 64))
    stages = stages_on(whole())
    away = SETTINGS.replace(ingest=SETTINGS.ingest.replace(splits_of=OtherRun(place="gs://b/r", sha256="0" * 64)))
    with pytest.raises(InputError, match=r"ingest\.splits_of: .* has the protocol 'gs'"):
        execute(stages["ingest"], away, options(tmp_path / "new"), stages)
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("root", "new")] == []
    assert dev_of_captures(output_of(root, "ingest")) == {f"c{n}": n in (8, 9) for n in range(12) if n not in (6, 7)}
    assert dev_of_captures(None) == {}


def test_known_folds_stay_and_without_any_the_deal_is_that_of_draw_folds() -> None:
    takes = [f"t{number}" for number in range(12)]
    for cfg in (CFG, CFG.replace(folds=1), CFG.replace(fold_share=0.2)):
        assert deal_folds(takes, cfg, {}) == draw_folds(takes, cfg)
        known = {"t3": cfg.folds - 1, "t4": -1}
        folds = deal_folds(takes[::-1], cfg, known)
        assert known.items() < folds.items()
        assert sorted(folds) == sorted(takes)
        assert set(folds.values()) <= {-1, *range(cfg.folds)}
    new = {take: fold for take, fold in deal_folds(takes, CFG, known).items() if take not in known}
    sizes = [list(new.values()).count(fold) for fold in range(CFG.folds)]
    assert max(sizes) - min(sizes) <= 1
    held = deal_folds(takes, CFG.replace(folds=1), {"t3": 0, "t4": -1})
    assert list(held.values()).count(0) == round(CFG.holdout_share * len(takes))


def test_notes_keep_apart_what_is_a_take_here_and_what_is_none(root: Path) -> None:
    fits = fits_of(open_other(output_of(root, "alignment"), "alignment"), "e_tau")
    about = note_imported("final", fits, {take(0), take(1), take(30)}, [take(30)])
    assert noted_fitted(about) == {"final": [take(0), take(1), take(30)]}
    assert noted_fitted(about, "fitted_elsewhere/") == {"final": [take(number) for number in range(2, 6)]}
    assert note_imported("final", {}, {take(0)}, [take(0)]) == {"fitted_takes/final": f'["{take(0)}"]'}
