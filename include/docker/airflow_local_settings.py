"""Airflow imports this file in every component: preload what task processes need before they fork."""

from airflow_relay.local_settings import *  # noqa: F403
