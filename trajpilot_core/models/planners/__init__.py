"""Planners of other papers, reimplemented: closed vocabularies, one model per horizon."""
