"""Prepare the data: python flows/prepare_flow.py --source world"""

import asyncio
import logging

from prefect import get_run_logger, task

from flows.settings_flow import main, settings_flow
from searchr1.config import PrepareSettings
from searchr1.data import prepare
from tasks.retries import RETRIES


@task(name="prepare", **RETRIES)
async def prepare_questions(settings: PrepareSettings) -> None:
    """Prepare questions and corpus; does nothing when they are there already."""
    logger: logging.LoggerAdapter | logging.Logger = get_run_logger()
    await asyncio.to_thread(prepare, settings, logger.info)


@settings_flow(PrepareSettings, name="prepare-data")
async def prepare_data(settings: PrepareSettings) -> str:
    """Turn a published or built-in set of questions into the project's own files."""
    await prepare_questions(settings)
    return str(settings.data_dir)


if __name__ == "__main__":
    main(prepare_data, PrepareSettings)
