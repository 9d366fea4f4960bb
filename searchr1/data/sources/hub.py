"""The published set on the Hugging Face hub.

`datasets` resolves the repository (which file is which split, at which commit) and downloads the
Parquet files into its own cache, with resume and progress. They are read from there as they are:
having it convert them to its own format first would cost more than the whole preparation.
The library reads the hub's address from HF_ENDPOINT when it is imported.
"""

from pathlib import Path
from typing import cast

from searchr1.data.clean import RawFile
from searchr1.data.sources import Progress, RawData, SourceUnavailable, no_such_data

DATASET = "PeterJinGo/nq_hotpotqa_train"
_SERVICE = "The Hugging Face hub"


def from_hub(revision: str | None, progress: Progress) -> RawData:
    """The files of the published set at `revision` (branch, tag or commit; default main).

    Splits other than train count as test. Raises SourceUnavailable for network faults and
    DataError when there is no such data set or revision.
    """
    import datasets  # here, because importing it takes seconds and other sources do without
    from huggingface_hub import HfApi, errors

    # Base of all errors of the HTTP library that this version of huggingface_hub goes with.
    http_error = cast(type[Exception], errors.HfHubHTTPError.__bases__[0])
    progress(f"fetching {DATASET} from the Hugging Face hub")
    try:
        commit = HfApi().dataset_info(DATASET, revision=revision, timeout=60).sha or ""
        builder = datasets.load_dataset_builder(DATASET, revision=commit)
        wanted = [
            (str(split), url)
            for split, urls in (builder.config.data_files or {}).items()
            for url in urls
        ]
        paths = datasets.DownloadManager().download([url for _, url in wanted])
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise no_such_data(_SERVICE, DATASET, revision or "main") from None
    except (http_error, ConnectionError, TimeoutError, FileNotFoundError) as error:
        # FileNotFoundError: the library's word for a file that it could not get hold of
        raise SourceUnavailable(_SERVICE, error) from None
    files = tuple(
        RawFile(Path(str(path)), "train" if split == "train" else "test", DATASET.split("/")[1])
        for (split, _), path in zip(wanted, paths, strict=True)
    )
    return RawData(DATASET, commit, files)
