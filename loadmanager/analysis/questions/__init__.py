"""One module a question.

Each has `NAME`, `ABOUT`, `table(day)`, `ORDER` (of the rows that people see), and `findings(rows,
day)`.
"""
