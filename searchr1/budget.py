"""What a run has cost, and whether it can afford its next step.

All amounts are US dollars. Everything is derived from stored trajectories, the settings' prices
and the ledger's metrics, nothing is kept in memory: whoever starts a run again, anywhere, gets the
same answer. What ended in the ledger is counted, with the groups that an outage spoiled and that
were sampled again; groups that are sampled but not yet in a finished step are paid for by the
estimate of the next step, of which they are a part.

How the policy service bills is assumed as follows; its price list decides.

- Sampling: every request pays for its whole prompt and for every token that it returns. A request
  for several sequences pays for its prompt once. No discount for a prompt that begins like an
  earlier one, so a trajectory of n turns pays for its beginning n times.
- Training: every input token of every datum, once an update.
- A search pays what its record says (`SearchRecord.cost`): nothing when it failed, found nothing
  or was answered from the cache.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from searchr1.errors import SettingsError
from searchr1.trajectory import Group

MILLION = 1_000_000
RECENT_STEPS = 5
"""The next step is expected to cost what the costliest of the last so many did."""
_ROUNDING = 1e-9
"""US dollars that sums of floats may be off by."""

Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""US dollars a million tokens."""


class Prices(BaseModel):
    """Prices of the policy service, for the settings to inherit. The default is 0 because a
    price list is the service's to change and the person's to read; the price of a search is
    `search_cost` of the search settings."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    price_train_tokens: Price = 0.0
    """US dollars a million tokens trained, from the service's price list."""
    price_sample_tokens: Price = 0.0
    """US dollars a million tokens sampled, from the service's price list."""
    price_prompt_tokens: Price = 0.0
    """US dollars a million prompt tokens read by the sampler, from the service's price list."""

    @property
    def priced(self) -> bool:
        """Whether any price of the policy service was given."""
        return any((self.price_train_tokens, self.price_sample_tokens, self.price_prompt_tokens))


class Usage(NamedTuple):
    """What is billed for."""

    search_usd: float
    prompt_tokens: int
    sampled_tokens: int
    train_tokens: int

    def metrics(self) -> dict[str, float]:
        """Token counts for a step's record, so that a step can be priced anew at any time.
        Training tokens stand there as `train/tokens_per_rollout_batch`."""
        return {
            "cost/prompt_tokens": float(self.prompt_tokens),
            "cost/sampled_tokens": float(self.sampled_tokens),
        }


class Cost(NamedTuple):
    """Money, in US dollars."""

    search: float
    sampling: float
    """Prompts and sampled tokens."""
    training: float

    @property
    def total(self) -> float:
        """All of it."""
        return math.fsum(self)

    def metrics(self) -> dict[str, float]:
        """For a step's record."""
        return {
            "cost/search_usd": self.search,
            "cost/sample_usd": self.sampling,
            "cost/train_usd": self.training,
            "cost/total_usd": self.total,
        }


class Spent(NamedTuple):
    """What the finished steps of a run have cost, in US dollars."""

    cost: Cost
    steps: tuple[float, ...]
    """Of each finished step, in order."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.cost.total


def usage(groups: Iterable[Group], train_tokens: int = 0) -> Usage:
    """What the trajectories of a step or an evaluation took, invalid ones included: they are
    billed as well. `train_tokens` is `Batch.tokens`, 0 if nothing was trained."""
    prompt = sampled = 0
    searches: list[float] = []
    for group in groups:
        shared = [t.turns[0].start for t in group.trajectories if t.turns]
        prompt += max(shared, default=0)
        for trajectory in group.trajectories:
            prompt += sum(turn.start for turn in trajectory.turns[1:])
            sampled += sum(turn.end - turn.start for turn in trajectory.turns)
            searches += [search.cost for search in trajectory.searches]
    return Usage(math.fsum(searches), prompt, sampled, train_tokens)


def price(used: Usage, prices: Prices) -> Cost:
    """The cost of what was used."""
    sampling = (
        used.prompt_tokens * prices.price_prompt_tokens
        + used.sampled_tokens * prices.price_sample_tokens
    )
    training = used.train_tokens * prices.price_train_tokens
    return Cost(used.search_usd, sampling / MILLION, training / MILLION)


def step_cost(groups: Sequence[Group], train_tokens: int, prices: Prices) -> Cost:
    """The cost of a step from its trajectories."""
    return price(usage(groups, train_tokens), prices)


def spent(history: Iterable[Mapping[str, float]]) -> Spent:
    """What the finished steps have cost, from their metrics in step order. The money of a step is
    what it cost at the prices of its time; a record without a cost counts as free."""
    costs = [
        Cost(
            metrics.get("cost/search_usd", 0.0),
            metrics.get("cost/sample_usd", 0.0),
            metrics.get("cost/train_usd", 0.0),
        )
        for metrics in history
    ]
    kinds = zip(*costs, strict=True) if costs else ((), (), ())
    return Spent(Cost(*map(math.fsum, kinds)), tuple(cost.total for cost in costs))


def next_step_cost(so_far: Spent, prior: float) -> float:
    """What the next step is expected to cost: the costliest of the last steps, or `prior` (see
    `searchr1.estimate`) before there is any. US dollars."""
    return max(so_far.steps[-RECENT_STEPS:], default=prior)


def would_pass(so_far: Spent, max_cost: float | None, prior: float) -> bool:
    """Whether the next step is expected to bring a run over `max_cost` (None: no limit). It is
    an expectation, so a step that costs more than all recent ones may pass the limit by that
    difference."""
    if max_cost is None:
        return False
    return so_far.total + next_step_cost(so_far, prior) > max_cost + _ROUNDING


def why_stopped(so_far: Spent, max_cost: float, prior: float) -> str:
    """For a person: why a run stops before its next step, and how it goes on."""
    step = next_step_cost(so_far, prior)
    basis = "like the costliest of the last steps" if so_far.steps else "by the estimate"
    return (
        f"the run has cost {dollars(so_far.total)} and its next step may cost {dollars(step)} "
        f"({basis}), which would pass --max-cost {dollars(max_cost)}. Everything so far is kept. "
        "Start the same command again with a higher --max-cost to go on."
    )


def check_max_cost(prices: Prices, max_cost: float | None) -> None:
    """Raise SettingsError when a limit would be blind to the bill of a policy service that has
    one. Not for the embedded engine, which has none."""
    if max_cost is not None and not prices.priced:
        raise SettingsError(
            "--max-cost is set, but no price of the policy service: its bill would not be counted. "
            "Give --price-train-tokens, --price-sample-tokens and --price-prompt-tokens (US "
            "dollars a million tokens) from the service's price list."
        )


def dollars(amount: float) -> str:
    """An amount as a person reads it; small ones keep two significant digits."""
    if 0 < amount < 0.01:
        return f"USD {amount:.2g}" if amount >= 1e-4 else "USD <0.0001"
    return f"USD {amount:,.2f}"
