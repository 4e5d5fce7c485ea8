"""What the operations DAGs, the command line and the page do in common."""
