"""The embedded reference agent server: the Responses API in background mode, offline.

``python -m airflow_relay.local_agent`` or ``airflow relay agent-server`` starts it. The modules:

- ``command``     command line; imports nothing heavy
- ``server``      binds the socket and runs uvicorn
- ``app``         HTTP routes and authentication (Starlette)
- ``wire``        request checking, response objects and error bodies, as OpenAI shapes them
- ``service``     the life of a job: queued → in_progress → terminal, cancel, restart
- ``store``       jobs in SQLite, in memory or in a file
- ``backends``    what does the work: ``extractive`` (default) or ``smollm2``
- ``faults``      switches that make the server misbehave like servers in the field, for tests

Beyond the API as published, two things are added: the ``Idempotency-Key`` header is honoured (same key
and same payload: the same job; same key and another payload: 422), and ``/admin`` routes exist when the
server is started with ``--allow-faults``.
"""
