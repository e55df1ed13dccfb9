"""The paper's tables in its own column layout, filled from finished runs."""
