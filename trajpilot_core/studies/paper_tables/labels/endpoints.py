"""The label of the recogniser of endpoints, which the stage `vlm_rows` fills from its table `endpoint_cache`.

Source: arXiv 2605.20388; rows and metrics are called as in `trajpilot_core/paper/tables/qwen3vl_endpoint_cache.csv`.
"""

from trajpilot_core.studies.paper_tables.base import (
    Column,
    Line,
    PaperCell,
    PaperRun,
    PaperTable,
    of_a_sample,
    plain_cell,
)

LABEL = "qwen3vl_endpoint_cache"
ENDPOINTS = {
    "segments": "Endpoint segments",
    "R@1": "Endpoint R@1",
    "R@5": "Endpoint R@5",
    "exact_projection": "Exact projection to the text bank",
    "fallback_projection": "Fallback projection",
}


UNTUNED = "untuned "
"""Begins the rows of a recogniser that is not named by the digest of its tuned weights."""


def of_endpoints(run: PaperRun) -> list[PaperCell]:
    """Return the cells that a run fills; made-up answers of a test fill none, nor does a sample of windows."""
    if of_a_sample(run):
        return []
    table = run.read("vlm_rows", "endpoint_cache")
    held = [] if table is None else table.to_pylist()
    return [
        plain_cell(
            run, LABEL, row["row"] if row.get("adapter") else f"{UNTUNED}{row['row']}", metric, float(row[metric])
        )
        for row in held
        if row["row"] in ENDPOINTS and not row["is_stub"]
        for metric in ("count", "percentage")
    ]


TABLES = (
    PaperTable(
        label=LABEL,
        title="Recognition of the endpoints by a vision-language model, tuned unless a line says otherwise",
        heads=("Quantity",),
        lines=tuple(Line((title,), row) for row, title in ENDPOINTS.items()),
        further=tuple(Line((f"{title}, UNTUNED",), f"{UNTUNED}{row}") for row, title in ENDPOINTS.items()),
        columns=(Column("Count", ("count",), digits=0), Column("Percentage", ("percentage",))),
        cells=of_endpoints,
        of_methods=False,
        stage="vlm_rows",
        recipes=("vlm_sft",),
    ),
)
