"""What everything that must survive a loss of power does to a disk."""
