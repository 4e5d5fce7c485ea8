"""How to talk to agent servers, sans-IO: build a request, parse a reply. No Airflow, no network, no SQL."""
