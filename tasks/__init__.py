"""The units that Prefect retries and shows: one concern a file.

Prefect's reports to its makers are switched off: its client's here, its server's in
`pyproject.toml` (`[tool.prefect]`).
"""

import os

os.environ.setdefault("DO_NOT_TRACK", "1")
