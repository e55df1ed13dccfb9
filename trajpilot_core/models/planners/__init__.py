"""Planners of other papers, written anew: closed vocabularies, one model a horizon."""
