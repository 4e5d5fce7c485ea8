"""The newsroom: three publications about running Airflow that share their desks.

Used by the DAGs in ``dags/newsroom``. Nothing here needs Airflow to be imported, except the pipeline.
"""
