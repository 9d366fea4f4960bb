"""Prepare the data: python flows/prepare_flow.py --source world"""

from flows.settings_flow import main, settings_flow
from tasks.prepare import (
    clean_questions,
    fetch_raw,
    prepared,
    split_sets,
    summarise,
    verify_and_write,
)

from prefect import get_run_logger

from searchr1.config import PrepareSettings
from searchr1.data.preparation import check_source


@settings_flow(PrepareSettings, name="prepare-data")
async def prepare_data(settings: PrepareSettings) -> str:
    """Turn a published or built-in set of questions into the project's own files.

    Does nothing when that has been done and nothing has changed. Returns the folder.
    """
    manifest = await prepared(settings)
    if manifest is None:
        raw = await fetch_raw(settings)
        cleaned = await clean_questions(settings, raw)
        splits = await split_sets(settings, cleaned)
        manifest = await verify_and_write(settings, raw, cleaned, splits)
    else:
        get_run_logger().info("%s is up to date: nothing to do", settings.data_dir)
    await summarise(manifest)
    return str(settings.data_dir)


async def check(settings: PrepareSettings) -> None:
    """What can be found wrong before anything is started."""
    check_source(settings)


if __name__ == "__main__":
    main(prepare_data, PrepareSettings, check)
