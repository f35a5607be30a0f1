"""Building blocks that several protocols share. They know the kernel and nothing above it."""
