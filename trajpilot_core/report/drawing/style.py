"""The report's colours and dashes for pictures that stand alone, so that a row looks the same everywhere."""

import re
from importlib import resources

from markupsafe import Markup

from trajpilot_core.report.drawing.row_styles import picture_rules

COLUMNS = 2
"""Charts side by side: as many as the UI shows without making them smaller."""
PLAIN = """
svg { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.page { fill: #ffffff; } .banner { fill: %(warn-bg)s; }
.warning { font-size: 13px; font-weight: 600; fill: %(warn-ink)s; }
.title { font-size: 14px; font-weight: 600; fill: %(ink)s; } .key { font-size: 12px; fill: %(ink)s; }
.name { font-size: 11px; fill: %(ink)s; }
.grid { stroke: %(line)s; stroke-width: 1; } .zero { stroke: %(ink)s; stroke-width: 1.4; }
.tick { font-size: 10.5px; fill: %(soft)s; } .label { font-size: 11px; fill: %(soft)s; }
.line { fill: none; stroke: currentColor; stroke-width: 1.9; } .line g { fill: currentColor; }
.line circle, .line rect, .line path { fill: currentColor; stroke: #ffffff; stroke-width: .8; }
.band { fill: currentColor; opacity: .14; stroke: none; }
.thin { fill: none; stroke: currentColor; stroke-width: .8; opacity: .75; }
.bound { fill: none; stroke: currentColor; stroke-width: 1; } .bound polyline { stroke-width: .8; opacity: .75; }
.bound path { stroke-width: 1.5; } .start { stroke: %(ink)s; stroke-width: 2; fill: none; }
.train { color: %(accent)s; } .dev { color: #7fb6c8; } .test { color: %(soft)s; } .lost { color: %(miss)s; }
.bar { fill: currentColor; }
"""


def style() -> Markup:
    """Return the style sheet: the page's colours in light, and colours and dashes of the rows."""
    sheet = resources.files("trajpilot_core.report").joinpath("templates/report.css").read_text()
    light = sheet[: sheet.index("}")]
    colour = dict(re.findall(r"--([\w-]+): (#\w+);", light))
    return Markup(PLAIN % colour + picture_rules())  # our own text, no data
