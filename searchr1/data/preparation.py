"""From raw questions to the project's own files: fetch, clean, split, verify, publish.

The stages are functions of their own, so that a pipeline can wrap each; `prepare` runs them in a
row.
"""

from searchr1.data.clean import Cleaned, clean
from searchr1.data.manifest import Manifest, read_manifest, verified_file
from searchr1.data.publish import publish, write_rejected
from searchr1.data.settings import DataSettings, DataSource, preparation_digest
from searchr1.data.sources import Progress, RawData
from searchr1.data.sources.hub import from_hub
from searchr1.data.sources.local import from_files, from_world
from searchr1.data.sources.modelscope import from_modelscope
from searchr1.data.split import Splits, split_questions
from searchr1.data.verify import Findings, verify
from searchr1.errors import DataError


def prepare(settings: DataSettings, progress: Progress = print) -> Manifest:
    """Prepare the questions that `settings` ask for, unless that has been done.

    Raises DataError or SettingsError for what a person must change, and SourceUnavailable
    (retryable) when the source does not deliver for now.
    """
    done = current_manifest(settings)
    if done is not None:
        progress(f"{settings.data_dir} is up to date: nothing to do")
        return done
    raw = fetch(settings, progress)
    cleaned = clean_raw(settings, raw, progress)
    splits = split_questions(cleaned.questions, settings.drop_overlap)
    findings = check(settings, cleaned, splits, progress)
    return publish(settings, raw, cleaned, splits, findings, progress)


def check_source(settings: DataSettings) -> None:
    """Raise SettingsError for wrong `source_files`, without reading or fetching anything else."""
    if settings.source is DataSource.FILES:
        from_files(settings.source_files)


def current_manifest(settings: DataSettings) -> Manifest | None:
    """The manifest of a preparation that these settings would only repeat, else None.

    Local sources are looked at again; the network is never asked.
    """
    try:
        manifest = read_manifest(settings.data_dir)
        for name in manifest.files:
            verified_file(settings.data_dir, manifest, name)
    except DataError:
        return None
    if manifest.settings_digest != preparation_digest(settings):
        return None
    local = _local_raw(settings)
    return manifest if local is None or local.revision == manifest.revision else None


def fetch(settings: DataSettings, progress: Progress = print) -> RawData:
    """The raw files, on the local disk."""
    local = _local_raw(settings)
    if local is not None:
        return local
    from_network = from_hub if settings.source is DataSource.HUB else from_modelscope
    return from_network(settings.revision, progress)


def clean_raw(settings: DataSettings, raw: RawData, progress: Progress = print) -> Cleaned:
    """The questions of the raw files; rejected rows are listed in `data_dir` whatever follows."""
    cleaned = clean(raw.files)
    path = write_rejected(settings.data_dir, cleaned.rejected)
    progress(
        f"{len(cleaned.questions):,} questions from {len(raw.files)} files; "
        f"{len(cleaned.rejected):,} rows rejected, listed in {path}"
    )
    return cleaned


def check(
    settings: DataSettings, cleaned: Cleaned, splits: Splits, progress: Progress = print
) -> Findings:
    """What is worth knowing about the questions; DataError for what should not be trained on."""
    findings = verify(settings, cleaned, splits)
    verb = "removed from" if settings.drop_overlap else "are also in"
    if splits.overlap:
        progress(f"{splits.overlap:,} evaluation questions {verb} the training questions")
    for warning in findings.warnings:
        progress(f"warning: {warning}")
    return findings


def _local_raw(settings: DataSettings) -> RawData | None:
    if settings.source is DataSource.FILES:
        return from_files(settings.source_files)
    if settings.source is DataSource.WORLD:
        return from_world(settings.world_seed, settings.data_dir)
    return None
