"""The way from the UI to the page: a path of the UI's own server that only those know who can read the artifact."""

import os
from pathlib import Path

import pytest

from deployments.settings import ui_environment
from trajpilot_core.report.committed import HOME, LINKED, NOTE, SERVED, STATIC, copy_pages, link_to


def served(root: Path) -> Path:
    """A root whose UI has laid its files."""
    folder = root / HOME / STATIC / SERVED
    folder.mkdir(parents=True)
    (folder / "index.html").write_text("the UI")
    return folder


def page(root: Path, content: str = "a page") -> Path:
    path = root / "reports" / "report.html"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return path


def test_the_link_leads_to_the_copy_and_stays_the_same(tmp_path: Path) -> None:
    folder, at = served(tmp_path), page(tmp_path)
    link = link_to(str(at))
    assert link is not None
    assert link == link_to(str(at))
    assert copy_pages(at.parent, tmp_path / HOME) == 1
    assert (folder / link.removeprefix("/")).read_text() == "a page"
    assert Path(ui_environment(tmp_path / HOME, "a:b")["PREFECT_UI_STATIC_DIRECTORY"]) == folder.parent


def test_a_newer_page_is_copied_again_and_an_equal_one_is_not(tmp_path: Path) -> None:
    folder, at = served(tmp_path), page(tmp_path)
    copy_pages(at.parent, tmp_path / HOME)
    assert copy_pages(at.parent, tmp_path / HOME) == 0
    page(tmp_path, "another page")
    os.utime(at, ns=(at.stat().st_atime_ns, at.stat().st_mtime_ns + 1_000_000_000))
    assert copy_pages(at.parent, tmp_path / HOME) == 1
    assert [path.read_text() for path in folder.glob("report-*/*.html")] == ["another page"]


def test_the_name_of_the_folder_cannot_be_guessed_and_is_this_users(tmp_path: Path) -> None:
    links = set()
    for name in "ab":
        (tmp_path / name / HOME).mkdir(parents=True)
        links.add(link_to(f"{tmp_path}/{name}/reports/report.html"))
        (note,) = (tmp_path / name / HOME).iterdir()
        assert note.stat().st_mode & 0o077 == 0
    assert len(links) == 2
    assert all(len(str(link)) > 30 for link in links)


def test_a_note_that_is_no_name_or_another_users_is_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / HOME).mkdir()
    for held in (b"../../elsewhere", b"report-../../../../elsewhere..", b"\x80\x04cos\nsystem", b""):
        (tmp_path / HOME / NOTE).write_bytes(held)
        link = link_to(f"{tmp_path}/reports/report.html")
        assert LINKED.fullmatch(link.split("/")[1]), held

    def refused(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refused)
    assert link_to(f"{tmp_path}/reports/report.html") not in (link, None)


def test_where_no_ui_of_the_root_can_serve_it_there_is_no_link(tmp_path: Path) -> None:
    assert link_to("s3://bucket/root/reports/report.html") is None
    assert link_to(str(page(tmp_path))) is None, "a server of one's own keeps its runs elsewhere"
    (tmp_path / HOME).mkdir()
    assert copy_pages(tmp_path / "reports", tmp_path / HOME) == 0, "the server has not laid its files yet"
