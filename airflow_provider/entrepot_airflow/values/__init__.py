"""XCom values: storing, loading and deleting them, which pickles are accepted, and help for tasks that modify them."""
