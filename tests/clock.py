"""A clock for the tests of timings, and functions that use this clock."""


class Clock:
    """Clock that runs only in calls. The processor time is half of the wall time."""

    def __init__(self):
        self.now = 0.0
        self.made, self.called = [], []

    def __call__(self, device):
        return self.now, self.now / 2

    def call(self, name, *seconds):
        """Return a function that takes these numbers of seconds, one after the other."""
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
