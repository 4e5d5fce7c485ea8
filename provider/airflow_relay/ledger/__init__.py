"""The durable record: the only code that speaks SQL. SQLite or PostgreSQL, the same decisions on both."""
