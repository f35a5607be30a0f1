"""What a program uses: a node, named groups on its ring, and events in one order."""
