"""The paired differences to the story's reference row in M@1 per horizon, with whiskers."""

from trajpilot_core.report.drawing.charts import Axes, Chart, keys_of_rows, whisker_chart
from trajpilot_core.report.figures.base import Figure, horizons_of, series_of
from trajpilot_core.report.story import story_of
from trajpilot_core.report.tables.names import row_name
from trajpilot_core.report.tables.results import Results


def gain_chart(results: Results) -> Chart:
    """Draw the differences."""
    variants = results.variants()
    story = story_of(variants)
    shown = [row for row in story.charted if row in variants]
    series = [s for s in (series_of(results, row, story.reference, "M@1") for row in shown) if s.points]
    reference = row_name(story.reference)
    axes = Axes(f"Difference to {reference} in M@1", "horizon H (steps)", "points of M@1", horizons_of(results))
    caption = f"M@1 minus that of {reference} on the same windows, 95 % intervals over takes"
    return Chart(caption, whisker_chart(axes, series), keys_of_rows([s.style for s in series]))


FIGURE = Figure("gains", "Gain over the reference row", "summary", lambda material: [gain_chart(material.results)])
