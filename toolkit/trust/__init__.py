"""The statistics of results: intervals, paired differences, pass@k and pass^k."""
