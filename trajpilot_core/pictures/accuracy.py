"""Accuracy over the horizon: M@1 and MSeq of every main row with bands, and the paired difference to No-Traj."""

from schemas.arrow import rows_of
from schemas.results import Ceiling, Judgement, Metric
from trajpilot_core.pictures.look import Look
from trajpilot_core.pictures.picture import Drawn, NothingToDraw
from trajpilot_core.pictures.style import COLUMNS, style
from trajpilot_core.report.figures import MARKS, gain_figure, horizon_figures
from trajpilot_core.report.names import DESCRIPTIONS, MAIN, OPEN_METRICS, row_name
from trajpilot_core.report.sheet import Key, Panel, sheet
from trajpilot_core.report.tables import results_of

SHOWN = ("M@1", "MSeq")


def accuracy(look: Look) -> Drawn:
    """Draw the metrics of an evaluation; a simulated corpus is named in the picture itself."""
    metrics = rows_of(Metric, look.table("evaluation", "metrics"))
    results = results_of(metrics, rows_of(Judgement, look.table("evaluation", "judgements")))
    rows = [variant for variant in MAIN if variant in results.variants()]
    if not rows:
        raise NothingToDraw("no row was scored")
    ceilings = rows_of(Ceiling, look.table("evaluation", "ceilings"))
    charts = dict(zip(OPEN_METRICS, horizon_figures(results, ceilings), strict=True))
    panels = [Panel(f"{name}: {DESCRIPTIONS[name]}", charts[name].chart) for name in SHOWN]
    panels.append(Panel("M@1 minus No-Traj’s, same windows", gain_figure(results).chart))
    weak = results.undertrained
    names = {v: row_name(v) + (" (UNDERTRAINED)" if v in weak else "") for v in rows}
    content = sheet(panels, [Key(names[v], v, MARKS[v]) for v in rows], style(), COLUMNS, look.warning())
    takes = max(m.n_takes for m in metrics)
    bounds = " Thin lines with bars are the ceilings of the rows of that colour." if ceilings else ""
    return Drawn(content, f"Bands and whiskers: 95 % intervals over {takes} test takes.{bounds}")
