"""What a simulation says, for people: tables, a self-contained HTML page, and the chapter of results."""
