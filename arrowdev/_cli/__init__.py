"""The commands of ``python -m arrowdev``, one module each, and their shared code."""
