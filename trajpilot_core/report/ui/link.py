"""The address under which the UI of a root serves its report: a path of the UI's own server.

A browser opens no file from a page that it got over HTTP, so a `file:` link in the UI is dead. Prefect's server serves
its pages from a folder that a setting names; `trajpilot ui` names one below the root and keeps a copy of the pages in
it, in a folder with a random name, which only those who can read the artifact, behind the login, know.
"""

import contextlib
import re
import secrets
from pathlib import Path

HOME, STATIC, NOTE = "prefect", "ui", "report-link"
"""Below a root: Prefect's folder; in it the pages that the UI serves, and the file with the name of their folder."""
NAME = re.compile(r"report-[A-Za-z0-9_-]{22}")
SERVED = "v1"
"""The folder of `STATIC` that Prefect's server has at its own root."""


def linked_folder(home: Path) -> str:
    """Return the name of the folder of the pages; it is generated once, and only this user can read it.

    A note of another user, or with any other content, is replaced, because the name becomes part of a path.
    """
    note, name = home / NOTE, ""
    with contextlib.suppress(PermissionError):
        name = note.read_bytes().decode("ascii", "replace").strip() if note.is_file() else ""
    if NAME.fullmatch(name):
        return name
    note.unlink(missing_ok=True)
    note.touch(mode=0o600)
    name = f"report-{secrets.token_urlsafe(16)}"
    note.write_text(f"{name}\n", encoding="ascii")
    return name


def link_to(page: str) -> str | None:
    """Return the path of a page in the UI of its root; None where no UI of the root can serve it.

    Args:
        page: address of the page, `<root>/reports/<name>.html`.
    """
    home = Path(page).parent.parent / HOME
    return None if "://" in page or not home.is_dir() else f"/{linked_folder(home)}/{Path(page).name}"


def copy_pages(reports: Path, home: Path) -> int:
    """Copy the pages that are newer than their copies to where the UI serves them; return how many.

    Nothing is copied before the server has written its own files, because it clears the folder first.
    """
    served = home / STATIC / SERVED
    if not (served / "index.html").is_file() or not reports.is_dir():
        return 0
    folder, copied = served / linked_folder(home), 0
    folder.mkdir(exist_ok=True)
    for page in sorted(reports.glob("*.html")):
        copy = folder / page.name
        if not copy.exists() or copy.stat().st_mtime_ns < page.stat().st_mtime_ns:
            fresh = folder / f".{page.name}"
            fresh.write_bytes(page.read_bytes())
            fresh.replace(copy)
            copied += 1
    return copied
