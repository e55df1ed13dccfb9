"""The tables of the report: rows, ceilings, attribution, published values, and how a table is printed."""
