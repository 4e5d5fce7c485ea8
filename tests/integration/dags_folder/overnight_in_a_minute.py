"""The example's overnight run (an Airflow DAG file) with the times of a minute, started by hand only."""

from __future__ import annotations

import os
from pathlib import Path
from runpy import run_path

os.environ["RELAY_OVERNIGHT_FIRST_POLL"] = "15"
os.environ["RELAY_OVERNIGHT_POLL_INTERVAL"] = "10"
os.environ["RELAY_OVERNIGHT_CEILING"] = "90"
os.environ["RELAY_OVERNIGHT_SCHEDULE"] = "none"

example = Path(__file__).parents[3] / "dags" / "overnight" / "overnight.py"
globals().update({k: v for k, v in run_path(str(example)).items() if not k.startswith("__")})
