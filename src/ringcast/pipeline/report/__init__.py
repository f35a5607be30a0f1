"""Reports: a trace as one page with pictures."""
