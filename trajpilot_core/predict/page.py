"""plan.html: one offline page, style and pictures inside; only the report's own script may run."""

from importlib import resources

from schemas.predict import Plan, PlanRow
from trajpilot_core.methods import METHODS, method
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.predict.drawing import Scene
from trajpilot_core.report.drawing.row_styles import answer_rules
from trajpilot_core.report.gallery.paths import path_data, three_views
from trajpilot_core.report.offline import render_offline

WIDEST = 100.0


def render(plan: Plan, scene: Scene) -> bytes:
    """Render the page of a plan; every text of the data is escaped."""
    return render_offline(
        "plan.html.j2",
        "report.js",
        package="trajpilot_core.predict",
        style=answer_rules() + resources.files("trajpilot_core.predict").joinpath("templates/plan.css").read_text(),
        plan=plan,
        scene=scene,
        rows={one.id: one for one in METHODS},
        views=three_views(scene.paths, scene.unit),
        data=path_data([scene.paths]),
        role=role,
        bar=bar,
        gate=gate_said,
    )


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
    never = row.threshold > 1.0
    from_ = f"never opens (on dev no threshold beat {fallback})" if never else f"opens from {row.threshold:.3f}"
    return f"gate {state}: {row.gate:.3f}, {from_}; {did}"
