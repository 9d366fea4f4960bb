"""How sessions, runs and checkpoints look in the Control plane's JSON."""

from datetime import UTC, datetime, timedelta

from starlette.requests import Request

from searchr1.engine.checkpoints import Checkpoint
from searchr1.engine.engine import Engine
from searchr1.engine.model import ServedModel
from searchr1.engine.runs import SamplingRun, Session, Status, TrainingRun

WORKSPACE = "workspace_local"


def checkpoint_view(engine: Engine, checkpoint: Checkpoint) -> dict[str, object]:
    """A checkpoint as the protocol lists it."""
    run = engine.training_runs.get(checkpoint.run)
    path = engine.store.path(checkpoint)
    return {
        "cuid": checkpoint.cuid,
        "checkpoint_cuid": checkpoint.cuid,
        "training_run_cuid": checkpoint.run,
        "workspace_cuid": WORKSPACE,
        "name": checkpoint.name,
        "checkpoint_type": checkpoint.kind.wire,
        "status": "READY",
        "checkpoint_uri": checkpoint.uri,
        "model": checkpoint.model_alias,
        "base_model": checkpoint.model_alias,
        "model_spec_cuid": f"model_{checkpoint.model_alias}",
        "task_id": checkpoint.run,
        "task_created_at": iso(run.created if run else checkpoint.created),
        "task_status": str(run.status if run else Status.ENDED),
        "step": checkpoint.step,
        "path": checkpoint.uri,
        "created_at": iso(checkpoint.created),
        "size_bytes": path.stat().st_size if path.exists() else None,
        "lora_rank": checkpoint.lora.rank,
        "is_uploaded": True,
        "expired_at": iso(checkpoint.expires) if checkpoint.expires else None,
    }


def session_view(session: Session) -> dict[str, object]:
    """A session as the protocol lists it."""
    return {
        "service_session_cuid": session.cuid,
        "workspace_cuid": WORKSPACE,
        "status": str(session.status),
        "created_at": iso(session.created),
        "updated_at": iso(session.touched),
    }


def run_view(run: TrainingRun) -> dict[str, object]:
    """A training run as the protocol lists it."""
    params: dict[str, object] = {**run.lora._asdict(), "restore_optimizer": run.restore_optimizer}
    params["lora_rank"] = params.pop("rank")
    return {
        **ids(run),
        **params,
        "training_run_cuid": run.cuid,
        "base_model": run.base.alias,
        "status": str(run.status),
        "run_index": run.index,
        "model_spec_cuid": spec(run.base),
        "is_lora": True,
        "source_checkpoint_uri": run.source_uri or None,
        "corrupted": False,
        "training_params": params,
        "created_at": iso(run.created),
        "updated_at": iso(run.touched),
    }


def sampling_run_view(run: SamplingRun) -> dict[str, object]:
    """A sampling run as the protocol shows it."""
    return {
        **ids(run),
        "sampling_run_cuid": run.cuid,
        "status": str(run.status),
        "base_model": run.base.alias,
        "model_id": run.base.model_id,
        "alias": run.base.alias,
        "source_checkpoint_uri": run.source_uri or None,
        "created_at": iso(run.created),
        "updated_at": iso(run.touched),
    }


def created_view(run: TrainingRun | SamplingRun) -> dict[str, object]:
    """What the answers to both kinds of run creation share."""
    return {
        **ids(run),
        "status": str(run.status),
        "run_index": run.index,
        "model_spec_cuid": spec(run.base),
        "model_alias": run.base.alias,
        "model_id": run.base.model_id,
        "created_at": iso(run.created),
    }


def ids(run: TrainingRun | SamplingRun) -> dict[str, object]:
    """Where a run belongs."""
    return {"service_session_cuid": run.session, "workspace_cuid": WORKSPACE}


def credentials(request: Request, run: TrainingRun | SamplingRun) -> dict[str, object]:
    """Address and token of the Actor plane. The token is the run's own and lasts for a year."""
    expires = datetime.now(UTC) + timedelta(days=365)
    return {
        "actor": {
            "actor_cuid": "actor_local",
            "endpoint": f"{origin(request)}/actor",
            "connect_mode": "direct",
            "tls_enabled": False,
        },
        "actor_jwt": {"token": run.token, "expires_at": expires.isoformat()},
    }


def origin(request: Request) -> str:
    """Scheme, host and port by which the client reached us."""
    return f"{request.url.scheme}://{request.url.netloc}"


def spec(model: ServedModel) -> str:
    """Id of a served model."""
    return f"model_{model.alias}"


def iso(seconds: float) -> str:
    """A time as the protocol writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()
