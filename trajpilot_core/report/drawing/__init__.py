"""How charts are drawn as SVG: lines, bars, sheets of charts, legends, and what a picture may weigh."""
