"""CSV tables in, numbers for a network out: what was read, found out or left out is said, not hidden.

In reading order: ``numerals`` (how numbers are written), ``table`` (a file as texts), ``columns`` (the kinds, and how
each is learnt), ``encoder`` (all columns).
"""
