"""/v1/responses: create, retrieve, follow, cancel, delete, list the input, count its tokens."""
