"""The papers' experiments: what they claim, what we measure, and the page that says both."""
