"""Builders of DAGs: stages, and the operations DAGs."""
