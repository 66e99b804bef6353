"""The command line.

Read the modules in this order: ``main`` (the table of the commands), ``parsing``, ``options`` (the
options of all commands, without torch), ``sources`` (the data and the models of the user), and then
the modules of the commands.
"""
