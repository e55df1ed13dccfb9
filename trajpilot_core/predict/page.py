"""plan.html: one offline page, style and pictures inside; only the report's own script may run."""

from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import JsonValue

from schemas.predict import Plan, PlanRow
from trajpilot_core.methods import METHODS, method
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.predict.drawing import Scene
from trajpilot_core.report.drawing.row_styles import answer_rules, page_rules
from trajpilot_core.report.json_report import script_json
from trajpilot_core.report.page import policy
from trajpilot_core.report.paths import three_views

REPORT = "trajpilot_core.report"
WIDEST = 100.0


def render(plan: Plan, scene: Scene) -> bytes:
    """Render the page of a plan; every text of the data is escaped."""
    files = resources.files(REPORT).joinpath("templates")
    own = resources.files("trajpilot_core.predict").joinpath("templates")
    script = files.joinpath("report.js").read_text()
    style = "".join(
        (files.joinpath("report.css").read_text(), page_rules(), answer_rules(), own.joinpath("plan.css").read_text())
    )
    environment = Environment(
        loader=PackageLoader("trajpilot_core.predict", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("plan.html.j2").render(
        plan=plan,
        scene=scene,
        rows={one.id: one for one in METHODS},
        policy=policy(script),
        style=Markup(style),
        script=Markup(script),
        views=three_views(scene.paths, scene.unit),
        data=Markup(script_json(path_data(scene))),
        role=role,
        bar=bar,
        gate=gate_said,
    )
    return text.encode()


def role(position: int, horizon: int) -> str:
    """Name a position for people."""
    return "Start" if position == 0 else "Goal" if position == horizon - 1 else f"step {position}"


def bar(score: float) -> str:
    """Return the length of a score's bar, percent; a negative cosine has none."""
    return f"{WIDEST * min(1.0, max(0.0, score)):.1f}"


def gate_said(row: PlanRow) -> str:
    """State in a sentence what the gate of a row did."""
    if row.gate is None or row.threshold is None:
        return "no gate"
    declared, fallback = method(row.row).gate, method(REFERENCE).name
    assert declared is not None
    state, did = ("open", declared.open_means) if row.opened else ("closed", f"the {fallback} answer stands")
    if declared.measures == "gain":
        return f"gate {state}: expected gain over {fallback} {row.gate:+.3f}, opens from {row.threshold:+.3f}; {did}"
    never = row.threshold > 1.0
    from_ = f"never opens (on dev no threshold beat {fallback})" if never else f"opens from {row.threshold:.3f}"
    return f"gate {state}: {row.gate:.3f}, {from_}; {did}"


def path_data(scene: Scene) -> JsonValue:
    """Return the head paths for the drawing that can be turned, rounded to a millimetre."""
    return [[{"kind": path.kind, "points": path.points_m.round(3).tolist()} for path in scene.paths]]
