"""The example deployment's content side: briefs in, cited pages out.

Plain Python without Airflow: the DAG files in ``dags/content/`` call these functions. Put ``include/``
on ``sys.path`` (``PYTHONPATH``) and import ``content.briefs``, ``content.payloads``, ``content.pages``.
"""
