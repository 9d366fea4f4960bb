"""The mirror of the published set on ModelScope, at a pinned revision.

`modelscope_hub` downloads the two files into its own cache, with resume and progress. The
service's address is read from MODELSCOPE_ENDPOINT.
"""

from pathlib import Path

from searchr1.data.clean import RawFile
from searchr1.data.sources import Progress, RawData, SourceUnavailable, no_such_data

DATASET = "zhuangzhuang2023/nq_hotpotqa_train"
REVISION = "aa2da0496c1b1a50a66af7acabdf09c07a0cb79e"
_SERVICE = "ModelScope"


def from_modelscope(revision: str | None, progress: Progress) -> RawData:
    """train.parquet and test.parquet of the mirror at `revision` (default `REVISION`).

    Raises SourceUnavailable for network faults and DataError when there is no such revision.
    """
    import requests
    from modelscope_hub import HubApi, errors

    revision = revision or REVISION
    files = []
    for split in ("train", "test"):
        name = f"{split}.parquet"
        progress(f"fetching {name} of {DATASET} from ModelScope")
        try:
            path = HubApi().download_file(
                DATASET, repo_type="dataset", file_path=name, revision=revision
            )
        except (errors.NotExistError, errors.AuthenticationError, errors.PermissionDeniedError):
            raise no_such_data(_SERVICE, DATASET, revision) from None
        except (errors.HubError, requests.RequestException, ConnectionError) as error:
            raise SourceUnavailable(_SERVICE, error) from None
        files.append(RawFile(Path(path), split, DATASET.split("/")[1]))
    return RawData(DATASET, revision, tuple(files))
