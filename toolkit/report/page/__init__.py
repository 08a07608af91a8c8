"""The report as one HTML file: Python judges and counts; the page filters and lays out."""
