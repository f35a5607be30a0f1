"""The journal's bytes: frames of entries, segments of frames, and the records read from them."""
