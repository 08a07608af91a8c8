"""Runs of many episodes: simulate, record, evaluate, crawl, ablate."""
