"""The thin Airflow ring: policies that perform what the core decides."""
