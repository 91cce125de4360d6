"""What happened to each request and each pass: timelines, headers that explain, trace exports."""
