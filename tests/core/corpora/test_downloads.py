"""What doctor says of a download: what is expected, there and missing, and the commands; whatever the folder is."""

import re
from pathlib import Path
from typing import get_args

import pytest
from egoexo_fixture import write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layouts_fixture import small_world, undrawn

from deployments.recipes import RECIPES
from schemas.config import CorpusName, IngestConfig
from trajpilot_core.corpora.registry import CORPORA, spec_of
from trajpilot_core.doctor import checks
from trajpilot_core.errors import NotBuiltError

OTHERS = ("goalstep", "egoper", "epic_kitchens")


def config(corpus: str) -> IngestConfig:
    return IngestConfig(corpus=corpus)  # type: ignore[arg-type]


def healthy(corpus: str, root: Path) -> Path:
    """Write a whole download of a corpus without poses."""
    return undrawn(root, small_world(corpus, broken="none", train_takes=2, test_takes=2)).folder


def found(corpus: str, root: Path) -> dict[str, checks.HealthFinding]:
    return {row.what: row for row in checks.check_corpus(str(root), config(corpus))}


def test_every_corpus_that_a_setting_names_has_a_spec_and_a_way_to_get_it() -> None:
    assert list(CORPORA) == list(get_args(CorpusName))
    assert all(name == spec.name for name, spec in CORPORA.items())
    assert all(spec.download.commands or "e-mail" in spec.download.access for spec in CORPORA.values())
    (command,) = CORPORA["egoexo4d_atomic"].download.commands_for("/data/my; rm -rf x")
    assert command.startswith("egoexo -o '/data/my; rm -rf x' --parts"), "quoted for a shell"
    assert {recipe().ingest.corpus for recipe in RECIPES.values()} == set(CORPORA)
    with pytest.raises(NotBuiltError, match="no reader of elsewhere"):
        spec_of("elsewhere")


def test_a_corpus_without_poses_or_goals_says_so_and_what_stands_in() -> None:
    assert {name for name, spec in CORPORA.items() if any("poses" in lack for lack in spec.lacks())} == set(OTHERS)
    without = {name for name, spec in CORPORA.items() if any("goals" in lack for lack in spec.lacks())}
    assert without == {"egoexo4d_basketball", "epic_kitchens"}


@pytest.mark.parametrize("corpus", OTHERS)
def test_a_whole_download_is_ok_and_missing_videos_are_counted_and_the_first_are_named(
    corpus: str, tmp_path: Path
) -> None:
    root = healthy(corpus, tmp_path)
    verdicts = {what: row.verdict for what, row in found(corpus, root).items()}
    assert verdicts == {"annotations": "ok", "videos": "ok"}, "poses that nobody released are not missed"
    videos = sorted(path for path in root.rglob("*") if path.suffix.lower() == ".mp4")
    videos[0].unlink()
    row = found(corpus, root)["videos"]
    assert row.expected == str(len(videos))
    assert row.found.startswith(str(len(videos) - 1))
    assert videos[0].name in row.found
    for path in videos[1:]:
        path.unlink()
    assert found(corpus, root)["videos"].verdict == "bad"


def test_a_wrong_folder_is_told_and_nothing_crashes(tmp_path: Path, subtests: pytest.Subtests) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "file", b"")
    healthy("egoper", tmp_path / "egoper")
    healthy("goalstep", tmp_path / "goalstep")
    for corpus in CORPORA:
        other = "egoper" if corpus == "goalstep" else "goalstep"
        for folder in ("absent", "empty", "file", other):
            with subtests.test(corpus=corpus, folder=folder):
                rows = found(corpus, tmp_path / folder)
                assert {what: row.verdict for what, row in rows.items()} == {"data root": "bad"}


def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "annotations")

    root = healthy("goalstep", tmp_path)
    monkeypatch.setattr("trajpilot_core.corpora.formats.folders.file_names", refused)
    rows = found("goalstep", root)
    assert "Permission denied" in rows["data root"].todo
    assert {row.verdict for row in rows.values()} == {"bad"}


CONTENTS = st.binary(max_size=60) | st.sampled_from([b"[]", b"{}", b'{"videos": [7]}', b'{"tea": 3}', b"[" * 5000])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(content=CONTENTS)
@pytest.mark.parametrize("corpus", OTHERS)
def test_no_content_of_any_file_crashes_the_look(corpus: str, content: bytes, tmp_path: Path) -> None:
    for path in [p for p in healthy(corpus, tmp_path).rglob("*") if p.suffix in (".json", ".csv", ".tsv", ".txt")]:
        before = path.read_bytes()
        path.write_bytes(content)
        assert checks.check_corpus(str(tmp_path), config(corpus))
        path.write_bytes(before)


def test_the_page_on_data_names_every_corpus_and_its_licence_as_the_spec_does() -> None:
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text()
    assert [name for name in CORPORA if name not in page] == []
    access = [spec.download.access for name, spec in CORPORA.items() if name not in ("egoper", "epic_kitchens")]
    forms = [re.findall(r"https://\S+", one) for one in access]
    assert all(len(form) == 1 and f"# the licence: {form[0]}\n" in page for form in forms)
    assert all("14 days" in text for text in (*access, page))
