"""The rules of Relay as pure functions: values in, decisions out. No Airflow, no SQL, no I/O, no clock."""
