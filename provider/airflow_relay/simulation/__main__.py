"""``python -m airflow_relay.simulation SCENARIO``: the command without Airflow's own."""

from airflow_relay.simulation.command import main

raise SystemExit(main())
