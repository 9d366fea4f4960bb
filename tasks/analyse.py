"""The analysis tasks: load the warehouse, write figures and report, say what came out."""

import asyncio
from pathlib import Path

from tasks.artifacts import artifact_key

from prefect import task
from prefect.artifacts import acreate_markdown_artifact

from searchr1.report import build_report, headline, print_summary
from searchr1.warehouse import load


@task(name="load-warehouse")
async def load_warehouse(runs_dir: Path) -> Path:
    """Bring the warehouse up to date with the run directories. Returns its file."""
    return await asyncio.to_thread(load, runs_dir)


@task(name="report", task_run_name="report {run_name}")
async def report(runs_dir: Path, run_name: str) -> Path:
    """Write the run's report and figures, print the comparison, keep the headline as an artifact
    in Prefect. Returns the report's file."""
    file = await asyncio.to_thread(build_report, runs_dir, run_name)
    await asyncio.to_thread(print_summary, runs_dir, run_name)
    await acreate_markdown_artifact(
        await asyncio.to_thread(headline, runs_dir, run_name), key=artifact_key("report", run_name)
    )
    return file
