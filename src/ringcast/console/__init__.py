"""What commands share: options, exit codes, and output."""
