"""The command line: options without torch in ``options``, and the work of each command in a module of its name.

In: arguments. Out: files, and an exit code. Read in this order: ``main``, ``parsing``, ``options``, then a command.
"""
