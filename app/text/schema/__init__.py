"""Building blocks of JSON-Schema generation; the way in is `app.text.json_schema`."""
