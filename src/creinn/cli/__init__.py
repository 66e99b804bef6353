"""The command line.

In: arguments. Out: files, and an exit code. Read in this order: ``main`` (the table of commands), ``parsing``,
``options`` (of all commands, without torch), ``sources`` (a user's data and models), then a command.
"""
