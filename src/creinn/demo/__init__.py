"""The demo: six classifiers on handwritten digits, and a page with their results.

``training`` trains and evaluates the classifiers, ``page`` writes the report.
"""
