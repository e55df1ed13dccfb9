"""The page of a plan, and refusals before anything is computed; no model is needed."""

import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from schemas.predict import FORMAT, Motion, OwnTake, Plan, PlanQuery, PlanRow, PlanStep, RankedLabel, Retrieved
from trajpilot_core.predict.answers import Clips
from trajpilot_core.predict.page import Scene, gate_said, head_paths, render
from trajpilot_core.predict.run import name_of
from trajpilot_core.report.gallery.pictures import Thumbnail
from trajpilot_core.report.tables.table import row_name

HOSTILE = (
    "<script>alert(1)</script>",
    "</style><script>alert(2)</script>",
    '"><img src=x onerror=alert(3)>',
    "{{7*7}}",
    "</title><svg onload=alert(4)>",
    "' onmouseover='alert(5)",
    "]]><script>alert(6)</script>",
)
MIDDLES = np.full((1, 16, 6), 0.01)


def row(name: str, steps: tuple[PlanStep, ...], gate: tuple = (None,) * 3, **more: object) -> PlanRow:
    """A row of a plan; `gate` is its value, its threshold, and whether it opened."""
    state = dict(zip(("gate", "threshold", "opened"), gate, strict=True))
    common = {"row": name, "name": row_name(name), "steps": steps, "scores": "cosine", "undertrained": False}
    return PlanRow.model_validate({**common, "decides": False, "trusted": None, **state, **more})


def plan(text: str = "stirs", *, simulated: bool = True, opened: bool = True) -> Plan:
    top = tuple(RankedLabel(label_id=f"l{i}", label=f"{text} {i}", score=0.9 - 0.2 * i) for i in range(5))
    roles = ("start", "middle", "goal")
    steps = tuple(
        PlanStep(position=i, role=role, label_id="l0", label=f"{text} 0", top=top) for i, role in enumerate(roles)
    )
    whose = Retrieved(
        window_id="w", take_id="t", take=text, split="train", cosine=0.5, labels=(text,) * 3, spans_s=((0.0, 1.0),) * 3
    )
    rows = (
        row("scorer", steps, (0.7, 0.5, opened), trusted=whose if opened else None, decides=True),
        row("no_traj", steps),
    )
    return Plan(
        format=FORMAT,
        simulated=simulated,
        query=PlanQuery(video=f"/x/{text}.mp4", start="1-2", goal="5-6", horizon=3),
        video_sha256="0" * 64,
        duration_s=9.0,
        fps=15.0,
        root=f"/r/{text}",
        corpus=(text,),
        seed=0,
        horizon=3,
        own_take=OwnTake(take_id="t", name=text, split="test", annotated=(text,) * 3),
        motion=Motion(source="aria", frame="camera", scale="metric", files=(text,), clock=text),
        encoder="e" * 64,
        keys={"scorer": "k"},
        notes=(text,),
        rows=rows,
        nearest=(whose,),
    )


def scene(of: Plan, *, opened: bool = True) -> Scene:
    clips = Clips(np.zeros((2, 4), np.float16), np.full((2, 16, 6), 0.02, np.float32))
    paths, caption = head_paths(clips, MIDDLES, of.nearest[0], opened)
    shot = (1.0, Thumbnail(None, "frames are switched off"))
    return Scene((shot,) * 3, (shot,) * 3, 1.0, of.nearest[0], opened, (shot,) * 3, paths, "m", caption)


class Seen(HTMLParser):
    """Tags with the names of their attributes, and how many scripts there are."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))


def test_hostile_labels_names_and_paths_stay_text() -> None:
    plain = Seen(render(plan(), scene(plan()))).tags
    for text in HOSTILE:
        hostile = plan(text)
        assert Seen(render(hostile, scene(hostile))).tags == plain, text


def test_a_page_of_recorded_data_is_not_marked_as_simulated() -> None:
    assert "SIMULATED" in render(plan(), scene(plan())).decode()
    real = plan(simulated=False)
    assert "SIMULATED" not in render(real, scene(real)).decode()


def test_a_trusted_window_is_named_and_its_path_joins_start_and_goal_and_an_untrusted_one_is_drawn_apart() -> None:
    trusted, closed = plan("sorts"), plan("sorts", opened=False)
    assert "The trusted window: sorts" in render(trusted, scene(trusted)).decode()
    page = render(closed, scene(closed, opened=False)).decode()
    assert "The nearest window (not trusted): sorts" in page
    assert "no retrieved motion was used" in page
    start, middle, goal = scene(plan()).paths
    np.testing.assert_allclose(start.points_m[-1], middle.points_m[0])
    np.testing.assert_allclose(middle.points_m[-1], goal.points_m[0])
    assert [len(path.points_m) for path in (start, middle, goal)] == [17, 17, 17]
    apart = scene(plan(opened=False), opened=False).paths
    assert all(not path.points_m[0].any() for path in apart)


def test_a_gate_with_an_unreachable_threshold_never_opens() -> None:
    assert "never opens" in gate_said(plan().rows[0].replace(threshold=2.0, opened=False, trusted=None))


def test_the_folder_of_a_plan_has_a_portable_name() -> None:
    assert name_of(plan("a/../b c")) == "predict-a-..-b-c-1-6-h3"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"--start": "12-x"}, "'12-x' is no interval; write start and end in seconds of video, such as 12.0-15.5"),
        ({"--start": "nan-3"}, "is no interval"),
        ({"--start": "-3-4"}, "is no interval"),
        ({"--horizon": "2"}, "horizon is 2: Input should be greater than or equal to 3"),
        ({"--poses": "gps"}, "poses is 'gps': Input should be 'auto', 'aria', 'odometry', 'pi3' or 'none'"),
        ({"--trajectory-offset": "nan"}, "trajectory_offset_s is nan: Input should be a finite number"),
        ({"--root": "/nowhere/at/all"}, "--root /nowhere/at/all is not a folder; give the root of a run"),
        ({}, "needs 'takes' of stage ingest"),
    ],
)
def test_the_command_refuses_with_one_message_and_status_2(
    changed: dict[str, str], said: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    from deployments import settings
    from deployments.cli.main import main

    monkeypatch.setattr(settings, "one_thread_per_process", lambda: None)

    asked = {"--start": "1-2", "--goal": "4-5", "--root": str(tmp_path)} | changed
    words = [f"{name}={value}" for name, value in asked.items()]
    monkeypatch.setattr(sys, "argv", ["trajpilot", "predict", "x.mp4", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert said in " ".join(error.split())
    assert "Traceback" not in error
