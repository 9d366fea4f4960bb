"""The preparation tasks: one a stage. What passes between them stays in memory.

The manifest is the cache: `prepared` looks at it, and at the checksums in it, and when nothing
has changed no other stage runs.
"""

import asyncio
import logging
from typing import Any

from tasks.progress import progress
from tasks.retries import RETRIES

from prefect import get_run_logger, task
from prefect.artifacts import acreate_table_artifact

from searchr1.data.clean import Cleaned
from searchr1.data.manifest import Manifest
from searchr1.data.preparation import check, clean_raw, current_manifest, fetch
from searchr1.data.publish import publish
from searchr1.data.settings import DataSettings
from searchr1.data.sources import RawData
from searchr1.data.split import Splits, split_questions
from searchr1.data.summary import summary_rows


@task(name="prepared", task_run_name="look at the manifest", **RETRIES)
async def prepared(settings: DataSettings) -> Manifest | None:
    """The manifest of a preparation that would only be repeated, else None."""
    return await asyncio.to_thread(current_manifest, settings)


@task(name="fetch", task_run_name="fetch {settings.source}", **RETRIES)
async def fetch_raw(settings: DataSettings) -> RawData:
    """The raw files. Raises SourceUnavailable, to be tried again, for network faults."""
    async with progress(lambda: f"fetching from {settings.source}"):
        return await asyncio.to_thread(fetch, settings, _logger().info)


@task(name="clean", task_run_name="clean", **RETRIES)
async def clean_questions(settings: DataSettings, raw: RawData) -> Cleaned:
    """Questions of one shape; what is rejected is listed with its reason."""
    return await asyncio.to_thread(clean_raw, settings, raw, _logger().info)


@task(name="split", task_run_name="split", **RETRIES)
async def split_sets(settings: DataSettings, cleaned: Cleaned) -> Splits:
    """Train, test and the fixed evaluation sets."""
    return await asyncio.to_thread(split_questions, cleaned.questions, settings.drop_overlap)


@task(name="verify", task_run_name="verify and write", **RETRIES)
async def verify_and_write(
    settings: DataSettings, raw: RawData, cleaned: Cleaned, splits: Splits
) -> Manifest:
    """Check the questions, then write them, the manifest last."""
    findings = await asyncio.to_thread(check, settings, cleaned, splits, _logger().info)
    return await asyncio.to_thread(
        publish, settings, raw, cleaned, splits, findings, _logger().info
    )


async def summarise(manifest: Manifest) -> None:
    """Keep the figures as a table in Prefect."""
    await acreate_table_artifact(
        summary_rows(manifest),
        key="prepared-questions",
        description=f"Questions from {manifest.origin}, revision {manifest.revision[:12]}",
    )


def _logger() -> logging.Logger | logging.LoggerAdapter[Any]:
    return get_run_logger()
