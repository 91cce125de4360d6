"""Service routes: health, version, load and the metrics as JSON."""
