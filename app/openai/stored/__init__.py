"""Chat completions that were sent with store: true: list, retrieve, change, delete, their messages."""
