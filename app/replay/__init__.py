"""`mocker replay` and `mocker compare`: flags, tables, files and the HTML report of offline replays."""
