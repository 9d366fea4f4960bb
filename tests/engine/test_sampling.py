"""Sampling through the real SDK and the real engine."""

import asyncio
import json
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import pytrio as trio
from pytrio.errors.actor import ActorAPIError

from tests.engine.conftest import ALIAS, VOCAB, EngineProcess
from tests.engine.helpers import datum, new_training, prompt_of, random_batch, text_datum

LOGPROB_TOLERANCE = 1e-4
"""Between a sampled logprob and the one computed again (float32, batches of other shapes)."""
END, STOP = 256, 258


@pytest.fixture(scope="module")
def base(service: trio.ServiceClient) -> trio.SamplingClient:
    """Samples from the untrained model."""
    return service.create_sampling_client(base_model=ALIAS)


def sample(client: trio.SamplingClient, *tokens: int, count: int = 1, **params: Any) -> Any:
    """One request."""
    return client.sample(
        prompt=prompt_of(*tokens),
        num_samples=count,
        sampling_params=trio.SamplingParams(**{"max_tokens": 12, **params}),
    ).result(timeout=120)


def recomputed(client: trio.SamplingClient, prompt: list[int], tokens: list[int]) -> list[float]:
    """Logprobs of `tokens` after `prompt`, by compute_logprobs."""
    values = client.compute_logprobs(prompt_of(*prompt, *tokens)).result(timeout=120)
    assert values[0] is None
    return values[len(prompt) :]


def test_sampled_logprobs_equal_recomputed_ones_in_ragged_batches(
    base: trio.SamplingClient,
) -> None:
    prompts = [[i] * (1 + 5 * i) for i in range(1, 9)]
    futures = [
        base.sample(
            prompt=prompt_of(*prompt),
            num_samples=3,
            sampling_params=trio.SamplingParams(max_tokens=3 + 4 * i, seed=i),
        )
        for i, prompt in enumerate(prompts)
    ]
    for prompt, future in zip(prompts, futures, strict=True):
        sequences = future.result(timeout=120).sequences
        assert len(sequences) == 3
        for sequence in sequences:
            again = recomputed(base, prompt, sequence.tokens)
            assert sequence.logprobs == pytest.approx(again, abs=LOGPROB_TOLERANCE)


def test_a_trained_policy_samples_with_the_logprobs_that_training_sees(
    service: trio.ServiceClient,
) -> None:
    client = new_training(service)
    client.forward_backward([text_datum([1, 2, 3, 4])], "cross_entropy").result()
    client.optim_step(trio.AdamParams(learning_rate=0.05)).result()
    policy = client.save_weights_and_get_sampling_client()
    sequences = sample(policy, 1, 2, 3, count=4, seed=5).sequences
    data = [
        datum([1, 2, 3, *s.tokens], [1.0] * (2 + len(s.tokens)), [0.0, 0.0, *s.logprobs])
        for s in sequences
    ]
    outputs = client.forward(data, "importance_sampling").result().loss_fn_outputs
    for sequence, output in zip(sequences, outputs, strict=True):
        assert output["logprobs"].data[2:] == pytest.approx(
            sequence.logprobs, abs=LOGPROB_TOLERANCE
        )
    base = service.create_sampling_client(base_model=ALIAS)
    before = recomputed(base, [1, 2, 3], sequences[0].tokens)
    assert before != pytest.approx(sequences[0].logprobs, abs=0.01)


def test_a_seed_gives_the_same_tokens_whatever_else_is_sampled(base: trio.SamplingClient) -> None:
    alone = sample(base, 10, 20, 30, count=3, seed=11)
    crowd = [
        base.sample(
            prompt=prompt_of(40, i),
            num_samples=2,
            sampling_params=trio.SamplingParams(max_tokens=20),
        )
        for i in range(10)
    ]
    crowded = sample(base, 10, 20, 30, count=3, seed=11)
    for future in crowd:
        future.result(timeout=120)
    assert [s.tokens for s in alone.sequences] == [s.tokens for s in crowded.sequences]
    assert len({tuple(s.tokens) for s in alone.sequences}) == 3
    other = sample(base, 10, 20, 30, count=3, seed=12)
    assert [s.tokens for s in other.sequences] != [s.tokens for s in alone.sequences]
    unseeded = [sample(base, 10, 20, 30).sequences[0].tokens for _ in range(2)]
    assert unseeded[0] != unseeded[1]


def test_temperature_zero_is_greedy_with_the_logprob_of_temperature_one(
    base: trio.SamplingClient,
) -> None:
    first, second = (sample(base, 1, 2, 3, temperature=0.0).sequences[0] for _ in range(2))
    assert first.tokens == second.tokens
    assert first.logprobs == pytest.approx(
        recomputed(base, [1, 2, 3], first.tokens), abs=LOGPROB_TOLERANCE
    )
    assert sample(base, 1, 2, 3, top_k=1).sequences[0].tokens == first.tokens


def test_truncation_reports_the_distribution_that_was_sampled_from(
    base: trio.SamplingClient,
) -> None:
    prompt = [5, 6, 7]
    best = base.sample(
        prompt=prompt_of(*prompt, 0),
        sampling_params=trio.SamplingParams(max_tokens=1),
        topk_prompt_logprobs=2,
        include_prompt_logprobs=True,
    ).result(timeout=120)
    (one, p), (two, q) = best.topk_prompt_logprobs[3]
    sequences = sample(base, *prompt, count=20, top_k=2, max_tokens=1).sequences
    assert {s.tokens[0] for s in sequences} == {one, two}
    for s in sequences:
        expected = (p if s.tokens[0] == one else q) - float(_log_sum_exp(p, q))
        assert s.logprobs[0] == pytest.approx(expected, abs=LOGPROB_TOLERANCE)


def _log_sum_exp(a: float, b: float) -> float:
    import math

    return math.log(math.exp(a) + math.exp(b))


def test_prompt_logprobs_line_up_with_their_alternatives(base: trio.SamplingClient) -> None:
    prompt = [9, 8, 7, 6]
    answer = base.sample(
        prompt=prompt_of(*prompt),
        sampling_params=trio.SamplingParams(max_tokens=1),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=VOCAB,
    )
    with pytest.raises(ActorAPIError) as error:
        answer.result(timeout=120)
    assert error.value.status_code == 400
    result = base.sample(
        prompt=prompt_of(*prompt),
        sampling_params=trio.SamplingParams(max_tokens=1),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=100,
    ).result(timeout=120)
    assert result.prompt_logprobs[0] is None
    assert result.topk_prompt_logprobs[0] is None
    for place in range(1, 4):
        alternatives = dict(result.topk_prompt_logprobs[place])
        values = [value for _, value in result.topk_prompt_logprobs[place]]
        assert values == sorted(values, reverse=True)
        if prompt[place] in alternatives:
            assert alternatives[prompt[place]] == result.prompt_logprobs[place]


def test_a_stop_token_ends_the_sequence_and_is_its_last_token(base: trio.SamplingClient) -> None:
    free = sample(base, 4, 5, max_tokens=40, seed=2).sequences[0]
    assert free.stop_reason == "length"
    assert len(free.tokens) == 40
    chosen = free.tokens[9]
    first = free.tokens.index(chosen)
    stopped = sample(base, 4, 5, max_tokens=40, seed=2, stop=[chosen]).sequences[0]
    assert stopped.stop_reason == "stop"
    assert stopped.tokens == free.tokens[: first + 1]
    assert stopped.logprobs == pytest.approx(free.logprobs[: first + 1], abs=LOGPROB_TOLERANCE)


def test_a_stop_string_ends_the_sequence_wherever_its_tokens_split(
    base: trio.SamplingClient, model_folder: Any
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder)

    def ask(**params: Any) -> Any:
        return base.sample(
            prompt=prompt_of(4, 5),
            sampling_params=trio.SamplingParams(max_tokens=60, seed=8, **params),
            return_text=True,
        ).result(timeout=120)

    free = ask().sequences[0]
    assert free.text == tokenizer.decode(free.tokens)
    # Two neighbouring printable characters; each byte is a token.
    place = next(
        i
        for i in range(20, 58)
        if tokenizer.decode(free.tokens[i : i + 2]).isprintable()
        and "\ufffd" not in tokenizer.decode(free.tokens[i : i + 2])
    )
    text = tokenizer.decode(free.tokens[place : place + 2])
    stopped = ask(stop=["never there", text]).sequences[0]
    assert stopped.stop_reason == "stop"
    assert stopped.tokens == free.tokens[: len(stopped.tokens)]
    assert tokenizer.decode(stopped.tokens).endswith(text)
    assert text not in tokenizer.decode(stopped.tokens[:-1])
    assert stopped.text == tokenizer.decode(stopped.tokens)[: -len(text)]


def test_only_ids_of_the_tokenizer_are_sampled(base: trio.SamplingClient) -> None:
    sequences = sample(base, 1, count=64, temperature=100.0, max_tokens=60).sequences
    tokens = {token for s in sequences for token in s.tokens}
    assert max(tokens) < VOCAB
    assert len(tokens) > VOCAB * 0.9
    assert any(s.tokens[-1] == END and s.stop_reason == "stop" for s in sequences)
    assert all(END not in s.tokens[:-1] for s in sequences)


def test_sampling_from_weights_without_a_step_equals_the_base(
    service: trio.ServiceClient, base: trio.SamplingClient
) -> None:
    client = new_training(service)
    path = client.save_weights_for_sampler("untouched").result().path
    state = client.save_state("untouched").result().path
    expected = sample(base, 1, 2, count=2, seed=4).sequences
    for uri in (path, state):
        policy = service.create_sampling_client(base_model=ALIAS, model_path=uri)
        sequences = sample(policy, 1, 2, count=2, seed=4).sequences
        assert [s.tokens for s in sequences] == [s.tokens for s in expected]
        assert sequences[0].logprobs == pytest.approx(expected[0].logprobs, abs=1e-5)


def test_concurrent_requests_share_forward_passes(
    engine: EngineProcess, base: trio.SamplingClient
) -> None:
    before = engine.metrics()

    async def run() -> None:
        await asyncio.gather(
            *(
                base.sample_async(
                    prompt_of(i, i, i), 1, trio.SamplingParams(max_tokens=30, stop=[])
                )
                for i in range(48)
            )
        )

    asyncio.run(run())
    after = engine.metrics()
    steps = after["decode_steps"] - before["decode_steps"]
    rows = after["decoded_rows"] - before["decoded_rows"]
    assert after["requests"] - before["requests"] == 48
    assert rows > 48 * 10
    assert rows / steps > 4, f"{rows} rows in {steps} steps"
    assert after["largest_batch"] > 4


def test_different_weights_are_served_in_turn(
    service: trio.ServiceClient, base: trio.SamplingClient
) -> None:
    client = new_training(service)
    client.forward_backward([text_datum([1, 2, 3])], "cross_entropy").result()
    client.optim_step(trio.AdamParams(learning_rate=0.1)).result()
    trained = client.save_weights_and_get_sampling_client()
    expected = [sample(c, 7, 7, seed=1).sequences[0].tokens for c in (base, trained)]
    assert expected[0] != expected[1]
    params = trio.SamplingParams(max_tokens=12, seed=1)
    futures = [
        c.sample(prompt=prompt_of(7, 7), sampling_params=params) for c in (base, trained) * 4
    ]
    got = [future.result(timeout=120).sequences[0].tokens for future in futures]
    assert got == expected * 4


def test_sampling_goes_on_while_a_run_trains(
    service: trio.ServiceClient, base: trio.SamplingClient
) -> None:
    client = new_training(service)
    batch = [datum(*item) for item in random_batch(0, 200)]
    training = client.forward_backward(batch, "importance_sampling")
    answered = 0
    while not _done(training):
        sample(base, 1, max_tokens=2)
        answered += 1
    training.result()
    assert answered >= 2


def _done(future: Any) -> bool:
    try:
        future.result(timeout=0.001)
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    ("prompt", "params", "count"),
    [
        ([1] * 257, {}, 1),
        ([VOCAB], {}, 1),
        ([-1], {}, 1),
        ([1], {"temperature": -1.0}, 1),
        ([1], {"top_p": 0.0}, 1),
        ([1], {"top_k": -5}, 1),
        ([1], {"stop": [""]}, 1),
        ([1], {}, 257),
    ],
)
def test_a_request_beyond_the_limits_is_refused_at_once(
    base: trio.SamplingClient, prompt: list[int], params: dict[str, Any], count: int
) -> None:
    with pytest.raises(ActorAPIError) as error:
        sample(base, *prompt, count=count, **params)
    assert error.value.status_code == 400
    assert error.value.code in ("validation_failed", "invalid_request_body")


def test_a_sequence_ends_at_the_length_of_the_model(base: trio.SamplingClient) -> None:
    sequence = sample(base, *[1] * 250, max_tokens=500, seed=1).sequences[0]
    assert len(sequence.tokens) == 256 - 250 + 1
    assert sequence.stop_reason == "length"
    assert len(sample(base, *[1] * 256, max_tokens=500).sequences[0].tokens) == 1
    assert len(base.compute_logprobs(prompt_of(*[1] * 256)).result()) == 256


def test_a_client_that_hangs_up_frees_its_place(
    engine: EngineProcess, service: trio.ServiceClient
) -> None:
    created = engine.call(
        "POST",
        f"/api/openapi/v1/service-sessions/{service.service_session_cuid}/sampling-runs",
        json={"base_model": ALIAS},
    ).json()
    body = {
        "request_id": "req_1",
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1]}]},
        "sampling_params": {"max_tokens": 250},
        "num_samples": 200,
    }
    url = f"{engine.url}/actor/v1/sampling-runs/{created['sampling_run_cuid']}/sample"
    headers = {"Authorization": f"Bearer {created['actor_jwt']['token']}"}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url, json=body, headers=headers, timeout=0.5)
    base = service.create_sampling_client(base_model=ALIAS)
    sample(base, 1, max_tokens=1)
    with ThreadPoolExecutor(1) as pool:
        waiting: Future[None] = pool.submit(_until_idle, engine)
        waiting.result(timeout=30)
    assert httpx.post(url, content=json.dumps(body), timeout=5).status_code == 401


def _until_idle(engine: EngineProcess) -> None:
    while engine.metrics()["rows_active"]:
        pass
