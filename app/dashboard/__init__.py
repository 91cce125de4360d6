"""What the live page shows, as data."""
