"""How far results hold: intervals, paired differences, pass@k and pass^k."""
