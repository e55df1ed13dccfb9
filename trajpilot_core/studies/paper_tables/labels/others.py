"""Labels that nothing here fills: their layouts alone. What builds one gives it `cells`, and a file of its own.

Source: arXiv 2605.20388; rows and metrics are called as in `trajpilot_core/paper/tables/<label>.csv`.
"""

from trajpilot_core.studies.paper_tables.base import Column, Line, PaperTable

ENDPOINTS = {
    "segments": "Endpoint segments",
    "R@1": "Endpoint R@1",
    "R@5": "Endpoint R@5",
    "exact_projection": "Exact projection to the text bank",
    "fallback_projection": "Fallback projection",
}
TABLES = (
    PaperTable(
        label="qwen3vl_endpoint_cache",
        title="Recognition of the endpoints by a tuned vision-language model",
        heads=("Quantity",),
        lines=tuple(Line((title,), row) for row, title in ENDPOINTS.items()),
        columns=(Column("Count", ("count",), digits=0), Column("Percentage", ("percentage",))),
    ),
)
