"""The thin Airflow ring: operators that perform what the core decides."""
