"""Ego4D GoalStep."""
