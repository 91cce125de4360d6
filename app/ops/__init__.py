"""Service routes: health, sleep and cache, adapters, tokenize, /docs and the metrics as JSON."""
