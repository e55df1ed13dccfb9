"""What a person sees in the UI after a run: the page of the run and every artifact.

Screenshots stay under runs/ui; docs/ui.png is cut out of evaluation-accuracy.png.
"""

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from browser import PROGRAMS, Page, browser
from compose_server import ask, told
from hostile import TEXTS
from stack_processes import CHECKOUT, PATIENCE, end, free_port, wait_for
from whole_run import Ran, command

from schemas.rejects import RejectCode
from trajpilot_core.incoming import literal
from trajpilot_core.report.figures import PICTURES
from trajpilot_core.report.figures.base import MOST_BYTES
from trajpilot_core.stages import STAGES

if not any(shutil.which(name) for name in PROGRAMS):
    pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(int(1200 * PATIENCE))]
KEPT = CHECKOUT / "runs" / "ui"
PIPELINE = "full-pipeline"
LIMIT_S = 60.0
AUTH, LOGIN = "PREFECT_SERVER_API_AUTH_STRING", "person:word-of-a-test"
TITLES = {f"{stage}-{f.name}": f.title for f in PICTURES for stage in f.stages if stage in STAGES}
"""Of the figures of the stages that a run of planning has."""
EMPTY = ["planners-curves", "probe-curves"]
"""Pictures of stages that the recipe switches off."""


class Shown(NamedTuple):
    root: Path
    url: str
    page: Page
    said: str
    """What the command printed."""

    def api(self, path: str, body: object = None) -> Any:
        return told(self.url, path, body, LOGIN)

    def run(self) -> dict[str, Any]:
        return next(dict(r) for r in self.api("/flow_runs/filter", {}) if r["name"].startswith(PIPELINE))

    def open(self, key: str, wanted: str) -> str:
        """Open the page of the newest artifact of a key, photograph it, and return what it shows."""
        body = {"artifacts": {"key": {"any_": [key]}}, "sort": "CREATED_DESC", "limit": 1}
        made = self.api("/artifacts/filter", body)[0]
        text = self.page.open(f"{self.url}/artifacts/artifact/{made['id']}", wanted, LIMIT_S)
        assert self.page.outside() == []
        self.page.photograph(KEPT / f"{key}.png")
        return text


@pytest.fixture(scope="module")
def shown(ran: Ran, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A copy of what the UI reads of the whole run, behind the command that the run's last line names, in a browser."""
    folder, port = tmp_path_factory.mktemp("ui"), free_port()
    shutil.copytree(ran.root, folder / "run", ignore=shutil.ignore_patterns("artifacts", "scratch"))
    with (folder / "server.log").open("wb") as log:
        ui, env = command("ui", "--root", str(folder / "run"), "--port", str(port)), {**os.environ, AUTH: LOGIN}
        server = subprocess.Popen(ui, stdout=log, stderr=log, process_group=0, cwd=CHECKOUT, env=env)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: ask(url, "GET", "/api/health").status == 200, 180 * PATIENCE)
            with browser(folder) as page:
                page.open(f"{url}/login", "Login")
                page.run(f"localStorage.setItem('prefect-password', btoa({json.dumps(LOGIN)}))")
                yield Shown(ran.root, url, page, ran.output)
        finally:
            end(server)


def test_the_run_says_what_it_is_and_its_page_shows_every_stage_with_its_artifacts(shown: Shown) -> None:
    run = shown.run()
    assert run["name"] == f"full-pipeline · soak · {shown.root}"
    shown.page.open(f"{shown.url}/flow-runs/flow-run/{run['id']}", run["name"], LIMIT_S)
    text = shown.page.wait(lambda text: all(s in text for s in STAGES), "the log names no stage", LIMIT_S)
    shown.page.photograph(KEPT / "flow-run.png")
    assert "Completed" in text
    shown.page.run("document.getElementById('artifacts').click()")
    wanted = {f"{stage.replace('_', '-')}-progress" for stage in STAGES} | {"report-summary", "evaluation-accuracy"}
    shown.page.wait(lambda text: sum(key in text for key in wanted) > 3, "the tab shows no artifact", LIMIT_S)
    shown.page.photograph(KEPT / "artifacts.png")
    assert wanted <= {a["key"] for a in shown.api("/artifacts/filter", {"limit": 200})}


def test_a_stage_ends_at_a_hundred_percent_and_its_state_and_table_have_every_figure(shown: Shown) -> None:
    """One that makes shards and one that makes none; what the tables of the others hold is the same code."""
    tasks = {t["name"]: t["state"] for t in shown.api("/task_runs/filter", {})}
    counts = "reused 0, computed 11, removed 0, rejected 0"
    assert (tasks["features"]["name"], tasks["features"]["message"]) == ("Completed", counts)
    assert tasks["ingest"]["message"].startswith("computed, 109 rows in")
    for stage in ("ingest", "features"):
        assert "100%" in shown.open(f"{stage}-progress", "Progress")
        text = shown.open(stage, "seconds")
        figures = ["rows in", "rows out", "computed", "reused", "seconds"]
        unit = STAGES[stage].shard_by
        figures += [f"{unit}s removed", f"{unit}s per second"] if unit else []
        figures += [f"rejected: {RejectCode.NOT_WEARER.value}"] if stage == "ingest" else []
        assert [figure for figure in figures if figure not in text] == []


def test_every_picture_is_there_to_be_seen(shown: Shown) -> None:
    look = "JSON.stringify([...document.querySelectorAll('article img, .markdown-renderer img')].map("
    look += "i => [i.src.slice(0, 5), i.src.length, i.complete ? i.naturalWidth : 0]))"
    for key, title in TITLES.items():
        if key in EMPTY:  # a stage that trained nothing says so in the place of its picture
            shown.open(key, "nothing was trained")
            continue
        shown.open(key, title)
        shown.page.wait(lambda _: any(width for *_, width in json.loads(shown.page.run(look))), f"no {key}", LIMIT_S)
        shown.page.photograph(KEPT / f"{key}.png")
        ((kind, size, width),) = json.loads(shown.page.run(look))
        assert (kind, size <= MOST_BYTES, width > 300) == ("data:", True, True)


def test_the_summary_has_the_main_figures_and_the_report_is_opened_from_there(shown: Shown) -> None:
    text = shown.open("report-summary", "Open the page")
    wanted = ("No-Traj", "Endpoint-Traj", "Scorer", "Oracle", "MSeq, %", f"{shown.root}/reports/report.html")
    assert [words for words in wanted if words not in text] == []
    link = shown.page.run("document.querySelector('a[href$=\"/report.html\"]').getAttribute('href')")
    shown.page.wait(lambda _: opens(f"{shown.url}{link}"), "the UI does not serve the report", LIMIT_S)
    shown.page.open(f"{shown.url}{link}", "The main rows, mean of the horizons", LIMIT_S)
    shown.page.photograph(KEPT / "report.png")
    assert shown.page.outside() == [], "the page asks nothing from anywhere else"


def opens(url: str) -> bool:
    """Whether an address is a page of ours: for anything unknown the UI answers with its own."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return b"TrajPilot on " in answer.read()


RAW = ("raw-markdown", "raw-table")
"""Artifacts whose texts were not escaped."""
SEEN = "javascript:alert(7)"
"""A hostile text that is shown even where HTML is taken for HTML."""
LISTEN = "window.alerts = []; window.alert = x => window.alerts.push(String(x));"


def hostile_pages(shown: Shown) -> dict[str, str]:
    """What is looked at -> its address; every text that a run could bring there is hostile."""
    state = {"type": "FAILED", "name": "Failed", "message": " ".join(TEXTS)}
    flow = shown.api("/flows/", {"name": "hostile"})["id"]
    run = shown.api("/flow_runs/", {"flow_id": flow, "name": " ".join(TEXTS[:8]), "state": state})["id"]
    line = {"name": "trajpilot", "level": 40, "timestamp": "2026-11-21T00:00:00Z", "flow_run_id": run}
    shown.api("/logs/", [{**line, "message": text} for text in TEXTS])
    raw, escaped = "\n\n".join(TEXTS), "\n\n".join(literal(text) for text in TEXTS)
    artifacts = {
        "markdown": ("markdown", escaped, escaped),
        "table": ("table", json.dumps([{"label": literal(text)} for text in TEXTS]), escaped),
        "progress": ("progress", 50.0, escaped),
        "raw-markdown": ("markdown", raw, ""),
        "raw-table": ("table", json.dumps([{"label": text} for text in TEXTS]), ""),
    }
    found = {"runs": f"{shown.url}/runs"}
    for key, (kind, data, description) in artifacts.items():
        body = {"key": key, "type": kind, "data": data, "description": description}
        made = shown.api("/artifacts/", body if key in RAW else body | {"flow_run_id": run})
        found[key] = f"{shown.url}/artifacts/artifact/{made['id']}"
    return found | {tab: f"{shown.url}/flow-runs/flow-run/{run}?tab={tab}" for tab in ("Details", "Logs", "Artifacts")}


@pytest.mark.campaign
def test_hostile_texts_are_inert_on_every_page_of_the_ui(shown: Shown) -> None:
    page, found = shown.page, {}
    page("Page.addScriptToEvaluateOnNewDocument", source=LISTEN)
    for name, url in hostile_pages(shown).items():
        page("Page.navigate", url="about:blank")
        page.requested.clear()
        text = page.open(url, SEEN, LIMIT_S)
        assert name in RAW or "<img src=x onerror=alert(3)>" in text, f"{name} shows a text in another way:\n{text}"
        page.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        time.sleep(2.0)
        leaks = [asked for asked in page.requested if asked.startswith("http://127.0.0.1:9/")] + page.outside()
        found[name] = (page.run("window.alerts"), leaks)
    for name in RAW:
        dialogs, leaks = found.pop(name)
        assert dialogs == []
        assert any("leak18" in asked for asked in leaks), f"the planted fault: unescaped, {name} fetches a picture"
    assert list(found.values()) == [([], [])] * len(found)
