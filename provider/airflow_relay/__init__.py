"""Relay: run Airflow pipelines of unpredictable length by completion."""

__version__ = "0.1.0"
