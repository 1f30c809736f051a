"""One module a question.

Each has `NAME`, `ABOUT`, `COLUMNS`, `table(day)`, whose rows come in the order in which people see
them, and `findings(rows, day)`.
"""
