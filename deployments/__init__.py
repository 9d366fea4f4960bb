"""What a Prefect server knows of this project: its deployments, its automations, its shorthand.

Imported by Prefect itself at start-up (see `deployments.bare_names`), so it stays light.
"""
