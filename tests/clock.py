"""A clock of its own for tests of timings, and calls that let it run."""


class Clock:
    """Time that passes only in calls; a second of the wall is half a second of the processor."""

    def __init__(self):
        self.now = 0.0
        self.made, self.called = [], []

    def __call__(self, device):
        return self.now, self.now / 2

    def call(self, name, *seconds):
        """A call that takes these seconds, one after the other, and then the last of them."""
        left = list(seconds)

        def call():
            self.called.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call

    def maker(self, name, *seconds):
        """A function that makes such a call, which is not timed."""

        def make():
            self.made.append(name)
            self.now += 1000
            return self.call(name, *seconds)

        return make
