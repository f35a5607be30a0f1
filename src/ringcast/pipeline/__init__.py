"""From traces to answers: reports and pictures, whatever protocol made the trace."""
