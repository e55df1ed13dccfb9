"""Hostile texts in names, logs, states and artifacts are shown by the served Prefect UI and never run."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browser
from compose_server import LOGIN, Served, ask
from hostile import TEXTS

from trajpilot_core.markdown_escape import literal

pytestmark = [pytest.mark.slow, pytest.mark.campaign, pytest.mark.timeout(900)]
RAW = ("raw-markdown", "raw-table")
"""Artifacts whose texts were not escaped."""
SHOWN = "javascript:alert(7)"
"""A hostile text that is shown even where HTML is taken for HTML."""
LEAK = "http://127.0.0.1:9/"
LISTEN = "window.alerts = []; window.alert = x => window.alerts.push(String(x));"


def make(served: Served, path: str, body: object) -> Any:
    answer = ask(served.url, "POST", f"/api{path}", LOGIN, body)
    assert answer.status in (200, 201), answer
    return json.loads(answer.body or b"null")


@pytest.fixture(scope="module")
def pages(served: Served) -> dict[str, str]:
    """What is looked at -> its address; every text that a run could bring there is hostile."""
    flow = make(served, "/flows/", {"name": "hostile"})
    state = {"type": "FAILED", "name": "Failed", "message": " ".join(TEXTS)}
    run = make(served, "/flow_runs/", {"flow_id": flow["id"], "name": " ".join(TEXTS[:8]), "state": state})
    when = "2026-11-21T00:00:00Z"
    logs = [
        {"name": "trajpilot", "level": 40, "message": t, "timestamp": when, "flow_run_id": run["id"]} for t in TEXTS
    ]
    make(served, "/logs/", logs)
    raw, escaped = "\n\n".join(TEXTS), "\n\n".join(literal(text) for text in TEXTS)
    rows = json.dumps([{"label": literal(text), "number": number} for number, text in enumerate(TEXTS)])
    raw_rows = json.dumps([{"label": text} for text in TEXTS])
    artifacts = {
        "markdown": ("markdown", escaped, escaped),
        "table": ("table", rows, escaped),
        "progress": ("progress", 50.0, escaped),
        "raw-markdown": ("markdown", raw, ""),
        "raw-table": ("table", raw_rows, ""),
    }
    url = served.url
    found = {
        "run": f"{url}/flow-runs/flow-run/{run['id']}",
        "logs": f"{url}/flow-runs/flow-run/{run['id']}?tab=Logs",
        "runs": f"{url}/runs",
    }
    for key, (kind, data, description) in artifacts.items():
        body = {"key": key, "type": kind, "data": data, "description": description}
        made = make(served, "/artifacts/", body if key in RAW else body | {"flow_run_id": run["id"]})
        found[key] = f"{url}/artifacts/artifact/{made['id']}"
    return found | {"artifacts": f"{url}/flow-runs/flow-run/{run['id']}?tab=Artifacts"}


def look(page: Page, url: str) -> tuple[str, list[str], list[str]]:
    """Open a page, click on what asks for it, and return its text, the dialogs and the requests beyond the server."""
    page("Page.navigate", url="about:blank")
    page.requested.clear()
    page("Page.navigate", url=url)
    limit = time.monotonic() + 60.0
    while time.monotonic() < limit and SHOWN not in page.text():
        time.sleep(1.0)
    page.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    time.sleep(2.0)
    beyond = [u for u in page.requested if u.startswith(LEAK)] + page.outside()
    return page.text(), list(page.run("window.alerts") or []), beyond


def test_hostile_texts_are_inert_on_every_page_of_the_ui(served: Served, pages: dict[str, str], tmp_path: Path) -> None:
    found = {}
    with browser(tmp_path) as page:
        page("Page.addScriptToEvaluateOnNewDocument", source=LISTEN)
        page.open(f"{served.url}/login", "Login")
        token = base64.b64encode(LOGIN.encode()).decode()
        page.run(f"localStorage.setItem('prefect-password', '{token}')")
        for name, url in pages.items():
            text, dialogs, beyond = look(page, url)
            assert SHOWN in text, f"{name} shows no hostile text: {text[:500]}"
            assert name in RAW or "<img src=x onerror=alert(3)>" in text, f"{name} shows a text in another way:\n{text}"
            found[name] = (dialogs, beyond)
    for name in RAW:
        dialogs, beyond = found.pop(name)
        assert dialogs == []
        assert any("leak18" in url for url in beyond), f"the planted fault: unescaped, {name} fetches a picture"
    assert found == dict.fromkeys(found, ([], []))
