"""The command line.

Read the modules in this order: ``main``, ``parsing``, ``options`` (of all commands, without torch),
``sources`` (data and models of the user), and then the commands.
"""
