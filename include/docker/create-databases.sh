#!/bin/sh
# Runs once, when the PostgreSQL volume is empty: one role and one database each for Airflow and for Relay's ledger.
set -eu
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username postgres \
  --set airflow_password="$AIRFLOW_DB_PASSWORD" --set ledger_password="$RELAY_LEDGER_PASSWORD" <<'SQL'
CREATE ROLE airflow LOGIN PASSWORD :'airflow_password';
CREATE DATABASE airflow OWNER airflow;
CREATE ROLE relay LOGIN PASSWORD :'ledger_password';
CREATE DATABASE relay OWNER relay;
SQL
