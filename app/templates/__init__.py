"""Files of pages; package data."""
