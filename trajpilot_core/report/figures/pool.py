"""The retrieved pool over the horizon: how often the gate opens, and how often the pool contains the truth."""

from trajpilot_core.methods import examined
from trajpilot_core.report.drawing.charts import Axes, Chart, Point, Series, keys_of, line_chart
from trajpilot_core.report.drawing.row_styles import told_apart
from trajpilot_core.report.figures.base import Figure, Material


def _chart(
    title: str, caption: str, y_label: str, mark: str, lines: dict[str, list[tuple[int, float]]], styles: list[str]
) -> Chart:
    """Draw shares over the horizon: name of a line -> its (horizon, percent)."""
    series = [
        Series(name, style, tuple(Point(float(h), *[share] * 3) for h, share in points), mark)
        for (name, points), style in zip(lines.items(), told_apart(styles), strict=True)
    ]
    ticks = tuple(sorted({float(h) for points in lines.values() for h, _ in points}))
    return Chart(caption, line_chart(Axes(title, "horizon H (steps)", y_label, ticks), series), keys_of(series))


def gate_charts(material: Material) -> list[Chart]:
    """Draw the share of opened gates, one line per seed."""
    seeds = sorted({row.seed for row in material.gate})
    lines = {
        f"seed {seed}": [(r.horizon, r.open_rate) for r in material.gate if r.seed == seed and r.horizon is not None]
        for seed in seeds
    }
    styles = [examined().id if seed == seeds[0] else "" for seed in seeds]
    caption = "Windows in which the gate opened for a retrieved trajectory"
    return [_chart("Open rate of the gate", caption, "gate open, %", "square", lines, styles)]


def headroom_charts(material: Material) -> list[Chart]:
    """Draw the same-step recall of the retrieved pool, one line per pool size, first seed."""
    rows = [row for row in material.headroom if row.seed == min(r.seed for r in material.headroom)]
    lines = {
        f"top {pool}": [(r.horizon, r.same_step_recall) for r in rows if r.pool == pool]
        for pool in sorted({row.pool for row in rows})
    }
    caption = "Middle steps for which a candidate has the true label at the same position"
    return [_chart("Headroom of the retrieved pool", caption, "truth in pool, %", "circle", lines, [""] * len(lines))]


FIGURES = (
    Figure("gate", "Open rate of the gate", "retrieval", gate_charts),
    Figure("headroom", "Headroom of the retrieved pool", "pool", headroom_charts),
)
