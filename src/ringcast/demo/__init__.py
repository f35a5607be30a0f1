"""The demonstrations: what they start, what they do to it, and what they show."""
