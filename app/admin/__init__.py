"""The /admin routes of their own: event streams."""
