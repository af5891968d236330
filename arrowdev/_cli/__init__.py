"""What ``python -m arrowdev`` runs: a module for each command, and what they share."""
