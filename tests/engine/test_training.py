"""Training through the real SDK, against gradients and weights computed without the engine."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import pytrio as trio
import torch
from pytrio.errors.event import EventFailedError
from starlette.applications import Starlette
from torch import Tensor

from searchr1.engine.app import create_app
from searchr1.engine.config import EngineConfig
from tests.engine.conftest import ALIAS, KEY, EngineProcess
from tests.engine.helpers import (
    Reference,
    checkpoint_tensors,
    datum,
    new_training,
    random_batch,
    text_datum,
)

TOLERANCE = 1e-4
"""Relative, on gradients in float32: the engine pads and sums in another order."""
ADAM = trio.AdamParams(learning_rate=0.01, beta1=0.9, beta2=0.95, eps=1e-8)


@pytest.fixture(scope="module")
def home(engine: EngineProcess) -> Path:
    """Where the shared engine keeps its checkpoints."""
    command = engine.process.args
    assert isinstance(command, list)
    return Path(command[command.index("--home") + 1])


def state_of(client: trio.TrainingClient, home: Path, name: str) -> dict[str, Tensor]:
    """Tensors of the run's state, saved under `name`."""
    return checkpoint_tensors(home, client.save_state(name).result(timeout=120).path)


def trained(client: trio.TrainingClient, seed: int = 50) -> None:
    """Move B away from zero, so that A gets a gradient too."""
    tokens = [item[0] for item in random_batch(seed)]
    client.forward_backward([text_datum(t) for t in tokens], "cross_entropy").result(timeout=120)
    client.optim_step(trio.AdamParams(learning_rate=0.05, beta1=0.0, beta2=0.0)).result(timeout=120)


def gradients_of(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The last step's gradients: with beta1 = 0 Adam's first moment is the gradient itself."""
    marker = "adam:exp_avg:"
    return {
        name.removeprefix(marker): value for name, value in state.items() if name.startswith(marker)
    }


def assert_same(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        scale = float(value.abs().max())
        torch.testing.assert_close(got[name], value, atol=TOLERANCE * scale, rtol=TOLERANCE)


def engine_gradients(
    client: trio.TrainingClient, data: list[trio.Datum], loss: str, home: Path, name: str,
    **config: float,
) -> dict[str, Tensor]:  # fmt: skip
    """Gradients that the engine computed for one call."""
    client.forward_backward(data, loss, config).result(timeout=120)
    step = trio.AdamParams(learning_rate=0.0, beta1=0.0, beta2=0.0)
    client.optim_step(step).result(timeout=120)
    return gradients_of(state_of(client, home, name))


def importance_sampling_gradients(
    reference: Reference, batch: list[tuple[list[int], list[float], list[float]]]
) -> dict[str, Tensor]:
    """Plain autograd of mean over samples of -sum exp(logp - old) * A, one sample at a time."""
    total = torch.zeros(())
    for tokens, advantages, old in batch:
        ratio = (reference.logprobs(tokens) - torch.tensor(old)).exp()
        total = total - (ratio * torch.tensor(advantages)).sum() / len(batch)
    gradients = torch.autograd.grad(total, list(reference.named.values()))
    return dict(zip(reference.named, gradients, strict=True))


def test_the_importance_sampling_gradient_equals_plain_autograd(
    service: trio.ServiceClient, home: Path, model_folder: Path
) -> None:
    client = new_training(service)
    trained(client)
    reference = Reference(model_folder, state_of(client, home, "before"))
    batch = random_batch(1)
    got = engine_gradients(
        client, [datum(*item) for item in batch], "importance_sampling", home, "after"
    )
    wanted = importance_sampling_gradients(reference, batch)
    assert min(float(gradient.abs().max()) for gradient in wanted.values()) > 0
    assert_same(got, wanted)


def test_tokens_with_zero_advantage_change_nothing(service: trio.ServiceClient, home: Path) -> None:
    batch = random_batch(2)
    results = []
    for noise in (0.0, -600.0):  # exp(logp + 600) overflows: it must not even be computed
        client = new_training(service)
        trained(client)
        data = [
            datum(
                tokens,
                advantages,
                [noise if a == 0 else p for a, p in zip(advantages, old, strict=True)],
            )
            for tokens, advantages, old in batch
        ]
        results.append(engine_gradients(client, data, "importance_sampling", home, "after"))
    for name, gradient in results[0].items():
        assert torch.equal(gradient, results[1][name])


def test_cross_entropy_is_the_mean_over_samples_of_the_weighted_sum(
    service: trio.ServiceClient, home: Path, model_folder: Path
) -> None:
    client = new_training(service)
    trained(client)
    reference = Reference(model_folder, state_of(client, home, "before"))
    batch = [(tokens, weights) for tokens, weights, _ in random_batch(3)]
    data = [text_datum(*item) for item in batch]
    result = client.forward(data, "cross_entropy").result(timeout=120)
    got = engine_gradients(client, data, "cross_entropy", home, "after")
    losses = [-(torch.tensor(w) * reference.logprobs(t)).sum() for t, w in batch]
    total = torch.stack(losses).sum()
    assert result.metrics["loss_sum"] == pytest.approx(total.item(), rel=TOLERANCE)
    assert result.metrics["token_count"] == sum(w != 0 for _, ws in batch for w in ws)
    gradients = torch.autograd.grad(total / len(batch), list(reference.named.values()))
    assert_same(got, dict(zip(reference.named, gradients, strict=True)))


@pytest.mark.parametrize(
    ("loss", "config"),
    [
        ("ppo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}),
        ("cispo", {"clip_high_threshold": 1.1}),
        ("dro", {"beta": 0.3}),
    ],
)
def test_the_other_policy_losses_equal_plain_autograd(
    service: trio.ServiceClient, home: Path, model_folder: Path, loss: str,
    config: dict[str, float],
) -> None:  # fmt: skip
    client = new_training(service)
    trained(client)
    reference = Reference(model_folder, state_of(client, home, "before"))
    batch = random_batch(4)
    got = engine_gradients(client, [datum(*i) for i in batch], loss, home, "after", **config)
    total = torch.zeros(())
    for tokens, advantages, old_list in batch:
        logp, old, a = reference.logprobs(tokens), torch.tensor(old_list), torch.tensor(advantages)
        ratio = (logp - old).exp()
        if loss == "ppo":
            objective = torch.minimum(ratio * a, ratio.clamp(0.9, 1.1) * a)
        elif loss == "cispo":
            objective = ratio.clamp(0.0, 1.1).detach() * logp * a
        else:
            objective = (logp * a - 0.15 * (logp - old) ** 2) * (a != 0)
        total = total - objective.sum() / len(batch)
    gradients = torch.autograd.grad(total, list(reference.named.values()))
    assert_same(got, dict(zip(reference.named, gradients, strict=True)))


def test_logprobs_come_back_for_every_target_in_the_order_of_the_data(
    service: trio.ServiceClient, home: Path, model_folder: Path
) -> None:
    client = new_training(service)
    trained(client)
    reference = Reference(model_folder, state_of(client, home, "state"))
    batch = random_batch(5, count=9)
    data = [datum(*item) for item in batch]
    forward = client.forward(data, "importance_sampling").result(timeout=120)
    backward = client.forward_backward(data, "importance_sampling").result(timeout=120)
    loss_sum = 0.0
    for (tokens, advantages, old), one, two in zip(
        batch, forward.loss_fn_outputs, backward.loss_fn_outputs, strict=True
    ):
        wanted = reference.logprobs(tokens).detach()
        loss_sum -= float(((wanted - torch.tensor(old)).exp() * torch.tensor(advantages)).sum())
        for output in (one, two):
            assert output["logprobs"].data == pytest.approx(wanted.tolist(), abs=1e-4)
    assert forward.metrics["loss_sum"] == pytest.approx(loss_sum, rel=1e-4)
    assert forward.metrics["token_count"] == sum(len(a) for _, a, _ in batch)


def test_auto_shift_moves_the_targets_by_one(service: trio.ServiceClient) -> None:
    client = new_training(service)
    tokens = [1, 2, 3, 4, 5]
    shifted = text_datum(tokens)
    labels = trio.Datum(
        model_input=trio.ModelInput.from_ints(tokens), loss_fn_inputs={"target_tokens": tokens}
    )
    plain = client.forward([shifted], "cross_entropy").result(timeout=120)
    moved = client.forward([labels], "cross_entropy", auto_shift=True).result(timeout=120)
    expected = plain.loss_fn_outputs[0]["logprobs"].data
    assert moved.loss_fn_outputs[0]["logprobs"].data == pytest.approx([0.0, *expected], abs=1e-5)
    assert moved.metrics == pytest.approx(plain.metrics, rel=1e-5)


def test_a_call_split_into_events_gives_the_gradient_of_the_whole(
    serve: Callable[[Starlette], str], connect: Callable[[str], trio.ServiceClient],
    service: trio.ServiceClient, home: Path, tmp_path: Path, model_folder: Path,
) -> None:  # fmt: skip
    config = EngineConfig(tmp_path, {ALIAS: model_folder}, api_key=KEY, max_batch_size=2)
    small = serve(create_app(config))
    batch = [datum(*item) for item in random_batch(6, count=7)]
    results = []
    for client, where in (
        (new_training(service), home),
        (new_training(connect(small)), tmp_path),
    ):
        trained(client)
        results.append(engine_gradients(client, batch, "importance_sampling", where, "split"))
    assert_same(results[1], results[0])


def test_gradients_accumulate_until_the_step(service: trio.ServiceClient, home: Path) -> None:
    batch = [datum(*item) for item in random_batch(7)]
    once, twice = new_training(service), new_training(service)
    for client in (once, twice):
        trained(client)
    twice.forward_backward(batch, "importance_sampling").result(timeout=120)
    double = engine_gradients(twice, batch, "importance_sampling", home, "twice")
    single = engine_gradients(once, batch, "importance_sampling", home, "once")
    assert_same(double, {name: 2 * gradient for name, gradient in single.items()})
    cleared = twice.optim_step(ADAM).result(timeout=120)
    assert cleared.metrics["grad_norm"] == 0.0


def test_adamw_decays_clips_and_steps_as_published(service: trio.ServiceClient, home: Path) -> None:
    client = new_training(service)
    trained(client)
    before = state_of(client, home, "before")
    params = trio.AdamParams(
        learning_rate=0.1, beta1=0.0, beta2=0.0, eps=1e-3, weight_decay=0.5, grad_clip_norm=0.01
    )
    batch = [datum(*item) for item in random_batch(8)]
    client.forward_backward(batch, "importance_sampling").result(timeout=120)
    metrics = client.optim_step(params).result(timeout=120).metrics
    after = state_of(client, home, "after")
    clipped = gradients_of(after)
    norm = torch.stack([g.norm() for g in clipped.values()]).norm().item()
    assert metrics["grad_norm"] > 0.01
    assert norm == pytest.approx(0.01, rel=1e-3)
    for name, gradient in clipped.items():
        start = before[f"lora:{name}"]
        # beta1 = beta2 = 0: the step is g / (|g| + eps), after the decay by lr * wd.
        wanted = start * (1 - 0.1 * 0.5) - 0.1 * gradient / (gradient.abs() + 1e-3)
        torch.testing.assert_close(after[f"lora:{name}"], wanted, atol=1e-6, rtol=1e-5)


def test_a_restored_state_has_the_logprobs_of_the_saved_one(service: trio.ServiceClient) -> None:
    client = new_training(service)
    trained(client)
    data = [datum(*item) for item in random_batch(9)]
    expected = client.forward(data, "importance_sampling").result(timeout=120)
    path = client.save_state("restore-me").result(timeout=120).path
    loaded = new_training(service, seed=99)
    loaded.load_state(path)
    copies = [
        service.create_training_client_from_state(path),
        service.create_training_client_from_state_with_optimizer(path),
        loaded,
    ]
    for copy in copies:
        got = copy.forward(data, "importance_sampling").result(timeout=120)
        for one, two in zip(got.loss_fn_outputs, expected.loss_fn_outputs, strict=True):
            assert one["logprobs"].data == pytest.approx(two["logprobs"].data, abs=1e-6)


def test_with_its_optimiser_a_restored_run_goes_on_as_if_never_interrupted(
    service: trio.ServiceClient, home: Path
) -> None:
    def step(client: trio.TrainingClient, seed: int) -> float:
        data = [datum(*item) for item in random_batch(seed)]
        client.forward_backward(data, "importance_sampling").result(timeout=120)
        return client.optim_step(ADAM).result(timeout=120).metrics["step"]

    client = new_training(service)
    for seed in (20, 21):
        step(client, seed)
    path = client.save_state("middle").result(timeout=120).path
    resumed = service.create_training_client_from_state_with_optimizer(path)
    fresh = service.create_training_client_from_state(path)
    assert step(client, 22) == 3
    assert step(resumed, 22) == 3
    assert step(fresh, 22) == 1
    wanted = state_of(client, home, "end")
    got = state_of(resumed, home, "end")
    other = state_of(fresh, home, "end")
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(got[name], value, atol=1e-7, rtol=1e-6)
    assert any(
        float((other[name] - value).abs().max()) > 1e-4
        for name, value in wanted.items()
        if name.startswith("lora:")
    )


def test_a_seed_decides_the_initial_weights(service: trio.ServiceClient, home: Path) -> None:
    states = [state_of(new_training(service, seed=s), home, "new") for s in (1, 1, 2)]
    names = [name for name in states[0] if "lora_A" in name]
    assert names
    assert all(torch.equal(states[0][name], states[1][name]) for name in names)
    assert not all(torch.equal(states[0][name], states[2][name]) for name in names)
    assert all(not bool(states[0][name].any()) for name in states[0] if "lora_B" in name)


def test_runs_do_not_disturb_each_other(service: trio.ServiceClient) -> None:
    data = [datum(*item) for item in random_batch(10)]
    quiet, busy = new_training(service), new_training(service)
    before = quiet.forward(data, "importance_sampling").result(timeout=120)
    trained(busy)
    after = quiet.forward(data, "importance_sampling").result(timeout=120)
    for one, two in zip(before.loss_fn_outputs, after.loss_fn_outputs, strict=True):
        assert one["logprobs"].data == two["logprobs"].data


def test_an_infinite_loss_fails_the_event_and_leaves_the_gradient_as_it_was(
    service: trio.ServiceClient, home: Path
) -> None:
    client = new_training(service)
    trained(client)
    good = [datum(*item) for item in random_batch(11)]
    client.forward_backward(good, "importance_sampling").result(timeout=120)
    bad = [*good, datum([1, 2, 3], [1.0, 1.0], [-5.0, -1000.0])]
    with pytest.raises(EventFailedError) as error:
        client.forward_backward(bad, "importance_sampling").result(timeout=120)
    assert error.value.code == "non_finite_loss"
    assert not error.value.retryable
    client.optim_step(trio.AdamParams(learning_rate=0.0, beta1=0.0, beta2=0.0)).result(timeout=120)
    got = gradients_of(state_of(client, home, "after-bad"))
    other = new_training(service)
    trained(other)
    assert_same(got, engine_gradients(other, good, "importance_sampling", home, "after-good"))


@pytest.mark.parametrize(
    ("loss", "config"), [("ppo", {"clip": 0.2}), ("importance_sampling", {"beta": 1})]
)
def test_an_unknown_loss_setting_fails_the_event(
    service: trio.ServiceClient, loss: str, config: dict[str, float]
) -> None:
    client = new_training(service)
    with pytest.raises(EventFailedError) as error:
        client.forward([datum([1, 2], [1.0], [-1.0])], loss, config).result(timeout=120)
    assert error.value.code == "validation_failed"


def test_custom_losses_work_through_cross_entropy(service: trio.ServiceClient) -> None:
    client = new_training(service)
    seen: list[int] = []

    def loss(data: list[trio.Datum], logprobs: list[Tensor]) -> tuple[Tensor, dict[str, float]]:
        seen.extend(len(values) for values in logprobs)
        return -torch.cat(logprobs).sum(), {"mine": 1.0}

    data = [text_datum([1, 2, 3, 4]), text_datum([5, 6])]
    result = client.forward_backward_custom(data, loss).result(timeout=120)
    assert seen == [3, 1]
    assert result.metrics["mine"] == 1.0
    assert client.optim_step(ADAM).result(timeout=120).metrics["grad_norm"] > 0


def test_a_run_of_chosen_layers_trains_only_those(service: trio.ServiceClient, home: Path) -> None:
    client = service.create_lora_training_client(
        ALIAS, rank=4, seed=0, train_attn=False, train_unembed=False
    )
    names = state_of(client, home, "mlp-only")
    assert names
    assert all(".mlp." in name for name in names)


def test_the_service_reads_a_run_with_the_protocols_limits(
    service: trio.ServiceClient, engine: EngineProcess, model_folder: Path
) -> None:
    models = engine.get("/api/models").json()["items"]
    assert [m["alias"] for m in models] == [ALIAS]
    assert models[0]["model_id"] == str(model_folder.resolve())
    assert models[0]["trainer"] == {
        "max_batch_size": 256,
        "max_tokens_per_request": 131072,
        "max_seq_len": 256,
    }
    client = new_training(service)
    with pytest.raises(trio.PyTrioError) as error:
        client.forward([text_datum([1] * 258)], "cross_entropy").result(timeout=120)
    assert error.value.code == "validation.training_sample_too_long"
    assert len(client.get_tokenizer()) == 259
    assert isinstance(httpx.get(engine.url).json(), dict)
