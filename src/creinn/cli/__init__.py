"""The command line.

Read ``main``, ``parsing``, ``options``, ``sources`` and then the commands.
"""
