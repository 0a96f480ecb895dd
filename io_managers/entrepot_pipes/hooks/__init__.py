"""Python programs as they are: functions that open files take reserved names for the ends of pipes."""
