"""The units that Prefect retries, caches and shows: one concern a file.

Prefect's own reports to its makers are switched off here, before Prefect is first imported.
"""

import os

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
