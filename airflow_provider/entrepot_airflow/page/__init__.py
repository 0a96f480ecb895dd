"""The page that shows what a task instance has passed on, in the API server."""
