"""The overnight run: four analyses of the installed Airflow packages, a follow-up, and a report of them.

The work is small and real, so that the run can be tried in a minute; ``settings`` sets the hours of a night.
"""
