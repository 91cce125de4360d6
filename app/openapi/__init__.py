"""The OpenAPI document: hot routes and examples added to what FastAPI makes, and the committed copy."""
