"""What the commands ``train``, ``predict`` and ``evaluate`` do, given their options."""
