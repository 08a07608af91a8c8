"""Run episodes in other processes or on other machines than the journal's."""
