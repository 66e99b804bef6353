"""Contenders that take too long, or fail, are left out before the others are timed in turns, and it is said why."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from creinn.evaluation.timing import Call, Timing, failure, interleaved, seconds_of

_DOUBT = 2.0  # what is expected to take this many times the limit is not even tried


@dataclass(frozen=True)
class Skipped:
    """A contender that was left out, and why."""

    reason: str


Outcome = Timing | Skipped


def timed(
    makers: Mapping[str, Callable[[], Call]],
    rounds: int,
    seconds: float,
    limit: float,
    device: str = "cpu",
    smaller: Mapping[str, Outcome] | None = None,
) -> dict[str, Outcome]:
    """Time calls by :func:`creinn.evaluation.timing.interleaved`, without those above the limit.

    Args:
        makers: Functions that make the calls, by name; making them is not timed. The first is the reference, which is
            never left out: its errors are raised.
        rounds: Rounds at most.
        seconds: Time after which no further round begins.
        limit: Longest first call, in seconds.
        device: Device whose work is waited for.
        smaller: Outcomes with a smaller batch. What was left out there, or would take more than twice the limit if it
            grew as the reference did, is not even made.
    """
    calls: dict[str, Call] = {}
    outcomes: dict[str, Outcome] = {}
    growth = 0.0  # of the reference's time since the smaller batch
    for name, make in makers.items():
        before = (smaller or {}).get(name)
        skipped = _doubt(before, growth, limit)
        if skipped is None:
            try:
                call = make()
                first, _ = seconds_of(call, device)
            except Exception as error:  # a contender that fails, for want of memory say, leaves the others their turns
                if not calls:
                    raise
                skipped = Skipped(failure(error))
            else:
                if calls and first > limit:
                    skipped = Skipped(f"one call took {first:.1f} s, limit {limit:g} s")
        if skipped is not None:
            outcomes[name] = skipped
            continue
        if not calls and isinstance(before, Timing):
            growth = min(first, seconds_of(call, device)[0]) / before.least
        calls[name] = call
    outcomes |= interleaved(calls, rounds, seconds=seconds, device=device)
    return {name: outcomes[name] for name in makers}


def _doubt(before: Outcome | None, growth: float, limit: float) -> Skipped | None:
    """Why a contender is not tried, judged by a smaller batch."""
    if isinstance(before, Skipped):
        return Skipped(f"left out with the smaller batch already ({before.reason})")
    expected = before.least * growth if before else 0.0
    return (
        Skipped(f"about {expected:.0f} s a call expected, limit {limit:g} s")
        if expected > _DOUBT * limit
        else None
    )
