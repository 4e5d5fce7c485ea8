"""The thin Airflow ring: hooks that perform what the core decides."""
