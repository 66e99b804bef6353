"""Progress of training, as a bar in a terminal or as lines in a log file."""

import sys
import time
from collections.abc import Callable, Mapping

from tqdm import tqdm

LINE_SECONDS = 10.0  # time between two lines


class Progress:
    """Bar in a terminal or a notebook, or a line every :data:`LINE_SECONDS` on stderr.

    Args:
        enabled: Whether to show anything.
        networks: Number of networks that are trained one after another.
        clock: Function that returns the time in seconds.
    """

    def __init__(
        self, enabled: bool, networks: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        has_bar = sys.stderr.isatty() or "ipykernel" in sys.modules
        self._shows_bar, self._shows_lines = enabled and has_bar, enabled and not has_bar
        self._networks, self._network = networks, 0
        self._clock, self._last_line = clock, clock()

    def start(self, epochs: int, finished_epochs: int, steps: int | None) -> None:
        """Start the next network, with ``steps`` per epoch or ``None`` if it is not known."""
        self._network += 1
        self._epochs, self._steps = epochs, steps
        self._started = self._clock()
        self._first = self._before = self._done = (steps or 0) * finished_epochs
        self._bar = tqdm(
            total=self._total(), initial=self._done, disable=not self._shows_bar, unit=" steps"
        )

    def start_epoch(self, epoch: int) -> None:
        """Start an epoch, counted from 1."""
        network = f"network {self._network}/{self._networks}, " if self._networks > 1 else ""
        self._place, self._before = f"{network}epoch {epoch}/{self._epochs}", self._done
        self._bar.set_description(self._place, refresh=self._done == self._first)

    def update(self, step: int, numbers: Mapping[str, float | None]) -> None:
        """Show the metrics after a step of the epoch, counted from 1."""
        self._done = self._before + step
        shown = {name: f"{value:.4f}" for name, value in numbers.items() if value is not None}
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update(self._done - self._bar.n)
        now = self._clock()
        if self._shows_lines and now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            steps = "" if self._steps is None else f"/{self._steps}"
            parts = [self._place, f"step {step}{steps}"]
            parts += [f"{name} {value}" for name, value in shown.items()]
            if (total := self._total()) is not None:
                per_step = (now - self._started) / (self._done - self._first)
                left = total * (self._networks - self._network + 1) - self._done
                parts.append(f"{tqdm.format_interval(per_step * left)} left")
            print(", ".join(parts), file=sys.stderr, flush=True)

    def end_epoch(self, steps: int) -> None:
        """Set the number of steps per epoch."""
        self._steps = steps
        self._bar.total = self._total()

    def close(self) -> None:
        """Close the bar of the current network."""
        self._bar.close()

    def _total(self) -> int | None:
        return None if self._steps is None else self._steps * self._epochs
