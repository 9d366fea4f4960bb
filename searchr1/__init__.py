"""Search-R1: reinforcement learning that teaches a language model when and what to search.

The library below the Prefect pipeline. Nothing in this package imports Prefect.
"""

__version__ = "0.1.0"
